// SPDX-License-Identifier: Apache-2.0
#include "netlink/ruleset.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "netlink/survey.h"
#include "netlink/transaction.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink {
namespace {

Prefix P(Family family, const char* text) { return *ParsePrefix(family, text); }

OpaqueRule Opaque(bool unconditional, bool decides, bool terminal,
                  std::optional<std::string> jump = std::nullopt) {
  return OpaqueRule{.text = "[nft other]",
                    .jump = std::move(jump),
                    .unconditional = unconditional,
                    .decides = decides,
                    .terminal = terminal};
}

// NftProgramsTest compares those that are with iptables.
TEST(BaseChainsTest, AreNoOthers) {
  EXPECT_EQ(FindBaseChain(Table::kFilter, "PREROUTING"), nullptr);
  EXPECT_EQ(FindBaseChain(Table::kNat, "FORWARD"), nullptr);
  EXPECT_EQ(FindBaseChain(Table::kFilter, "input"), nullptr);
}

TEST(PrefixTest, ParsesAndPrints) {
  struct Row {
    std::string name;
    std::string text;
    std::string printed;
    Family family = Family::kIPv4;
  };
  const std::vector<Row> rows = {
      {"loopback", "127.0.0.0/8", "127.0.0.0/8"},
      {"bare address", "10.0.0.1", "10.0.0.1/32"},
      {"host bits are dropped", "10.255.255.255/9", "10.128.0.0/9"},
      {"no bits", "1.2.3.4/0", "0.0.0.0/0"},
      {"IPv6", "fd00:0::/64", "fd00::/64", Family::kIPv6},
      {"bare IPv6", "::1", "::1/128", Family::kIPv6},
      {"IPv6 host bits", "ffff::ffff/127", "ffff::fffe/127", Family::kIPv6},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const absl::StatusOr<Prefix> prefix = ParsePrefix(row.family, row.text);
    ASSERT_TRUE(prefix.ok()) << prefix.status();
    EXPECT_EQ(ToString(row.family, *prefix), row.printed);
  }
}

TEST(PrefixTest, RefusesWhatIsNone) {
  using namespace std::string_literals;
  const std::vector<std::string> texts = {"",        "/8",           "10.0.0.0/33", "10.0.0.0/",
                                          "10.0.0",  "10.0.0.0/+8",  "10.0.0.0/ 8", "10.0.0.0/-1",
                                          "fd00::1", "10.0.0.0/8/8", "1.2.3.4\0x"s, "a.b.c.d"};
  for (const std::string& text : texts) {
    EXPECT_THAT(ParsePrefix(Family::kIPv4, text), StatusIs(absl::StatusCode::kInvalidArgument))
        << text;
  }
  EXPECT_THAT(ParsePrefix(Family::kIPv6, "10.0.0.0/8"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ParsePrefix(Family::kIPv6, "::/129"), StatusIs(absl::StatusCode::kInvalidArgument));
}

// The texts of all others are in rule_decode_test.cc.
TEST(RuleTextTest, AllAddressesAreNoCondition) {
  const Prefix all = P(Family::kIPv4, "0.0.0.0/0");
  EXPECT_EQ(ToString(Family::kIPv4, Rule{.source = PrefixMatch{all}}), "-j DROP");
  EXPECT_EQ(ToString(Family::kIPv4, Rule{.source = PrefixMatch{all, true}}),
            "! -s 0.0.0.0/0 -j DROP");
}

TEST(QuoteForSaveTest, QuotesAsXtablesDoes) {
  EXPECT_EQ(QuoteForSave("plain-text_1"), "plain-text_1");
  EXPECT_EQ(QuoteForSave("two words"), "\"two words\"");
  EXPECT_EQ(QuoteForSave("a.b"), "\"a.b\"");
  EXPECT_EQ(QuoteForSave(""), "\"\"");
  EXPECT_EQ(QuoteForSave("a\"b\\c'd"), "\"a\\\"b\\\\c\\'d\"");
  EXPECT_EQ(QuoteForSave("gr\xc3\xbc\xc3\x9f"), "\"gr\xc3\xbc\xc3\x9f\"");
}

TEST(RuleTest, IsUnconditionalWithoutAnyRestrictingMatch) {
  EXPECT_TRUE(IsUnconditional(Rule{.comment = "only a comment"}));
  EXPECT_TRUE(IsUnconditional(Rule{.source = PrefixMatch{}}));
  EXPECT_FALSE(IsUnconditional(Rule{.source = PrefixMatch{.prefix = {}, .negated = true}}));
  EXPECT_FALSE(IsUnconditional(Rule{.destination = PrefixMatch{P(Family::kIPv4, "10.0.0.1")}}));
  EXPECT_FALSE(IsUnconditional(Rule{.mark = MarkMatch{}}));
  EXPECT_FALSE(IsUnconditional(Rule{.ct_state = CtStateMatch{kCtNew}}));
  EXPECT_FALSE(IsUnconditional(Rule{.conn_label = ConnLabelMatch{}}));
  // Not even so: there are packets without a connection.
  EXPECT_FALSE(IsUnconditional(
      Rule{.conn_label = ConnLabelMatch{.label = 1, .set = true}, .target = NoTarget{}}));
}

TEST(ObservedRuleTest, KnowsWhereAPacketGoes) {
  struct Row {
    std::string name;
    std::variant<Rule, OpaqueRule> content;
    bool unconditional_terminal = false;
    std::string jump = {};
    bool may_decide = true;
  };
  const std::vector<Row> rows = {
      {"drop", Rule{.target = Drop{}}, true},
      {"return", Rule{.target = Return{}}, true},
      {"masquerade", Rule{.target = Masquerade{}}, true},
      {"drop of some", Rule{.mark = MarkMatch{}, .target = Drop{}}},
      {"jump", Rule{.target = Jump{"X"}}, false, "X"},
      {"mark changes the packet", Rule{.target = SetMark{}}},
      {"drop of what has a label", Rule{.conn_label = ConnLabelMatch{}, .target = Drop{}}},
      {"a label changes no packet",
       Rule{.conn_label = ConnLabelMatch{.set = true}, .target = NoTarget{}},
       false,
       {},
       false},
      {"a label, and a jump", Rule{.conn_label = ConnLabelMatch{.set = true}, .target = Jump{"X"}},
       false, "X"},
      {"opaque accept", Opaque(true, true, true), true},
      {"opaque accept of some", Opaque(false, true, true)},
      {"opaque jump", Opaque(false, true, false, "Y"), false, "Y"},
      {"opaque log", Opaque(true, false, false), false, {}, false},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const ObservedRule rule{.handle = 1, .content = row.content};
    EXPECT_EQ(IsUnconditionalTerminal(rule), row.unconditional_terminal);
    EXPECT_EQ(MayDecide(rule), row.may_decide);
    const std::string* jump = JumpTarget(rule);
    EXPECT_EQ(jump != nullptr ? *jump : "", row.jump);
  }
}

const ChainId kUser{Family::kIPv4, Table::kFilter, "USER"};
const ChainId kInput{Family::kIPv4, Table::kFilter, "INPUT"};

TEST(OperationTest, PrintsAsALineOfIptablesRestore) {
  const Rule drop{.comment = "x y", .target = Drop{}};
  EXPECT_EQ(ToString(Operation(CreateChain{kUser})), ":USER - [0:0]");
  EXPECT_EQ(ToString(Operation(CreateChain{kInput})), ":INPUT ACCEPT [0:0]");
  EXPECT_EQ(ToString(Operation(AddRule{.chain = kUser, .rule = drop, .before = {}})),
            "-A USER -m comment --comment \"x y\" -j DROP");
  EXPECT_EQ(ToString(Operation(AddRule{.chain = kUser, .rule = drop, .before = 9, .number = 2})),
            "-I USER 2 -m comment --comment \"x y\" -j DROP");
  EXPECT_EQ(ToString(Operation(AddRule{.chain = kUser, .rule = drop, .before = 9})),
            "-I USER -m comment --comment \"x y\" -j DROP");
  EXPECT_EQ(ToString(Operation(DeleteRule{.chain = kUser, .handle = 9, .number = 2, .rule = drop})),
            "-D USER -m comment --comment \"x y\" -j DROP");
  EXPECT_EQ(ToString(Operation(DeleteChain{kUser})), "-X USER");
  EXPECT_EQ(ToString(Operation(WakeTable{kInput})), "nft add table ip filter");
}

// Its grouping by family and table is in restore_plan_test.cc.
TEST(RestoreTextTest, HasNoBaseChainWithAPolicyAndNothingOfNftables) {
  const Transaction transaction{
      .operations = {DeleteChain{ChainId{Family::kIPv4, Table::kFilter, "OLD"}},
                     CreateChain{kInput},
                     AddRule{.chain = kInput, .rule = Rule{}, .before = 3, .number = 1},
                     WakeTable{ChainId{Family::kIPv4, Table::kMangle, "OUTPUT"}, kTableDormant}}};
  EXPECT_EQ(ToRestoreText(transaction, Family::kIPv4),
            "*filter\n-I INPUT 1 -j DROP\n-X OLD\nCOMMIT\n");
}

TEST(SurveyTest, RulesAreEqualWhateverTheyCounted) {
  OpaqueRule rule = {.text = "-j X", .jump = "X"};
  const SurveyRule one = {{.content = rule}};
  SurveyRule other = one;
  other.counters.packets = 9;
  EXPECT_EQ(one, other);
  rule.marks.set = 1;
  other.content = rule;
  EXPECT_FALSE(one == other);
}

}  // namespace
}  // namespace kipt::netlink
