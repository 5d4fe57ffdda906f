// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_legacy_parts.h
//
// The parts of the iptables-legacy backend. Not installed.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_LEGACY_PARTS_H_
#define KIPT_AGENT_XTABLES_IPTABLES_LEGACY_PARTS_H_

#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "agent/process/command.h"
#include "agent/process/files.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "agent/xtables/iptables_save.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::agent {

// ---- programs ----
//
// The iptables-legacy programs of this machine: which there are, what their version can do, what
// iptables-legacy-save prints, and why one failed. The exit code decides: what a program prints
// differs by version and only goes into the message, except the name of a match that we asked for.

struct IptablesVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;

  auto operator<=>(const IptablesVersion&) const = default;

  // iptables-restore takes /run/xtables.lock itself, and waits for it if an option says so. Before,
  // it takes none: its caller takes it.
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

  bool operator==(const IptablesLegacyPrograms&) const = default;
};

// iptables-legacy-save and -restore (ip6tables- for IPv6) in the first of `directories` that has
// both; else iptables-save and -restore of the first directory where these are iptables-legacy's,
// as
// --version reports.
//
// NotFound: there are none; the message says where was looked and what was found instead.
absl::StatusOr<IptablesLegacyPrograms> FindIptablesLegacyPrograms(
    CommandRunner& runner, netlink::Family family, const std::vector<std::string>& directories);

// The variables that the programs are given, and no others.
std::vector<std::string> IptablesLegacyEnvironment();

// `path`, of IptablesLegacyOptions or as it has them, with the family's name in place of "%s".
std::string PathOfFamily(absl::string_view path, netlink::Family family);

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
// netlink::SetMissingExtension where that was missing: the program names an extension that
// it cannot load, or the kernel refused the table and has no such match, although it was just asked
// for (then it would have loaded it). `matches_path` is what lists the kernel's matches, of the
// family, one a line (/proc/net/ip_tables_matches).
void NoteMissingMatch(absl::string_view match, const CommandResult& result,
                      const std::string& matches_path, absl::Status& failure);

// `status` with more words after its message, and all else that is known of it.
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

// ---- the lock ----
//
// The lock of every program that writes iptables-legacy tables: flock(2) on one file,
// /run/xtables.lock. The iptables-legacy programs take it for each table they change (iptables 1.8
// xshared.c, xtables_lock); iptables-legacy-save and all of iptables-nft do not.

// Held as long as this lives. Programs started meanwhile do not inherit it. Move-only.
class XtablesLock {
 public:
  // Takes the lock, making the file where it is missing, as iptables does.
  //
  // DeadlineExceeded: another process held it for the whole of `wait`; the message names the
  // process, where it can be seen. FailedPrecondition: the file cannot be had (its directory is
  // missing, a directory is there, the file system is read-only); the message says what to do.
  // PermissionDenied: not allowed to open it.
  static absl::StatusOr<XtablesLock> Acquire(const std::string& path, absl::Duration wait);

 private:
  explicit XtablesLock(OwnedFd fd) : fd_(std::move(fd)) {}
  OwnedFd fd_;
};

// "held by process 4711 (kube-proxy)"; several, where several share it. From /proc/locks, which
// shows the processes of our PID namespace and those below it only, and where the number of an
// overlay's or btrfs' device may not be the one that stat(2) tells: "nobody who can be seen from
// here holds it".
std::string DescribeXtablesLockHolder(const std::string& path);

// 0.5 to 1.5 of `mean`, so that those who wait for the same thing do not come back together.
absl::Duration Jittered(absl::Duration mean);

// ---- what is written ----
//
// What iptables-restore cannot say is found out before it is run. It names neither the operation
// that it refuses nor a reason but in words, finds rules by number only, empties a chain that is
// declared and exists, and has committed whole tables when it fails. So the transaction is played
// through on the observed chains, first.

using ObservedChains = std::map<netlink::ChainId, netlink::ObservedChain>;

// `transaction` as ToRestoreText() must be given it, if `state` is what was observed:
//  - rules are found by handle, and all numbers are set from that;
//  - chains that exist are not created;
//  - whole tables are ordered mangle, filter, nat, so that no packet is marked for a drop that is
//    not there yet; nat, filter, mangle where the transaction only removes;
//  - what goes from filter goes once more after nat where both get rules: with another drop bit,
//    packets are dropped by the old one for as long as they are marked with it.
//
// `state` has each chain that the transaction names or jumps to, with its rules, and each chain
// with a rule that jumps to one that the transaction deletes.
//
// Errors as Backend::Apply has them, each naming the operation, family, table and chain.
// FailedPrecondition also where a rule needs `random_fully`, which iptables lacks; InvalidArgument
// also where iptables-restore has no words for it.
absl::StatusOr<netlink::Transaction> PlanRestore(ObservedChains state,
                                                 const netlink::Transaction& transaction,
                                                 bool random_fully);

// `plan` of PlanRestore as input of iptables-restore --noflush: a table as often as the plan comes
// back to it. iptables-restore commits each time.
std::string RestoreText(const netlink::Transaction& plan, netlink::Family family);

// Whether `plan` adds a rule about a connection's label in `family`.
bool AddsConnLabel(const netlink::Transaction& plan, netlink::Family family);

// ---- the monitor ----
//
// The Monitor of the iptables-legacy backend. The kernel does not report changes of these tables,
// but every program that changes them with iptables 1.6.2 or later opens xtables.lock before and
// closes it afterwards, and inotify(7) reports that. The kernel is then asked whether anything was
// changed in this network namespace: readers take the lock, too, and one lock serves all
// namespaces. It answers (getsockopt(2) with IPT_SO_GET_INFO and IPT_SO_GET_ENTRIES,
// linux/netfilter_ipv4/ip_tables.h) in microseconds and without running a program; nothing is
// decoded, changed or created.
//
// Not seen: programs that take no lock or another one (an older iptables, a container with a /run
// of its own, a program that was given XTABLES_LOCKFILE), and a lock file that is mounted over the
// watched one later. A caller that must not miss these checks from time to time.

// Bytes of rules. A larger table is not read: the kernel copies it while it holds the table's lock,
// 10 MB in a third of a second.
inline constexpr size_t kMostIptablesLegacyTableBytes = size_t{256} << 10;

struct IptablesLegacyTable {
  // struct ipt_getinfo: hooks, number and bytes of the rules, where each hook begins and ends.
  // Every change of the rules' number or size moves it; a rule that was replaced by one of the same
  // size does not.
  std::string layout;
  // Of all rules and policies without their counters. Empty: the table is too large.
  std::optional<Fingerprint> content = {};

  bool operator==(const IptablesLegacyTable&) const = default;
};

// The tables that exist.
using IptablesLegacyTables =
    std::map<std::pair<netlink::Family, netlink::Table>, IptablesLegacyTable>;

// The fingerprint of what IPT_SO_GET_ENTRIES gave, with all counters taken for 0.
//
// DataLoss: that is no row of whole rules.
absl::StatusOr<Fingerprint> FingerprintEntries(netlink::Family family, const FingerprintKey& key,
                                               std::string entries);

// Reads the tables mangle, nat and filter of both families. Stays in the network namespace of the
// thread that opened it, which it keeps alive. Not safe for use by several threads at once.
//
// PermissionDenied: without CAP_NET_ADMIN. Aborted: a table was rewritten again and again while it
// was read. FailedPrecondition: the first tables of a family came to be, and this thread, which is
// in another namespace, cannot open their list. DataLoss as FingerprintEntries.
using IptablesLegacyTableReader = absl::AnyInvocable<absl::StatusOr<IptablesLegacyTables>()>;

// `table_names_path` as IptablesLegacyOptions::table_names_path: asking for a table that is not
// listed would create it. A kernel without IPv6 has no tables of IPv6.
//
// PermissionDenied: without CAP_NET_RAW, or not uid 0 of the namespace.
absl::StatusOr<IptablesLegacyTableReader> OpenIptablesLegacyTables(
    const std::string& table_names_path);

// For the calling thread's network namespace. `lock_path` and `table_names_path` as in
// IptablesLegacyOptions.
//
// Drain counts 1 where the rules, policies or tables differ from those of the last time, or where a
// table of more than kMostIptablesLegacyTableBytes may differ: it is not read, so any use of the
// lock counts, readers' and other namespaces' included, and the caller limits how often it looks.
// Our own writes count like anybody's. Nobody is named. Errors are
// IptablesLegacyTableReader's, and those of the watches that have to be renewed, as here:
//
// NotFound: neither the lock file nor its directory exists. PermissionDenied: the lock file may not
// be read, or as IptablesLegacyTableReader. ResourceExhausted: no descriptors, or too many
// inotify instances or watches.
absl::StatusOr<std::unique_ptr<netlink::Monitor>> NewIptablesLegacyMonitor(
    const std::string& lock_path, const std::string& table_names_path);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_LEGACY_PARTS_H_
