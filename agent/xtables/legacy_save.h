// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/legacy_save.h
#ifndef KIPT_AGENT_XTABLES_LEGACY_SAVE_H_
#define KIPT_AGENT_XTABLES_LEGACY_SAVE_H_

#include <string>

#include "absl/status/statusor.h"
#include "agent/process/command.h"
#include "agent/xtables/legacy_backend.h"
#include "agent/xtables/legacy_programs.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// What iptables-legacy-save -c prints of `family`, in the calling thread's network namespace: every
// table that exists, and none is created. Nothing, and no program is run, where there is no table.
// Connections' labels are numbers, whatever names they have on this node.
//
// FailedPrecondition where labels are printed by names and the file of those cannot be read whole:
// rules of ours would look like somebody else's, and be made once more by each round.
// The status of `programs` where that is an error and tables exist. The status that errno says
// where the list of tables cannot be read, which only uid 0 of the namespace may. Else as
// CommandRunner::Run and LegacyFailure.
absl::StatusOr<std::string> SaveLegacyTables(netlink::Family family, CommandRunner& runner,
                                             const absl::StatusOr<LegacyPrograms>& programs,
                                             const LegacyOptions& options);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_LEGACY_SAVE_H_
