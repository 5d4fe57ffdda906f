// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/legacy_save.h
//
// What iptables-legacy-save prints.
#ifndef KIPT_AGENT_XTABLES_LEGACY_SAVE_H_
#define KIPT_AGENT_XTABLES_LEGACY_SAVE_H_

#include <map>
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

// Every chain of the tables mangle, nat and filter that exist, in the calling thread's network
// namespace, as iptables-legacy-save (iptables-save, where iptables is older than 1.8) prints them:
// tells whether iptables-legacy is in use at all. Run without -t, the program reads only what
// ip_tables_names lists, so no table is created.
//
// NotFound: the program is not installed. Unknown: it failed, with what it printed. Other errors
// are FindLegacyPrograms', CommandRunner::Run's and ParseSave's.
absl::StatusOr<std::map<netlink::ChainId, netlink::ObservedChain>> ListLegacyChains(
    netlink::Family family, CommandRunner& runner, const LegacyOptions& options = {});

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_LEGACY_SAVE_H_
