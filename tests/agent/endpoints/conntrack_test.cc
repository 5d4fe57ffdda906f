// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/conntrack.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

constexpr char kCount[] = "sys/net/netfilter/nf_conntrack_count";
constexpr char kMax[] = "sys/net/netfilter/nf_conntrack_max";
constexpr char kStatistics[] = "net/stat/nf_conntrack";
// As Linux 6.1 prints it on two CPUs.
constexpr char kTwoCpus[] =
    "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop "
    "early_drop icmp_error  expect_new expect_create expect_delete search_restart\n"
    "000000f1  00000000 00000000 00000000 00000001 00000002 00000000 00000003 00000000 00000000 "
    "0000000a 000000ff 00000000  00000000 00000000 00000000 00000000\n"
    "000000f1  00000000 00000000 00000000 00000001 00000002 00000000 00000003 00000000 00000000 "
    "00000001 00000001 00000000  00000000 00000000 00000000 00000000\n";

struct CountersCase {
  std::string name;
  std::string count;
  std::string max;
  std::string statistics;
  std::optional<ConntrackCounters> read;
};

TEST(ReadConntrackTest, ReadsWhatTheKernelReports) {
  const CountersCase rows[] = {
      {"AllCpusAreAddedUp", "241\n", "262144\n", kTwoCpus,
       ConntrackCounters{.entries = 241, .limit = 262144, .dropped = 11, .early_dropped = 256}},
      {"NoStatistics", "0\n", "262144\n", "", ConntrackCounters{.entries = 0, .limit = 262144}},
      {"StatisticsWithoutCpus", "1\n", "2\n", "entries drop early_drop\n",
       ConntrackCounters{.entries = 1, .limit = 2}},
      {"AColumnIsMissing", "1\n", "2\n", "entries drop\n00000001 00000002\n",
       ConntrackCounters{.entries = 1, .limit = 2, .dropped = 2}},
      {"ALineIsCut", "1\n", "2\n", "entries drop early_drop\n1 2 3\n1 2\n",
       ConntrackCounters{.entries = 1, .limit = 2, .dropped = 4}},
      {"StatisticsAreNoNumbers", "1\n", "2\n", "entries drop early_drop\n1 x \n",
       ConntrackCounters{.entries = 1, .limit = 2}},
      {"NothingIsTracked", "", "", "", std::nullopt},
      {"NoLimitIsShown", "5\n", "", kTwoCpus, std::nullopt},
      {"TheCountIsNoNumber", "many\n", "10\n", kTwoCpus, std::nullopt},
  };
  for (const CountersCase& row : rows) {
    const TemporaryTree proc;
    const auto write = [&](const char* name, const std::string& text) {
      if (!text.empty()) proc.Write(name, text);
    };
    write(kCount, row.count);
    write(kMax, row.max);
    write(kStatistics, row.statistics);
    EXPECT_EQ(ReadConntrack(proc.root()), row.read) << row.name;
  }
}

netlink::IpAddress Address(uint32_t number) {
  netlink::IpAddress address;
  for (size_t i = 0; i < 4; ++i) address.bytes[i] = static_cast<uint8_t>(number >> (24 - 8 * i));
  return address;
}

TEST(MostFrequentTest, FindsWhoHasMoreThanOneInItsPlacesAmongAnyNumberOfOthers) {
  MostFrequent frequent;
  constexpr uint32_t kAll = 200'000;
  // One in 100, between 198,000 addresses that come once: first, last, and all along.
  const netlink::IpAddress culprit = Address(0xc0000201);
  for (uint32_t i = 0; i < kAll; ++i) frequent.Add(i % 100 == 7 ? culprit : Address(i));
  const std::vector<MostFrequent::Count> top = frequent.Top(1, 0);
  ASSERT_EQ(top.size(), 1);
  EXPECT_EQ(top[0].address, culprit);
  EXPECT_LE(top[0].at_least, kAll / 100) << "more than it has";
  EXPECT_GE(top[0].at_least, kAll / 100 - kAll / MostFrequent::kKept);
}

TEST(MostFrequentTest, IsExactWhileThereIsRoomForAll) {
  MostFrequent frequent;
  EXPECT_THAT(frequent.Top(3, 0), IsEmpty());
  for (uint32_t i = 1; i <= MostFrequent::kKept; ++i) {
    for (uint32_t times = 0; times < (i <= 2 ? 5U : 1U); ++times) frequent.Add(Address(i));
  }
  frequent.Add(Address(2));
  EXPECT_THAT(frequent.Top(3, 6), ElementsAre(MostFrequent::Count{Address(2), 6}));
  EXPECT_THAT(frequent.Top(3, 0),
              ElementsAre(MostFrequent::Count{Address(2), 6}, MostFrequent::Count{Address(1), 5},
                          MostFrequent::Count{Address(3), 1}));
}

TEST(MostFrequentTest, AnAddressOfOneFamilyIsNotThatOfTheOther) {
  netlink::IpAddress v6 = Address(1);
  v6.family = netlink::Family::kIPv6;
  MostFrequent frequent;
  frequent.Add(Address(1));
  frequent.Add(v6);
  EXPECT_EQ(frequent.Top(9, 1).size(), 2);
  EXPECT_EQ(netlink::ToString(Address(0xc0000201)), "192.0.2.1");
  EXPECT_EQ(netlink::ToString(v6), "0:1::");
}

TEST(ConntrackReportTest, NamesTheHeaviestUsersWithALowerBound) {
  EXPECT_EQ(ToString(ConntrackReport{.time = absl::UnixEpoch(),
                                     .entries = 240000,
                                     .limit = 262144,
                                     .sources = {{Address(0xc0000201), 120000}, {Address(1), 7}},
                                     .destinations = {{Address(0xc6336401), 1200}}}),
            "connection tracking holds 240000 of 262144 entries (91 %). Most by source: 192.0.2.1 "
            "(at least 120000), 0.0.0.1 (at least 7); by destination: 198.51.100.1 (at least "
            "1200)");
  EXPECT_THAT(ToString(ConntrackReport{}), EndsWith("by destination: none has 1 %"));
}

}  // namespace
}  // namespace kipt::agent
