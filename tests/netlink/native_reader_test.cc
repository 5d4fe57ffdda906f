// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "netlink/batch.h"
#include "netlink/nft_requests.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink::native_reader_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

// linux/netfilter/nf_tables.h and linux/netfilter.h.
constexpr uint32_t kState = 0;     // NFT_CT_STATE
constexpr uint32_t kStatus = 2;    // NFT_CT_STATUS
constexpr uint32_t kNotEqual = 1;  // NFT_CMP_NEQ
constexpr int32_t kDrop = 0;
constexpr uint32_t kFilterPolicy = 1;  // NF_ACCEPT
constexpr uint32_t kBaseChain = 1;     // NFT_CHAIN_BASE

Bytes Headers() { return Zeros(20); }

// Every bit of `bits` that counts is among these.
Bytes Bits(uint32_t key, uint32_t bits, uint32_t op) {
  return Join({Ct(key), Mask(HostU32(bits)), Compare(HostU32(0), op)});
}

Bytes TableMessage(uint32_t flags, uint32_t use, const Bytes& more = {}) {
  return Join({Headers(), Attr(1, Text("guard")), Attr(2, flags), Attr(3, use), more});
}

Bytes HookNest(uint32_t hook, uint32_t priority, const Bytes& more = {}) {
  return Attr(4, Join({Attr(1, hook), Attr(2, priority), more}));
}

Bytes ChainMessage(const Bytes& hook, const std::string& type = "filter",
                   uint32_t policy = kFilterPolicy, const Bytes& more = {}) {
  return Join({Headers(), Attr(1, Text("guard")), Attr(3, Text("TEST")), hook, Attr(5, policy),
               Attr(7, Text(type)), more});
}

NativeTable Table(std::vector<NativeDrop> rules) {
  return {
      .family = Family::kIPv4,
      .name = "guard",
      .chains = {NativeChain{.name = "TEST", .hook = 1, .priority = 0, .rules = std::move(rules)}}};
}

ObservedNativeTable Compared(const NativeTable& expected, const std::vector<Bytes>& rules,
                             const Bytes& table, const Bytes& chain) {
  NativeComparison comparison(expected);
  comparison.AddTable(table);
  for (const Bytes& rule : rules) comparison.AddRule(rule);
  comparison.AddChain(chain);
  return comparison.Finish().value();
}

ObservedNativeTable CompareRule(const NativeDrop& expected, const Bytes& rule) {
  return Compared(Table({expected}), {rule}, TableMessage(0, 1), ChainMessage(HookNest(1, 0)));
}

PrefixMatch Match(const char* prefix, bool negated = false) {
  return {.prefix = *ParsePrefix(Family::kIPv4, prefix), .negated = negated};
}

struct Row {
  std::string name;
  std::vector<Bytes> expressions;
  NativeDrop drop;
  // Whether the kernel holds these parts for `drop`.
  bool same = false;
  Bytes more = {};
};

const NativeDrop kNoState = {.state_none = 6};
const NativeDrop kFrom126 = {.source = Match("126.0.0.0/7")};
const NativeDrop kFromLoopback = {.source = Match("127.0.0.0/8")};

TEST(NativeComparisonTest, IsAlteredByAMessageThatWasCutOff) {
  const Bytes message = RuleMessage(
      Family::kIPv4,
      {Ct(kState), Mask(HostU32(6)), Compare(HostU32(0)), CounterBytes(), Verdict(kDrop)});
  EXPECT_FALSE(CompareRule(kNoState, message).altered);
  for (size_t length = 0; length < message.size(); ++length) {
    const Bytes cut(message.begin(), message.begin() + static_cast<ptrdiff_t>(length));
    EXPECT_TRUE(CompareRule(kNoState, cut).altered) << "cut to " << length;
  }
}

const Bytes kEnd = Join({CounterBytes(), Verdict(kDrop)});

TEST(NativeRuleTest, IsTheOneThatWeWriteOrMakesTheTableAltered) {
  const Row rows[] = {
      {"NothingTested", List(kEnd), NativeDrop{}, true},
      {"ABytesPrefix",
       List(Payload(1, 16, 1), Compare(FromHex("7f")), Payload(1, 12, 1),
            Compare(FromHex("7f"), kNotEqual), kEnd),
       NativeDrop{.source = Match("127.0.0.0/8", true), .destination = Match("127.0.0.0/8")}, true},
      {"APrefixOfBits",
       List(Payload(1, 12, 4), Mask(FromHex("fe000000")), Compare(FromHex("7e000000")), kEnd),
       kFrom126, true},
      {"WithTheOperationThatNewerKernelsReport",
       List(Payload(1, 12, 4), MaskWithOp(FromHex("fe000000")), Compare(FromHex("7e000000")), kEnd),
       kFrom126, true},
      {"AnAddress", List(Payload(1, 12, 4), Compare(FromHex("01020304")), kEnd),
       NativeDrop{.source = Match("1.2.3.4")}, true},
      {"AnyOfTheStates", List(Bits(kState, 0x41, kNotEqual), kEnd), NativeDrop{.state_any = 0x41},
       true},
      {"NoneOfTheStates", List(Bits(kState, 6, 0), kEnd), kNoState, true},
      {"NoneOfTheStatuses", List(Bits(kStatus, 0x20, 0), kEnd), NativeDrop{.status_none = 0x20},
       true},
      {"AComment", List(kEnd), NativeDrop{.comment = "why"}, true, UserDataComment("why")},
      {"AnEmptyComment", List(kEnd), NativeDrop{}, false, UserDataComment("")},
      {"AnotherComment", List(kEnd), NativeDrop{.comment = "why"}, false, UserDataComment("hm")},
      {"OtherUserData", List(kEnd), NativeDrop{}, false, Attr(7, FromHex("010401000000"))},
      {"NoExpressions", {}, NativeDrop{}},
      {"ACounterOfMalformedData",
       List(ExpressionBytes("counter", FromHex("ffff0100")), Verdict(kDrop)), NativeDrop{}},
      {"AnOperationThatShifts",
       List(Payload(1, 12, 4), MaskWithOp(FromHex("fe000000"), 1), Compare(FromHex("7e000000")),
            kEnd),
       kFrom126},
      {"AnotherMaskWithItsOperation",
       List(Payload(1, 12, 4), MaskWithOp(FromHex("ff000000")), Compare(FromHex("7e000000")), kEnd),
       kFrom126},
      {"AnAttributeMore",
       List(Payload(1, 12, 1),
            ExpressionBytes(
                "cmp", Join({Attr(1, 1), Attr(2, 0), Attr(3, Attr(1, FromHex("7f"))), Attr(6, 0)})),
            kEnd),
       kFromLoopback},
      {"AConditionOutsideTheExpressions", List(kEnd), NativeDrop{}, false, Attr(5, Attr(1, 6))},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const Bytes message = RuleMessage(Family::kIPv4, row.expressions, row.more);
    EXPECT_EQ(CompareRule(row.drop, message).altered, !row.same);
  }
}

TEST(NativeRuleTest, AnyOtherExpressionOrBitMakesTheTableAltered) {
  const std::vector<Bytes> ours = {
      Payload(1, 12, 4), Mask({0xfe, 0, 0, 0}), Compare({0x7e, 0, 0, 0}), Ct(kState),
      Mask(HostU32(6)),  Compare(HostU32(0)),   CounterBytes(),           Verdict(kDrop)};
  const NativeDrop drop = {.source = Match("126.0.0.0/7"), .state_none = 6};
  const auto altered = [&](const std::vector<Bytes>& expressions) {
    return CompareRule(drop, RuleMessage(Family::kIPv4, expressions)).altered;
  };
  EXPECT_FALSE(altered(ours));
  for (size_t i = 0; i < ours.size(); ++i) {
    const auto at = static_cast<ptrdiff_t>(i);
    std::vector<Bytes> changed = ours;
    changed.erase(changed.begin() + at);
    EXPECT_TRUE(altered(changed)) << "without " << i;
    changed.insert(changed.begin() + at, 2, ours[i]);
    EXPECT_TRUE(altered(changed)) << "twice " << i;
    changed = ours;
    std::rotate(changed.begin(), changed.begin() + at, changed.begin() + at + 1);
    EXPECT_EQ(altered(changed), i > 0) << "first " << i;
    if (ours[i] == CounterBytes()) continue;
    // After two headers, and padded.
    const size_t name_end = 8 + std::strlen(reinterpret_cast<const char*>(&ours[i][8])) + 1;
    for (size_t byte = 8; byte < ours[i].size(); ++byte) {
      if (byte >= name_end && byte < (name_end + 3) / 4 * 4) continue;
      changed = ours;
      changed[i][byte] ^= 1;
      EXPECT_TRUE(altered(changed)) << "byte " << byte << " of " << i;
    }
  }
}

TEST(NativeComparisonTest, AddsTheCountersOfAllRules) {
  const auto counter = [](const char* bytes, const char* packets) {
    return ExpressionBytes("counter", Join({Attr(1, FromHex(bytes)), Attr(2, FromHex(packets))}));
  };
  const ObservedNativeTable observed = Compared(
      Table({NativeDrop{}, NativeDrop{}}),
      {RuleMessage(Family::kIPv4, {counter("0000000000000140", "0000000000000004"), Verdict(0)}),
       RuleMessage(Family::kIPv4, {counter("0000000100000000", "0000000000000002"), Verdict(0)})},
      TableMessage(0, 1), ChainMessage(HookNest(1, 0)));
  EXPECT_FALSE(observed.altered);
  EXPECT_EQ(observed.counters, (RuleCounters{.packets = 6, .bytes = 0x100000140}));
}

TEST(NativeComparisonTest, TakesChainsInAnyOrder) {
  const NativeTable table = {.family = Family::kIPv4,
                             .name = "guard",
                             .chains = {NativeChain{.name = "input", .hook = 3, .priority = -1},
                                        NativeChain{.name = "output", .hook = 3, .priority = -1}}};
  NativeComparison comparison(table);
  comparison.AddTable(TableMessage(0, 2));
  for (const char* name : {"output", "input"}) {
    EXPECT_TRUE(comparison.Finish()->altered);
    comparison.AddChain(
        Join({Headers(), Attr(3, Text(name)), HookNest(3, 0xffffffff), Attr(5, kFilterPolicy),
              Attr(7, Text("filter")), Attr(10, kBaseChain)}));
  }
  EXPECT_FALSE(comparison.Finish()->altered);
}

struct AlteredRow {
  std::string name;
  Bytes table = TableMessage(0, 1);
  Bytes chain = ChainMessage(HookNest(1, 0));
};

TEST(AlteredTableTest, IsNoneOfOurs) {
  const AlteredRow rows[] = {
      {.name = "Owned", .table = TableMessage(2, 1, Attr(7, 4711))},
      {.name = "WithAnOwnerOnly", .table = TableMessage(0, 1, Attr(7, 4711))},
      {.name = "Commented", .table = TableMessage(0, 1, Attr(6, Text("hm")))},
      {.name = "AnEmptyTableMessage", .table = {}},
      {.name = "OfOneDevice", .chain = ChainMessage(HookNest(0, 0, Attr(3, Text("eth0"))))},
      {.name = "OffloadedToHardware",
       .chain = ChainMessage(HookNest(1, 0), "filter", kFilterPolicy, Attr(10, 3))},
      {.name = "ACommentedChain",
       .chain = ChainMessage(HookNest(1, 0), "filter", kFilterPolicy, Attr(12, Text("hm")))},
      {.name = "AChainThatCounts",
       .chain = ChainMessage(HookNest(1, 0), "filter", kFilterPolicy, Attr(8, Zeros(8)))},
      {.name = "AHookWithoutAPriority", .chain = ChainMessage(Attr(4, Attr(1, 1)))},
      {.name = "AnEmptyChainMessage", .chain = {}},
  };
  for (const AlteredRow& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_FALSE(Compared(Table({}), {}, AlteredRow{}.table, AlteredRow{}.chain).altered);
    EXPECT_TRUE(Compared(Table({}), {}, row.table, row.chain).altered);
  }
}

TEST(NativeComparisonTest, IsAlteredByAChainMoreOrLess) {
  const NativeTable table = Table({NativeDrop{}});
  const Bytes ours = ChainMessage(HookNest(1, 0));
  const Bytes other = Join({Headers(), Attr(3, Text("other")), HookNest(1, 0),
                            Attr(5, kFilterPolicy), Attr(7, Text("filter"))});
  for (const std::vector<Bytes>& chains :
       std::vector<std::vector<Bytes>>{{}, {ours}, {ours, other}, {ours, {}}}) {
    NativeComparison comparison(table);
    comparison.AddTable(TableMessage(0, 1));
    comparison.AddRule(RuleMessage(Family::kIPv4, {kEnd}));
    for (const Bytes& chain : chains) comparison.AddChain(chain);
    EXPECT_EQ(comparison.Finish()->altered, chains.size() != 1) << chains.size();
  }
}

TEST(NativeComparisonTest, IsAlteredByRulesOfAChainThatIsNotOurs) {
  const NativeTable empty = {.family = Family::kIPv4, .name = "guard"};
  NativeComparison comparison(empty);
  comparison.AddTable(TableMessage(0, 0));
  EXPECT_FALSE(comparison.Finish()->altered);
  comparison.AddRule(RuleMessage(Family::kIPv4, {kEnd}));
  EXPECT_TRUE(comparison.Finish()->altered);
}

TEST(NativeRefusalTest, RefusesWhatCannotBeWrittenOrReadBack) {
  struct RefusedTable {
    std::string name;
    NativeTable table;
    std::string why;
  };
  const auto named = [](const std::string& name, const std::string& one, const std::string& two) {
    return NativeTable{.family = Family::kIPv4,
                       .name = name,
                       .chains = {NativeChain{.name = one}, NativeChain{.name = two}}};
  };
  const auto commented = [](const std::string& comment) {
    return Table({NativeDrop{.comment = comment}});
  };
  const auto cut_to = [](uint8_t length) {
    PrefixMatch match = Match("127.0.0.0/8");
    match.prefix.length = length;
    return match;
  };
  const RefusedTable rows[] = {
      {"a table without a name", named("", "a", "b"), "255 bytes"},
      {"a table of a long name", named(std::string(256, 'x'), "a", "b"), "255 bytes"},
      {"a chain without a name", named("guard", "", "b"), "ip guard"},
      {"chains out of order", named("guard", "b", "a"), "order of their names"},
      {"a chain twice", named("guard", "a", "a"), "order of their names"},
      {"a long comment", commented(std::string(128, 'x')), "ip guard, chain TEST"},
      {"a quote in a comment", commented("a\"b"), "no quotes"},
      {"the end of a line in a comment", commented("a\nb"), "control"},
      {"a source that is too long", Table({NativeDrop{.source = cut_to(33)}}), "33 bits"},
      {"a destination that is too long", Table({NativeDrop{.destination = cut_to(33)}}), "33 bits"},
      {"bits after the prefix", Table({NativeDrop{.source = cut_to(4)}}), "bits beyond"},
  };
  for (const RefusedTable& row : rows) {
    EXPECT_THAT(Batch::Build({.operations = {PutNativeTable{row.table}}}, 1),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(row.why)))
        << row.name;
  }
}

}  // namespace
}  // namespace kipt::netlink::native_reader_test
