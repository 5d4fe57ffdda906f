// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/legacy_entries.h"

#include <netinet/in.h>
// Need struct in6_addr to be the C library's, and so come behind it.
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>

#include <cstddef>
#include <string>

#include "agent/xtables/iptables_legacy_monitor.h"
#include "tests/fuzz/require.h"

namespace kipt::testing {
namespace {

using netlink::Family;

void CheckFamily(Family family, absl::string_view entries, size_t counters, size_t header) {
  const auto first = agent::HashEntries(family, std::string(entries));
  if (!first.ok()) return KIPT_REQUIRE_REASON(first.status());
  if (entries.empty()) return;
  KIPT_REQUIRE(entries.size() >= header);
  std::string counted(entries);
  counted[counters] = static_cast<char>(counted[counters] ^ 1);
  const auto second = agent::HashEntries(family, counted);
  KIPT_REQUIRE(second.ok() && *second == *first);
  std::string changed(entries);
  changed[0] = static_cast<char>(changed[0] ^ 1);
  const auto third = agent::HashEntries(family, changed);
  KIPT_REQUIRE(third.ok() && *third != *first);
}

}  // namespace

void CheckLegacyEntries(absl::string_view entries) {
  CheckFamily(Family::kIPv4, entries, offsetof(ipt_entry, counters), sizeof(ipt_entry));
  CheckFamily(Family::kIPv6, entries, offsetof(ip6t_entry, counters), sizeof(ip6t_entry));
}

}  // namespace kipt::testing
