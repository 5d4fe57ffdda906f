// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_legacy_monitor.h
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
#ifndef KIPT_AGENT_XTABLES_IPTABLES_LEGACY_MONITOR_H_
#define KIPT_AGENT_XTABLES_IPTABLES_LEGACY_MONITOR_H_

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "agent/xtables/fingerprint.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

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

#endif  // KIPT_AGENT_XTABLES_IPTABLES_LEGACY_MONITOR_H_
