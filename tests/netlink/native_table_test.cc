// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "netlink/batch.h"
#include "netlink/nft_requests.h"
#include "netlink/transaction.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/matchers.h"
#include "tests/support/ruleset_text.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink::native_table_test {
namespace {

PrefixMatch Match(Family family, const char* prefix, bool negated = false) {
  return {.prefix = *ParsePrefix(family, prefix), .negated = negated};
}

NativeTable Guard() {
  return {.family = Family::kIPv4,
          .name = "guard",
          .chains = {
              NativeChain{.name = "input",
                          .hook = 1,
                          .priority = -1,
                          .rules = {NativeDrop{.source = Match(Family::kIPv4, "127.0.0.0/8", true),
                                               .destination = Match(Family::kIPv4, "127.0.0.1"),
                                               .state_any = 0x41,
                                               .comment = "no connection"},
                                    NativeDrop{.state_none = 6, .status_none = 0x20}}},
              NativeChain{.name = "output", .hook = 3, .priority = 0, .rules = {}}}};
}

TEST(NativeTableTest, ReadsAsNftListsIt) {
  EXPECT_EQ(ToString(Guard()),
            "table ip guard {\n"
            "\tchain input {\n"
            "\t\ttype filter hook input priority filter - 1; policy accept;\n"
            "\t\tip daddr 127.0.0.1 ip saddr != 127.0.0.0/8 ct state invalid,untracked counter drop"
            " comment \"no connection\"\n"
            "\t\tct state ! established,related ct status ! dnat counter drop\n"
            "\t}\n"
            "\n"
            "\tchain output {\n"
            "\t\ttype filter hook output priority filter; policy accept;\n"
            "\t}\n"
            "}\n");
}

TEST(NativeTableTest, NamesBitsThatHaveNoNameByTheirNumber) {
  EXPECT_EQ(ToString(Family::kIPv6, NativeDrop{.destination = Match(Family::kIPv6, "::1"),
                                               .state_any = 0x88,
                                               .status_none = 0x1008}),
            "ip6 daddr ::1 ct state new,0x80 ct status ! confirmed,0x1000 counter drop");
}

TEST(NativeTableTest, NamesEveryBitThatNftNames) {
  EXPECT_EQ(ToString(Family::kIPv4, NativeDrop{.state_any = 0x4f, .status_none = 0x23f}),
            "ct state invalid,established,related,new,untracked ct status ! "
            "expected,seen-reply,assured,confirmed,snat,dnat,dying counter drop");
}

TEST(NativeTableTest, CountsPrioritiesFromTheNameThatNftWouldTake) {
  const struct {
    uint32_t hook;
    int32_t priority;
    std::string text;
  } rows[] = {
      {0, -300, "hook prerouting priority raw;"},
      {2, -150, "hook forward priority mangle;"},
      {0, -100, "hook prerouting priority dstnat;"},
      {1, -100, "hook input priority -100;"},
      {1, 50, "hook input priority security;"},
      {4, 100, "hook postrouting priority srcnat;"},
      {3, 100, "hook output priority 100;"},
      {1, 10, "hook input priority filter + 10;"},
      {1, 1, "hook input priority filter + 1;"},
      {1, -10, "hook input priority filter - 10;"},
      {1, 11, "hook input priority 11;"},
      {4, 90, "hook postrouting priority srcnat - 10;"},
      {5, 0, "hook 5 priority filter;"},
  };
  for (const auto& row : rows) {
    const NativeTable table{
        .name = "t",
        .chains = {NativeChain{.name = "c", .hook = row.hook, .priority = row.priority}}};
    EXPECT_THAT(ToString(table), HasSubstr("type filter " + row.text));
  }
}

struct Refusal {
  std::string name;
  NativeTable table;
  std::vector<std::string> words;
};

template <typename F>
NativeTable Changed(F change) {
  NativeTable table = Guard();
  change(table);
  return table;
}

TEST(NativeRefusalTest, RefusesWhatCannotBeWrittenOrReadBack) {
  const Refusal rows[] = {
      {"ATableWithoutAName", Changed([](NativeTable& table) { table.name = ""; }), {"255 bytes"}},
      {"ATableOfALongName",
       Changed([](NativeTable& table) { table.name = std::string(256, 'x'); }),
       {"255 bytes"}},
      {"AChainWithoutAName",
       Changed([](NativeTable& table) { table.chains[0].name = ""; }),
       {"ip guard", "255 bytes"}},
      {"ChainsOutOfOrder",
       Changed([](NativeTable& table) { std::swap(table.chains[0], table.chains[1]); }),
       {"order of their names"}},
      {"AChainTwice",
       Changed([](NativeTable& table) { table.chains[1].name = "input"; }),
       {"order of their names"}},
      {"ALongComment",
       Changed(
           [](NativeTable& table) { table.chains[0].rules[1].comment = std::string(128, 'x'); }),
       {"ip guard", "chain input", "127 bytes"}},
      {"AQuoteInAComment",
       Changed([](NativeTable& table) { table.chains[0].rules[1].comment = "a\"b"; }),
       {"no quotes"}},
      {"ALineEndInAComment",
       Changed([](NativeTable& table) { table.chains[0].rules[1].comment = "a\nb"; }),
       {"control"}},
      {"APrefixThatIsTooLong",
       Changed([](NativeTable& table) { table.chains[0].rules[0].source->prefix.length = 33; }),
       {"33 bits"}},
      {"ADestinationThatIsTooLong",
       Changed([](NativeTable& table) {
         table.chains[0].rules[0].destination = Match(Family::kIPv4, "127.0.0.0/8");
         table.chains[0].rules[0].destination->prefix.length = 33;
       }),
       {"33 bits"}},
      {"BitsBehindThePrefix",
       Changed([](NativeTable& table) { table.chains[0].rules[0].source->prefix.length = 4; }),
       {"bits beyond"}},
  };
  for (const Refusal& row : rows) {
    SCOPED_TRACE(row.name);

    const auto batch = Batch::Build(Transaction{.operations = {PutNativeTable{row.table}}}, 1);
    ASSERT_THAT(batch, StatusIs(absl::StatusCode::kInvalidArgument));
    for (const std::string& word : row.words) {
      EXPECT_THAT(std::string(batch.status().message()), HasSubstr(word));
    }
  }
}

NativeTable Guard6() {
  return {
      .family = Family::kIPv6,
      .name = "guard",
      .chains = {NativeChain{.name = "forward",
                             .hook = 2,
                             .priority = 7,
                             .rules = {NativeDrop{.source = Match(Family::kIPv6, "fd00::/8"),
                                                  .destination = Match(Family::kIPv6, "::1", true)},
                                       NativeDrop{.comment = std::string(127, 'c')}}}}};
}

// As the kernel echoes it, with the table's use added.
TEST(NativeBatchTest, IsReadBackAsTheSameTable) {
  using ::kipt::testing::Attr;
  for (const NativeTable& table : {Guard(), Guard6()}) {
    const Transaction transaction{.operations = {PutNativeTable{table}}};
    const auto batch = Batch::Build(transaction, 1);
    ASSERT_THAT(batch, IsOk());
    NativeComparison comparison(table);
    comparison.AddTable(
        ::kipt::testing::Join({::kipt::testing::Zeros(20), Attr(2, 0),
                               Attr(3, static_cast<uint32_t>(table.chains.size()))}));
    // Between the batch's begin and end.
    for (uint32_t i = 1; i + 1 < batch->messages().count(); ++i) {
      SCOPED_TRACE(i);
      const WireBytes message = batch->messages().Message(i);
      EXPECT_EQ(kipt::testing::Bytes(message.begin(), message.begin() + 4),
                kipt::testing::HostU32(static_cast<uint32_t>(message.size())));
      EXPECT_EQ(message[16], table.family == Family::kIPv4 ? 2 : 10);
      EXPECT_EQ(Attributes::OfMessage(message).Text(1), "guard");
      // In the host's order of bytes, with the subsystem in the upper half.
      uint16_t type = 0;
      std::memcpy(&type, &message[4], sizeof(type));
      if (type % 256 == 3) comparison.AddChain(message);  // NFT_MSG_NEWCHAIN
      if (type % 256 == 6) comparison.AddRule(message);   // NFT_MSG_NEWRULE
    }
    EXPECT_FALSE(comparison.Finish()->altered);
  }
}

// What the message of number `index` did, and why it was refused.
std::string Refused(const Operation& operation, uint32_t index) {
  const Transaction transaction{.operations = {operation}};
  const auto batch = Batch::Build(transaction, 0);
  if (!batch.ok()) return batch.status().ToString();
  return std::string(batch->Explain({{{.sequence = index, .error_number = ERANGE}}}).message());
}

TEST(NativeBatchTest, SaysWhatEachMessageDoes) {
  const Operation put = PutNativeTable{Guard()};
  EXPECT_THAT(Refused(put, 3), StartsWith("putting in place the table ip guard: "));
  EXPECT_THAT(Refused(put, 4), StartsWith("putting in place the table ip guard, chain input: "));
  EXPECT_THAT(Refused(put, 6),
              StartsWith("putting in place the table ip guard, chain input, the rule ct state ! "
                         "established,related ct status ! dnat counter drop: "));
  const auto batch = Batch::Build(Transaction{.operations = {put}}, 0);
  ASSERT_THAT(batch, IsOk());
  EXPECT_EQ(batch->messages().count(), 2U + 7U);
  EXPECT_THAT(Refused(DeleteNativeTable{.family = Family::kIPv6, .name = "guard"}, 1),
              StartsWith("deleting the table ip6 guard: "));
  EXPECT_THAT(
      Batch::Build(
          Transaction{.operations = {DeleteNativeTable{.family = Family::kIPv6, .name = ""}}}, 0),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("deleting the table"), HasSubstr("255 bytes"))));
}

}  // namespace
}  // namespace kipt::netlink::native_table_test
