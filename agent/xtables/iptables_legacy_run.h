// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_legacy_run.h
//
// Runs iptables-legacy-save, and explains how an iptables-legacy program failed. The exit code
// decides: what the program prints differs by version and only goes into the message, except the
// name of a match that we asked for.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_LEGACY_RUN_H_
#define KIPT_AGENT_XTABLES_IPTABLES_LEGACY_RUN_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/process/command.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "agent/xtables/iptables_legacy_programs.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// enum xtables_exittype of iptables' xtables.h.
inline constexpr int kXtablesOtherProblem = 1;
inline constexpr int kXtablesParameterProblem = 2;
inline constexpr int kXtablesVersionProblem = 3;
inline constexpr int kXtablesResourceProblem = 4;

// The error of a program that ended with anything but 0, with what to do about it. `what` says what
// it was to do, to which family and tables. PermissionDenied where `thread_status_path`
// (/proc/thread-self/status) shows that we lack CAP_NET_ADMIN or CAP_NET_RAW, which the program
// then lacked too.
absl::Status IptablesLegacyFailure(absl::string_view what, absl::string_view program,
                                   const CommandResult& result,
                                   const std::string& thread_status_path);

// Marks `failure`, which is IptablesLegacyFailure's of a write that needed `match`, with
// netlink::SetMissingExtension where it was for want of that: the program names an extension that
// it cannot load, or the kernel refused the table and has no such match, although it was just asked
// for (then it would have loaded it). `matches_path` is what lists the kernel's matches, of the
// family, one a line (/proc/net/ip_tables_matches).
void NoteMissingMatch(absl::string_view match, const CommandResult& result,
                      const std::string& matches_path, absl::Status& failure);

// `status` with more words behind its message, and all else that is known of it.
absl::Status Annotated(const absl::Status& status, absl::string_view more);

// What iptables-legacy-save -c prints of `family`, in the calling thread's network namespace: every
// table that exists, and none is created. Nothing, and no program is run, if there is no table.
// Connections' labels are numbers, whatever names they have on this node.
//
// FailedPrecondition if labels are printed by names and the file of names cannot be read whole: our
// rules would look like another program's, and each round would add them again. The status of
// `programs` if that is an error and tables exist. The status of errno if the list of tables cannot
// be read, which only uid 0 of the namespace may. Else as CommandRunner::Run and
// IptablesLegacyFailure.
absl::StatusOr<std::string> SaveIptablesLegacyTables(
    netlink::Family family, CommandRunner& runner,
    const absl::StatusOr<IptablesLegacyPrograms>& programs, const IptablesLegacyOptions& options);

// Every chain of the tables mangle, nat and filter that exist, in the calling thread's network
// namespace, as iptables-legacy-save (iptables-save, where iptables is older than 1.8) prints them:
// tells whether iptables-legacy is in use at all. Run without -t, the program reads only what
// ip_tables_names lists, so no table is created.
//
// NotFound: the program is not installed. Unknown: it failed, with what it printed. Other errors
// are FindIptablesLegacyPrograms', CommandRunner::Run's and ParseSave's.
absl::StatusOr<std::map<netlink::ChainId, netlink::ObservedChain>> ListIptablesLegacyChains(
    netlink::Family family, CommandRunner& runner, const IptablesLegacyOptions& options = {});

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_LEGACY_RUN_H_
