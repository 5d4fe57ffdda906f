// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_legacy_programs.h
//
// The iptables-legacy programs of this machine: which there are, what their version can do, what
// iptables-legacy-save prints, and why one failed. The exit code decides: what a program prints
// differs by version and only appears in the message, except the name of a match that we asked for.
// Not installed.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_LEGACY_PROGRAMS_H_
#define KIPT_AGENT_XTABLES_IPTABLES_LEGACY_PROGRAMS_H_

#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "agent/process/command.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "agent/xtables/iptables_save.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

struct IptablesVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;

  auto operator<=>(const IptablesVersion&) const = default;

  // iptables-restore takes /run/xtables.lock itself, and waits for it if an option requires that.
  // Before, it takes none: its caller takes it.
  bool RestoreTakesLock() const { return *this >= IptablesVersion{1, 6, 2}; }
  // It takes another file if XTABLES_LOCKFILE names one.
  bool LockIsMovable() const { return *this >= IptablesVersion{1, 8, 7}; }
  // MASQUERADE --random-fully.
  bool HasRandomFully() const { return *this >= IptablesVersion{1, 6, 2}; }
};

// "1.8.9".
std::string ToString(const IptablesVersion& version);

struct IptablesProgram {
  IptablesVersion version;
  // The word in brackets, "legacy" or "nf_tables"; empty before 1.8, which was legacy only.
  std::string variant;

  bool legacy() const;
  bool operator==(const IptablesProgram&) const = default;
};

// What `iptables --version` printed, as "iptables-restore v1.8.9 (legacy)"; nullopt for anything
// else.
std::optional<IptablesProgram> ParseIptablesVersion(absl::string_view text);

// How iptables-restore is made to wait `wait` for its lock; nothing where it takes none. Never
// --wait-interval, which 1.8.9 calls deprecated on standard error.
std::vector<std::string> RestoreWaitArguments(const IptablesVersion& version, absl::Duration wait);

// The programs of one family.
struct IptablesLegacyPrograms {
  std::string save;
  std::string restore;
  IptablesVersion version;
};

// iptables-legacy-save and -restore (ip6tables- for IPv6) in the first of `directories` that has
// both; else iptables-save and -restore of the first directory where --version reports that these
// are iptables-legacy's.
//
// NotFound: there are none; the message lists the directories and what was found instead.
absl::StatusOr<IptablesLegacyPrograms> FindIptablesLegacyPrograms(
    CommandRunner& runner, netlink::Family family, const std::vector<std::string>& directories);

// To run `program` with the variables that all of them are given, and no others.
CommandRequest IptablesLegacyRequest(const std::string& program, std::vector<std::string> arguments,
                                     absl::Duration deadline);

// `path`, of IptablesLegacyOptions or as it has them, with the family's name in place of "%s".
std::string PathOfFamily(absl::string_view path, netlink::Family family);

// From enum xtables_exittype of iptables' xtables.h: a lock or memory could not be had.
inline constexpr int kXtablesResourceProblem = 4;

// The error of a program that ended with anything but 0, with what to do about it. `what` names
// the action, the family and the tables. PermissionDenied where `thread_status_path`
// (/proc/thread-self/status) shows that we lack CAP_NET_ADMIN or CAP_NET_RAW, which the program
// then lacked too.
absl::Status IptablesLegacyFailure(absl::string_view what, absl::string_view program,
                                   const CommandResult& result,
                                   const std::string& thread_status_path);

// Marks `failure`, which is IptablesLegacyFailure's of a write that needed `match`, with
// netlink::SetMissingExtension where that was missing: the program names an extension that it
// cannot load, or the kernel refused the table and has no such match, although it was just asked
// for (then it would have loaded it). `matches_path` is what lists the kernel's matches, of the
// family, one a line (/proc/net/ip_tables_matches).
void NoteMissingMatch(absl::string_view match, const CommandResult& result,
                      const std::string& matches_path, absl::Status& failure);

// `status` with more words after its message, and all else that is known of it.
absl::Status Annotated(const absl::Status& status, absl::string_view more);

// What iptables-legacy-save -c prints of `family`, in the calling thread's network namespace: every
// table that exists, or `only` that one; none is created, except where `only` disappears meanwhile.
// Nothing, and no program is run, if there is no such table. Connections' labels are numbers,
// whatever names they have on this node.
//
// FailedPrecondition if labels are printed by names and the file of names cannot be read whole: our
// rules would look like another program's, and each round would add them again. The status of
// `programs` if that is an error and tables exist. The status of errno if the list of tables cannot
// be read, which only uid 0 of the namespace may. Else as CommandRunner::Run and
// IptablesLegacyFailure.
absl::StatusOr<std::string> SaveIptablesLegacyTables(
    netlink::Family family, CommandRunner& runner,
    const absl::StatusOr<IptablesLegacyPrograms>& programs, const IptablesLegacyOptions& options,
    absl::string_view only = "");

// Every chain of the tables mangle, nat and filter that exist, in the calling thread's network
// namespace: whether iptables-legacy is in use at all. No table is created.
//
// NotFound: the program is not installed. Unknown: it failed, with what it printed. Other errors
// are FindIptablesLegacyPrograms', CommandRunner::Run's and ParseSave's.
absl::StatusOr<ObservedChains> ListIptablesLegacyChains(netlink::Family family,
                                                        CommandRunner& runner,
                                                        const IptablesLegacyOptions& options = {});

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_LEGACY_PROGRAMS_H_
