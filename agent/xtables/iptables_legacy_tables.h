// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_legacy_tables.h
//
// What the kernel reports of the iptables-legacy tables (getsockopt(2) with IPT_SO_GET_INFO and
// IPT_SO_GET_ENTRIES, linux/netfilter_ipv4/ip_tables.h): enough to see whether they were changed,
// in microseconds and without running a program. Nothing is decoded, changed or created.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_LEGACY_TABLES_H_
#define KIPT_AGENT_XTABLES_IPTABLES_LEGACY_TABLES_H_

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/process/files.h"
#include "agent/process/network_namespaces.h"
#include "agent/xtables/fingerprint.h"
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

// `path`, of IptablesLegacyOptions or as it has them, with the family's name in place of "%s".
std::string PathOfFamily(absl::string_view path, netlink::Family family);

// The fingerprint of what IPT_SO_GET_ENTRIES gave, with all counters taken for 0.
//
// DataLoss: that is no row of whole rules.
absl::StatusOr<Fingerprint> FingerprintEntries(netlink::Family family, const FingerprintKey& key,
                                               std::string entries);

// Stays in the network namespace of the thread that opened it, which it keeps alive. Move-only. Not
// safe for use by several threads at once.
class IptablesLegacyTableReader {
 public:
  // `table_names_path` as IptablesLegacyOptions::table_names_path: asking for a table that is not
  // listed would create it. A kernel without IPv6 has no tables of IPv6.
  //
  // PermissionDenied: without CAP_NET_RAW, or not uid 0 of the namespace.
  static absl::StatusOr<IptablesLegacyTableReader> Open(const std::string& table_names_path);

  // The tables mangle, nat and filter of both families.
  //
  // PermissionDenied: without CAP_NET_ADMIN. Aborted: a table was rewritten again and again while
  // it was read. FailedPrecondition: the first tables of a family came to be, and this thread,
  // which is in another namespace, cannot open their list. DataLoss as FingerprintEntries.
  absl::StatusOr<IptablesLegacyTables> Read();

 private:
  struct Source {
    OwnedFd socket;  // none: the kernel does not have this family
    OwnedFd names;   // none: the kernel has no legacy tables of this family yet
    std::string names_path;
  };

  IptablesLegacyTableReader()
      : netns_(std::make_unique<NetnsGuard>()), key_(RandomFingerprintKey()) {}

  absl::Status OpenNames(Source& source) const;
  absl::StatusOr<std::set<std::string>> Names(Source& source) const;
  absl::StatusOr<IptablesLegacyTable> ReadTable(netlink::Family family, netlink::Table table,
                                                const Source& source) const;

  std::unique_ptr<NetnsGuard> netns_;
  FingerprintKey key_;
  std::map<netlink::Family, Source> sources_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_LEGACY_TABLES_H_
