// SPDX-License-Identifier: Apache-2.0
#include "netlink/survey.h"

#include <gtest/gtest.h>

#include <string>

namespace kipt::netlink {
namespace {

TEST(SurveyTest, MakesTheSameOfARuleWhateverItIs) {
  const SurveyRule drop = ToSurveyRule(
      Family::kIPv4,
      {.handle = 1,
       .content = Rule{.comment = "c", .mark = MarkMatch{0x8000, 0x8000}, .target = Drop{}},
       .counters = {.packets = 2, .bytes = 3}});
  EXPECT_EQ(drop.text, "-m comment --comment c -m mark --mark 0x8000/0x8000 -j DROP");
  EXPECT_EQ(drop.jump, "");
  EXPECT_FALSE(drop.unconditional);
  EXPECT_TRUE(drop.terminal);
  EXPECT_EQ(drop.marks_tested, 0x8000U);
  EXPECT_EQ(drop.marks_set, 0U);
  EXPECT_EQ(drop.counters, (RuleCounters{2, 3}));

  const SurveyRule jump = ToSurveyRule(
      Family::kIPv6, {.handle = 1, .content = Rule{.target = Jump{"X"}}, .counters = {}});
  EXPECT_EQ(jump.jump, "X");
  EXPECT_TRUE(jump.unconditional);
  EXPECT_FALSE(jump.terminal);

  const SurveyRule mark = ToSurveyRule(
      Family::kIPv4,
      {.handle = 1, .content = Rule{.target = SetMark{0x4000, 0x4000}}, .counters = {}});
  EXPECT_FALSE(mark.terminal);
  EXPECT_EQ(mark.marks_set, 0x4000U);

  const SurveyRule label = ToSurveyRule(
      Family::kIPv4, {.handle = 1,
                      .content = Rule{.conn_label = ConnLabelMatch{.label = 114, .set = true},
                                      .target = NoTarget{}},
                      .counters = {}});
  EXPECT_EQ(label.text, "-m connlabel --label \"114\" --set");
  EXPECT_EQ(label.labels_set, ConnLabelSet().set(114));
  EXPECT_FALSE(label.unconditional);
  EXPECT_FALSE(label.terminal);

  OpaqueRule opaque{.text = "-p tcp -g Y", .jump = "Y", .terminal = true};
  opaque.marks_tested = 1;
  opaque.marks_set = 2;
  opaque.labels_set.set(5);
  const SurveyRule other =
      ToSurveyRule(Family::kIPv4, {.handle = 1, .content = opaque, .counters = {}});
  EXPECT_EQ(other.text, "-p tcp -g Y");
  EXPECT_EQ(other.jump, "Y");
  EXPECT_TRUE(other.terminal);
  EXPECT_EQ(other.marks_tested, 1U);
  EXPECT_EQ(other.marks_set, 2U);
  EXPECT_EQ(other.labels_set, ConnLabelSet().set(5));
}

TEST(SurveyTest, ReadsLikeIptablesSaveWithCounters) {
  Survey survey;
  survey.mode = "nft";
  survey.tables[{"ip", "empty"}];
  SurveyChain& input = survey.tables[{"ip", "filter"}]["INPUT"];
  input.base = true;
  input.policy = "DROP";
  SurveyRule rule;
  rule.text = "-j X";
  rule.counters = {.packets = 7, .bytes = 420};
  input.rules = {rule, SurveyRule()};
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
  SurveyRule one;
  one.text = "-j X";
  SurveyRule other = one;
  other.counters.packets = 9;
  EXPECT_EQ(one, other);
  other.marks_set = 1;
  EXPECT_FALSE(one == other);
  other = one;
  other.labels_set.set(127);
  EXPECT_FALSE(one == other);
}

}  // namespace
}  // namespace kipt::netlink
