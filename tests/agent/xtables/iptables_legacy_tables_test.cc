// SPDX-License-Identifier: Apache-2.0
//
// The hash of legacy rules over bytes of the test's own: what counts, what does not, and
// what is no row of rules at all.

#include "agent/xtables/iptables_legacy_monitor.h"
#include "tests/support/matchers.h"

// Included later because they need the C library's struct in6_addr.
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using agent::HashEntries;
using netlink::Family;

// One rule with `more` after its header, which gives the rule's size as `size` bytes.
template <typename Entry>
std::string RuleOfSize(const std::string& more, size_t size, uint64_t packets = 0) {
  Entry entry = {};
  entry.target_offset = sizeof entry;
  entry.next_offset = static_cast<uint16_t>(size);
  entry.counters.pcnt = packets;
  entry.counters.bcnt = packets * 40;
  std::string bytes(sizeof entry, '\0');
  std::memcpy(bytes.data(), &entry, sizeof entry);
  return bytes + more;
}
template <typename Entry>
std::string Rule(const std::string& more, uint64_t packets = 0) {
  return RuleOfSize<Entry>(more, sizeof(Entry) + more.size(), packets);
}

size_t Of(Family family, const std::string& entries) {
  const absl::StatusOr<size_t> hash = HashEntries(family, entries);
  EXPECT_THAT(hash, IsOk());
  return hash.ok() ? *hash : 0;
}

template <typename Entry>
void ExpectAllButCountersCount(Family family) {
  const std::string two = Rule<Entry>("first---") + Rule<Entry>("second--");
  EXPECT_EQ(Of(family, two), Of(family, Rule<Entry>("first---", 7) + Rule<Entry>("second--", 9)));
  EXPECT_NE(Of(family, two), Of(family, Rule<Entry>("first---") + Rule<Entry>("SECOND--")));
  EXPECT_NE(Of(family, two), Of(family, Rule<Entry>("second--") + Rule<Entry>("first---")));
  EXPECT_NE(Of(family, two), Of(family, Rule<Entry>("first---")));
  // Every byte but those of the counters.
  const size_t counters = offsetof(Entry, counters);
  for (size_t at = 0; at < offsetof(Entry, target_offset); ++at) {
    std::string other = two;
    other[at] = static_cast<char>(other[at] ^ 1);
    EXPECT_NE(Of(family, other), Of(family, two)) << at;
  }
  for (size_t at = counters; at < counters + sizeof(xt_counters); ++at) {
    std::string other = two;
    other[at] = static_cast<char>(other[at] ^ 1);
    EXPECT_EQ(Of(family, other), Of(family, two)) << at;
  }
}

TEST(LegacyTablesTest, HashesRulesWithoutTheirCounters) {
  ExpectAllButCountersCount<ipt_entry>(Family::kIPv4);
  ExpectAllButCountersCount<ip6t_entry>(Family::kIPv6);
}

TEST(LegacyTablesTest, TakesATableWithoutRulesAndARuleWithoutATarget) {
  EXPECT_THAT(HashEntries(Family::kIPv4, ""), IsOk());
  EXPECT_THAT(HashEntries(Family::kIPv4, Rule<ipt_entry>("")), IsOk());
}

TEST(LegacyTablesTest, RefusesWhatIsNoRowOfWholeRules) {
  constexpr size_t kSize = sizeof(ipt_entry);
  const std::string good = Rule<ipt_entry>("12345678");
  const std::string rows[] = {
      "x",
      good.substr(0, kSize - 1),
      RuleOfSize<ipt_entry>("", 0),
      RuleOfSize<ipt_entry>("", kSize - 1),
      RuleOfSize<ipt_entry>("", kSize + 1),
      RuleOfSize<ipt_entry>("", 0xffff),
      good + good.substr(0, good.size() - 1),
      good + std::string(8, '\0'),
      good + RuleOfSize<ipt_entry>("", 0),
      "x" + good,
      std::string(4096, '\0'),
      std::string(4096, '\xff'),
  };
  for (const std::string& entries : rows) {
    EXPECT_THAT(HashEntries(Family::kIPv4, entries),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no whole rule")));
  }
  EXPECT_THAT(HashEntries(Family::kIPv6, good), StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace kipt::testing
