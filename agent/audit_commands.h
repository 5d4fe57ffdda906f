// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit_commands.h
//
// The commands that only look, at everybody's rules: `audit` and `explain`.
#ifndef KIPT_AGENT_AUDIT_COMMANDS_H_
#define KIPT_AGENT_AUDIT_COMMANDS_H_

#include <string>

#include "agent/commands.h"
#include "agent/config/command_line.h"
#include "agent/config/config.h"
#include "agent/detect/mode_evidence.h"

namespace kipt::agent {

// kExitDifferences: there are findings that are worse than information and not allowed.
// kExitUsage: the allow list cannot be read. kExitFailed: the rules of an iptables mode cannot be.
ExitCode RunAudit(const Config& config, const Flags& flags, const ModeSources& sources,
                  CommandStreams streams);

// Explains `chain` in every iptables mode and managed family that has it or, of a file, in what the
// file has. kExitFailed: no such chain, or the rules cannot be read. kExitUsage: the file cannot
// be, or the name is none.
ExitCode RunExplain(const std::string& chain, const Config& config, const Flags& flags,
                    const ModeSources& sources, CommandStreams streams);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_COMMANDS_H_
