// SPDX-License-Identifier: Apache-2.0
//
// The iptables-legacy programs of this machine: which there are, what their version can do, what
// iptables-legacy-save prints, and why one failed. The exit code decides, because a program's
// messages differ by version; only the name of a match that we asked for is read from them. Not
// installed.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_LEGACY_PROGRAMS_H_
#define KIPT_AGENT_XTABLES_IPTABLES_LEGACY_PROGRAMS_H_

#include <compare>
#include <functional>
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

  bool legacy() const {
    return variant == "legacy" || (variant.empty() && version < IptablesVersion{1, 8, 0});
  }
  bool operator==(const IptablesProgram&) const = default;
};

// From "iptables-restore v1.8.9 (legacy)", the answer to --version; nullopt for anything else.
std::optional<IptablesProgram> ParseIptablesVersion(absl::string_view text);

// Makes iptables-restore wait `wait` for its lock; nothing if it takes none. Never --wait-interval,
// which 1.8.9 calls deprecated on standard error.
std::vector<std::string> RestoreWaitArguments(const IptablesVersion& version, absl::Duration wait);

// The programs of one family.
struct IptablesLegacyPrograms {
  std::string save;
  std::string restore;
  // Nothing before KnowVersion, if their names are enough to know them by.
  std::optional<IptablesVersion> version = {};
};

// Runs --version, unless `programs.version` is known, or is that of `other`, which may be the same
// file: Debian's iptables has one program for both families. NotFound: they are not
// iptables-legacy's, or say nothing.
absl::Status KnowVersion(CommandRunner& runner, IptablesLegacyPrograms& programs,
                         const IptablesLegacyPrograms* other);

// The version of the iptables-legacy-save that printed `save`, from its first line; nothing where
// that is not there, or is that of another program.
std::optional<IptablesVersion> VersionOfSave(absl::string_view save);

// iptables-legacy-save and -restore (ip6tables- for IPv6) in the first of `directories` that has
// both; else iptables-save and -restore of the first directory where --version reports that these
// are iptables-legacy's (see KnowVersion for `other`).
//
// NotFound: there are none; the message lists the directories and what was found instead.
absl::StatusOr<IptablesLegacyPrograms> FindIptablesLegacyPrograms(
    CommandRunner& runner, netlink::Family family, const std::vector<std::string>& directories,
    const IptablesLegacyPrograms* other = nullptr);

// Runs `program` with the environment that all of them get.
CommandRequest IptablesLegacyRequest(const std::string& program, std::vector<std::string> arguments,
                                     absl::Duration deadline);

// A file of the network namespace's directory in proc(5) that a module makes. NotFound: the
// directory is there, and so the kernel does not have the module now. Unknown: neither is there.
// Other errors are ReadFile's.
absl::StatusOr<std::string> ReadProcNetFile(const std::string& path,
                                            size_t most = size_t{16} << 20);

// `path` with the family's name in place of "%s", as in IptablesLegacyOptions.
std::string PathOfFamily(absl::string_view path, netlink::Family family);

// From enum xtables_exittype of iptables' xtables.h: a lock or memory could not be had.
inline constexpr int kXtablesResourceProblem = 4;

// The error of a program that ended with another code than 0, with what to do about it. `what`
// names the action, the family and the tables. PermissionDenied if `thread_status_path` shows that
// we, and so the program, lack CAP_NET_ADMIN or CAP_NET_RAW.
absl::Status IptablesLegacyFailure(absl::string_view what, absl::string_view program,
                                   const CommandResult& result,
                                   const std::string& thread_status_path);

// Marks `failure`, IptablesLegacyFailure's of a write that needed `match`, by
// netlink::SetMissingExtension if the match is missing: the program names it as an extension that
// it cannot load, or the kernel refused the table and has not loaded the match. `matches_path`
// lists the kernel's matches of the family, one a line (/proc/net/ip_tables_matches).
void NoteMissingMatch(absl::string_view match, const CommandResult& result,
                      const std::string& matches_path, absl::Status& failure);

// Marks `failure`, IptablesLegacyFailure's of a write, by netlink::SetWriteRefused if the kernel is
// kept from replacing tables of `family` although no capability is missing.
void NoteWriteRefused(netlink::Family family, const CommandResult& result, absl::Status& failure);

// `status` with its payloads, and with `more` after its message.
absl::Status Annotated(const absl::Status& status, absl::string_view more);

// Takes what a save prints, piece by piece as it comes (CommandRequest::take_output).
struct SaveTaker {
  std::function<absl::Status(absl::string_view piece)> take = {};
  // Whether that table was in it.
  std::function<bool(absl::string_view table)> has_table = {};
};

// What iptables-legacy-save -c prints of `family`, in the calling thread's network namespace: every
// table that exists, or `only` that one; none is created, unless `only` disappears meanwhile. If
// there is no such table, it is empty and no program is run. Connections' labels are numbers.
//
// Aborted if a table that the kernel has is not printed.
//
// FailedPrecondition if labels are printed by names and the file of names cannot be read: our rules
// would appear as another program's, and each round would add them again. The same if there are
// tables and the program cannot read their names (ProcSubset=pid). The status of `programs` if that
// is an error and tables exist. The status of errno if the list of tables cannot be read, which
// only uid 0 of the namespace may. Other errors are CommandRunner::Run's and
// IptablesLegacyFailure's.
//
// With `taker`, that gets the text instead, with labels by names where the program prints these.
absl::StatusOr<std::string> SaveIptablesLegacyTables(
    netlink::Family family, CommandRunner& runner,
    const absl::StatusOr<IptablesLegacyPrograms>& programs, const IptablesLegacyOptions& options,
    absl::string_view only = "", SaveTaker taker = {});

// Every chain of the tables mangle, nat and filter that exist, in the calling thread's network
// namespace: whether iptables-legacy is in use at all. No table is created.
//
// Errors are FindIptablesLegacyPrograms', SaveIptablesLegacyTables' and ParseSave's.
absl::StatusOr<ObservedChains> ListIptablesLegacyChains(netlink::Family family,
                                                        CommandRunner& runner,
                                                        const IptablesLegacyOptions& options);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_LEGACY_PROGRAMS_H_
