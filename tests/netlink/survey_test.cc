// SPDX-License-Identifier: Apache-2.0
#include "netlink/survey.h"

#include <gtest/gtest.h>

#include <string>

namespace kipt::netlink {
namespace {

TEST(SurveyTest, SpellsARuleByItsFamilyOrAsItWasSpelled) {
  const SurveyRule six = {
      {.content = Rule{.source = PrefixMatch{*ParsePrefix(Family::kIPv6, "fd00::/64")},
                       .target = Drop{}}}};
  EXPECT_EQ(ToString(TableId{"ip6", "filter"}, six), "-s fd00::/64 -j DROP");
  const SurveyRule four = {
      {.content = Rule{.source = PrefixMatch{*ParsePrefix(Family::kIPv4, "10.0.0.0/8")},
                       .target = Drop{}}}};
  EXPECT_EQ(ToString(TableId{"ip", "filter"}, four), "-s 10.0.0.0/8 -j DROP");
  SurveyRule other = {{.content = Rule{.comment = "c", .target = Jump{"X"}}}};
  EXPECT_EQ(ToString(TableId{"ip", "filter"}, other), "-m comment --comment c -j X");
  other.spelling = "-m comment --comment \"c\" -j X";
  EXPECT_EQ(ToString(TableId{"ip", "filter"}, other), other.spelling);
}

TEST(SurveyTest, ReadsLikeIptablesSaveWithCounters) {
  Survey survey;
  survey.mode = "nft";
  survey.tables[{"ip", "empty"}];
  SurveyChain& input = survey.tables[{"ip", "filter"}]["INPUT"];
  input.base = true;
  input.policy = "DROP";
  const SurveyRule rule = {
      {.content = Rule{.target = Jump{"X"}}, .counters = {.packets = 7, .bytes = 420}}};
  input.rules = {rule, {{.content = OpaqueRule()}}};
  survey.tables[{"ip", "filter"}]["X"];
  survey.tables[{"inet", "filter"}]["c"];
  EXPECT_EQ(ToString(survey),
            "# inet\n*filter\n:c - [0:0]\nCOMMIT\n"
            "# ip\n*empty\nCOMMIT\n"
            "# ip\n*filter\n:INPUT DROP [0:0]\n:X - [0:0]\n"
            "[7:420] -A INPUT -j X\n[0:0] -A INPUT\nCOMMIT\n");
}

TEST(SurveyTest, FindsAChainOfItsTableOnly) {
  Survey survey;
  survey.tables[{"ip", "nat"}]["X"].base = true;
  ASSERT_NE(survey.Find({"ip", "nat"}, "X"), nullptr);
  EXPECT_TRUE(survey.Find({"ip", "nat"}, "X")->base);
  EXPECT_EQ(survey.Find({"ip6", "nat"}, "X"), nullptr);
  EXPECT_EQ(survey.Find({"ip", "nat"}, "Y"), nullptr);
  EXPECT_EQ(ToString(TableId{"ip", "nat"}), "ip nat");
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
  rule.marks.set = 0;
  rule.marks.labels_set.set(127);
  other.content = rule;
  EXPECT_FALSE(one == other);
}

}  // namespace
}  // namespace kipt::netlink
