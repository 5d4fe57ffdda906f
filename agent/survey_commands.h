// SPDX-License-Identifier: Apache-2.0
//
// The one-shot commands that read the rules of every iptables mode and of every program. Each takes
// away what it does not need of the process's privileges, and prints to standard output.
#ifndef KIPT_AGENT_SURVEY_COMMANDS_H_
#define KIPT_AGENT_SURVEY_COMMANDS_H_

#include <string>

#include "agent/commands.h"
#include "agent/config/config.h"
#include "agent/node/node.h"

namespace kipt::agent {

// Whether what a command prints gets colours.
bool HasColors(const Flags& flags);

// kExitDifferences: there are findings that are worse than information and not allowed.
// kExitUsage: the allow list is wrong. kExitFailed: the rules of an iptables mode cannot be read.
ExitOrError RunAudit(const Flags& flags, const Node& node);

// kExitDifferences: a bit that is configured meets another program's, or a source cannot be read.
ExitOrError RunMarks(const Flags& flags, const Node& node);

// Explains `chain` in every iptables mode and managed family that has it, or in all that a file
// has. kExitFailed: no such chain, or the rules cannot be read. kExitUsage: the file cannot be
// read, or the chain's name is malformed.
ExitOrError RunExplain(const std::string& chain, const Flags& flags, const Node& node);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_SURVEY_COMMANDS_H_
