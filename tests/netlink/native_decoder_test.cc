// SPDX-License-Identifier: Apache-2.0
#include "netlink/native_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/netlink/wire_bytes.h"

namespace kipt::netlink {
namespace {

using ::kipt::testing::Attr;
using ::kipt::testing::Bytes;
using ::kipt::testing::Compare;
using ::kipt::testing::CounterBytes;
using ::kipt::testing::ExpressionBytes;
using ::kipt::testing::FromHex;
using ::kipt::testing::HostU32;
using ::kipt::testing::Join;
using ::kipt::testing::Mask;
using ::kipt::testing::Payload;
using ::kipt::testing::RuleMessage;
using ::kipt::testing::Text;
using ::kipt::testing::UserDataComment;
using ::kipt::testing::Verdict;
using ::kipt::testing::XtMatch;
using ::kipt::testing::Zeros;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// linux/netfilter/nf_tables.h and linux/netfilter.h.
constexpr uint32_t kState = 0;      // NFT_CT_STATE
constexpr uint32_t kDirection = 1;  // NFT_CT_DIRECTION
constexpr uint32_t kStatus = 2;     // NFT_CT_STATUS
constexpr uint32_t kNotEqual = 1;   // NFT_CMP_NEQ
constexpr int32_t kDrop = 0;
constexpr int32_t kAccept = 1;
constexpr uint32_t kFilterPolicy = 1;  // NF_ACCEPT
constexpr uint32_t kBaseChain = 1;     // NFT_CHAIN_BASE

Bytes Headers() { return Zeros(20); }

Bytes Ct(uint32_t key, uint32_t to = 1) {
  return ExpressionBytes("ct", Join({Attr(1, to), Attr(2, key)}));
}

// Every bit of `bits` that counts is among these.
std::vector<Bytes> Bits(uint32_t key, uint32_t bits, uint32_t op) {
  return {Ct(key), Mask(HostU32(bits)), Compare(HostU32(0), op)};
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

ObservedNativeTable Decode(const std::vector<Bytes>& rules, const Bytes& table,
                           const Bytes& chain) {
  NativeTableDecoder decoder(Family::kIPv4, "guard");
  decoder.AddTable(table);
  for (const Bytes& rule : rules) decoder.AddRule(rule);
  decoder.AddChain(chain);
  return std::move(decoder).Finish();
}

ObservedNativeTable DecodeRule(const Bytes& rule) {
  return Decode({rule}, TableMessage(0, 1), ChainMessage(HookNest(1, 0)));
}

PrefixMatch Match(const char* prefix, bool negated = false) {
  return {.prefix = *ParsePrefix(Family::kIPv4, prefix), .negated = negated};
}

struct Row {
  std::string name;
  std::vector<std::vector<Bytes>> parts;
  // Nothing: outside the vocabulary.
  std::optional<NativeDrop> drop = std::nullopt;
  Bytes more = {};
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class NativeRuleTest : public ::testing::TestWithParam<Row> {};

TEST_P(NativeRuleTest, IsReadOrMakesTheTableAltered) {
  std::vector<Bytes> expressions;
  for (const std::vector<Bytes>& part : GetParam().parts) {
    expressions.insert(expressions.end(), part.begin(), part.end());
  }
  const Bytes message = RuleMessage(Family::kIPv4, expressions, GetParam().more);
  const ObservedNativeTable observed = DecodeRule(message);
  ASSERT_EQ(observed.table.chains.size(), 1U);
  EXPECT_EQ(observed.altered, !GetParam().drop.has_value());
  if (GetParam().drop) {
    EXPECT_THAT(observed.table.chains[0].rules, ElementsAre(*GetParam().drop));
  } else {
    EXPECT_THAT(observed.table.chains[0].rules, IsEmpty());
  }
}

TEST(NativeTableDecoderTest, IsAlteredByAMessageThatWasCutOff) {
  const Bytes message = RuleMessage(
      Family::kIPv4,
      {Ct(kState), Mask(HostU32(6)), Compare(HostU32(0)), CounterBytes(), Verdict(kDrop)});
  EXPECT_FALSE(DecodeRule(message).altered);
  for (size_t length = 0; length < message.size(); ++length) {
    const Bytes cut(message.begin(), message.begin() + static_cast<ptrdiff_t>(length));
    EXPECT_TRUE(DecodeRule(cut).altered) << "cut to " << length;
  }
}

const std::vector<Bytes> kEnd = {CounterBytes(), Verdict(kDrop)};

INSTANTIATE_TEST_SUITE_P(
    Rules, NativeRuleTest,
    ::testing::Values(
        Row{"NothingTested", {kEnd}, NativeDrop{}},
        Row{"AsNftWritesABytesPrefix",
            {{Payload(1, 16, 1), Compare(FromHex("7f"))},
             {Payload(1, 12, 1), Compare(FromHex("7f"), kNotEqual)},
             kEnd},
            NativeDrop{.source = Match("127.0.0.0/8", true), .destination = Match("127.0.0.0/8")}},
        Row{"AsWeWriteIt",
            {{Payload(1, 12, 4), Mask(FromHex("ff000000")), Compare(FromHex("7f000000"))}, kEnd},
            NativeDrop{.source = Match("127.0.0.0/8")}},
        Row{"AnAddress",
            {{Payload(1, 12, 4), Compare(FromHex("01020304"))}, kEnd},
            NativeDrop{.source = Match("1.2.3.4")}},
        Row{"AnyOfTheStates", {Bits(kState, 0x41, kNotEqual), kEnd}, NativeDrop{.state_any = 0x41}},
        Row{"NoneOfTheStates", {Bits(kState, 6, 0), kEnd}, NativeDrop{.state_none = 6}},
        Row{"NoneOfTheStatuses", {Bits(kStatus, 0x20, 0), kEnd}, NativeDrop{.status_none = 0x20}},
        Row{"AllTestsInAnyOrder",
            {Bits(kStatus, 0x20, 0),
             Bits(kState, 6, 0),
             Bits(kState, 1, kNotEqual),
             {Payload(1, 12, 1), Compare(FromHex("0a"))},
             kEnd},
            NativeDrop{.source = Match("10.0.0.0/8"),
                       .state_any = 1,
                       .state_none = 6,
                       .status_none = 0x20}},
        Row{"AComment", {kEnd}, NativeDrop{.comment = "why"}, UserDataComment("why")},
        Row{"AnEmptyComment", {kEnd}, NativeDrop{}, UserDataComment("")},
        Row{"OtherUserData", {kEnd}, NativeDrop{}, Attr(7, FromHex("010401000000"))},

        Row{"NoExpressions", {}}, Row{"NoCounter", {{Verdict(kDrop)}}},
        Row{"NoVerdict", {{CounterBytes()}}},
        Row{"AnotherVerdict", {{CounterBytes(), Verdict(kAccept)}}},
        Row{"SomethingBehindTheVerdict", {kEnd, {CounterBytes()}}},
        Row{"TwoCounters", {{CounterBytes()}, kEnd}},
        Row{"ACounterBeforeATest", {{CounterBytes()}, Bits(kState, 6, 0), kEnd}},
        Row{"ATestTwice", {Bits(kState, 6, 0), Bits(kState, 1, 0), kEnd}},
        Row{"AnAddressTwice",
            {{Payload(1, 12, 1), Compare(FromHex("0a")), Payload(1, 12, 1), Compare(FromHex("0b"))},
             kEnd}},
        Row{"AStatusThatIsSet", {Bits(kStatus, 0x20, kNotEqual), kEnd}},
        Row{"AStateThatIsEqual", {{Ct(kState), Compare(HostU32(6))}, kEnd}},
        Row{"BitsThatAreSomethingElse",
            {{Ct(kState), Mask(HostU32(6)), Compare(HostU32(2))}, kEnd}},
        Row{"NoBits", {Bits(kState, 0, 0), kEnd}},
        Row{"AnotherKey", {Bits(kDirection, 1, 0), kEnd}},
        Row{"AKeyOfOneDirection",
            {{ExpressionBytes("ct", Join({Attr(1, 1), Attr(2, kState), Attr(3, FromHex("00"))})),
              Mask(HostU32(6)), Compare(HostU32(0))},
             kEnd}},
        Row{"AKeyThatIsSet", {{ExpressionBytes("ct", Join({Attr(2, 3), Attr(4, 1)}))}, kEnd}},
        Row{"AnotherRegister",
            {{Ct(kState, 1), Mask(HostU32(6), 2, 2), Compare(HostU32(0), 0, 2)}, kEnd}},
        Row{"AnotherRegisterCompared",
            {{Ct(kState), Mask(HostU32(6), 1, 2), Compare(HostU32(0), 0, 1)}, kEnd}},
        Row{"AMaskOfAnotherLength",
            {{Ct(kState), Mask(FromHex("0600")), Compare(FromHex("0000"))}, kEnd}},
        Row{"AnOffsetThatIsNoAddress", {{Payload(1, 9, 1), Compare(FromHex("06"))}, kEnd}},
        Row{"AMatchOfXtables", {{XtMatch("comment", 0, Zeros(256))}, kEnd}},
        Row{"AConditionBesideTheExpressions", {kEnd}, std::nullopt, Attr(5, Attr(1, 6))}),
    [](const auto& row) { return row.param.name; });

TEST(NativeTableDecoderTest, AddsTheCountersOfAllRules) {
  const auto counter = [](const char* bytes, const char* packets) {
    return ExpressionBytes("counter", Join({Attr(1, FromHex(bytes)), Attr(2, FromHex(packets))}));
  };
  const ObservedNativeTable observed = Decode(
      {RuleMessage(Family::kIPv4, {counter("0000000000000140", "0000000000000004"), Verdict(0)}),
       RuleMessage(Family::kIPv4, {counter("0000000100000000", "0000000000000002"), Verdict(0)})},
      TableMessage(0, 1), ChainMessage(HookNest(1, 0)));
  EXPECT_FALSE(observed.altered);
  EXPECT_EQ(observed.counters, (RuleCounters{.packets = 6, .bytes = 0x100000140}));
}

TEST(NativeTableDecoderTest, ReadsChainsInTheOrderOfTheirNames) {
  NativeTableDecoder decoder(Family::kIPv4, "guard");
  decoder.AddTable(TableMessage(0, 2));
  for (const char* name : {"output", "input"}) {
    decoder.AddChain(Join({Headers(), Attr(3, Text(name)), HookNest(3, 0xffffffff),
                           Attr(5, kFilterPolicy), Attr(7, Text("filter")), Attr(10, kBaseChain)}));
  }
  EXPECT_EQ(decoder.use(), 2U);
  const ObservedNativeTable observed = std::move(decoder).Finish();
  EXPECT_FALSE(observed.altered);
  EXPECT_EQ(observed.table,
            (NativeTable{.family = Family::kIPv4,
                         .name = "guard",
                         .chains = {NativeChain{.name = "input", .hook = 3, .priority = -1},
                                    NativeChain{.name = "output", .hook = 3, .priority = -1}}}));
}

struct AlteredRow {
  std::string name;
  Bytes table = TableMessage(0, 1);
  Bytes chain = ChainMessage(HookNest(1, 0));
};
void PrintTo(const AlteredRow& row, std::ostream* out) { *out << row.name; }

class AlteredTableTest : public ::testing::TestWithParam<AlteredRow> {};

TEST_P(AlteredTableTest, IsNoneOfOurs) {
  EXPECT_FALSE(Decode({}, AlteredRow{}.table, AlteredRow{}.chain).altered);
  EXPECT_TRUE(Decode({}, GetParam().table, GetParam().chain).altered);
}

INSTANTIATE_TEST_SUITE_P(
    Tables, AlteredTableTest,
    ::testing::Values(
        AlteredRow{.name = "Dormant", .table = TableMessage(1, 1)},
        AlteredRow{.name = "Owned", .table = TableMessage(2, 1, Attr(7, 4711))},
        AlteredRow{.name = "WithAnOwnerOnly", .table = TableMessage(0, 1, Attr(7, 4711))},
        AlteredRow{.name = "Commented", .table = TableMessage(0, 1, Attr(6, Text("hm")))},
        AlteredRow{.name = "AnEmptyTableMessage", .table = {}},
        AlteredRow{.name = "APlainChain", .chain = ChainMessage({})},
        AlteredRow{.name = "AnotherType", .chain = ChainMessage(HookNest(1, 0), "nat")},
        AlteredRow{.name = "AnotherPolicy", .chain = ChainMessage(HookNest(1, 0), "filter", 0)},
        AlteredRow{.name = "OfOneDevice",
                   .chain = ChainMessage(HookNest(0, 0, Attr(3, Text("eth0"))))},
        AlteredRow{.name = "OffloadedToHardware",
                   .chain = ChainMessage(HookNest(1, 0), "filter", kFilterPolicy, Attr(10, 3))},
        AlteredRow{
            .name = "ACommentedChain",
            .chain = ChainMessage(HookNest(1, 0), "filter", kFilterPolicy, Attr(12, Text("hm")))},
        AlteredRow{.name = "AHookWithoutAPriority", .chain = ChainMessage(Attr(4, Attr(1, 1)))},
        AlteredRow{.name = "AnEmptyChainMessage", .chain = {}}),
    [](const auto& row) { return row.param.name; });

TEST(NativeTableDecoderTest, IsAlteredByWhatIsNeitherChainNorRule) {
  NativeTableDecoder decoder(Family::kIPv4, "guard");
  decoder.AddTable(TableMessage(0, 1));
  decoder.AddOther();
  EXPECT_TRUE(std::move(decoder).Finish().altered);
}

TEST(NativeTableDecoderTest, IsAlteredByRulesOfAChainThatNobodySaw) {
  NativeTableDecoder decoder(Family::kIPv4, "guard");
  decoder.AddTable(TableMessage(0, 0));
  decoder.AddRule(RuleMessage(Family::kIPv4, kEnd));
  EXPECT_THAT(decoder.ChainsOfRules(), ElementsAre("TEST"));
  EXPECT_TRUE(std::move(decoder).Finish().altered);
}

}  // namespace
}  // namespace kipt::netlink
