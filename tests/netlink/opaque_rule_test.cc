// SPDX-License-Identifier: Apache-2.0
//
// What is known of a rule of nf_tables that no Rule has a place for.
#include <gtest/gtest.h>
#include <netinet/in.h>
// After the C library's.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include <optional>
#include <string>
#include <vector>

#include "netlink/rule_codec.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/rows.h"

namespace kipt::netlink::opaque_rule_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

OpaqueRule Opaque(const std::vector<Bytes>& expressions) {
  const absl::StatusOr<SurveyRule> rule =
      DecodeRule(RuleMessage(Family::kIPv4, expressions), DecodeFor::kSurvey);
  EXPECT_TRUE(rule.ok()) << rule.status();
  const OpaqueRule* opaque = rule.ok() ? rule->opaque() : nullptr;
  EXPECT_NE(opaque, nullptr);
  return opaque != nullptr ? *opaque : OpaqueRule();
}

struct OpaqueRow {
  std::string name;
  std::vector<Bytes> expressions;
  std::string target = "DROP";
  bool terminal = true;
  std::optional<InterfaceMatch> in_interface = {};
  bool returns = false;
  bool nfacct = false;
  std::optional<std::string> jump = {};
};

TEST(OpaqueRuleTest, KeepsWhatAnAuditAsksFor) {
  const Bytes other = XtMatch("u32", 0, {});
  const Bytes nfacct = XtMatch("nfacct", 0, Join({Text("n"), Zeros(30), Zeros(8)}));
  const Bytes log = XtTarget("LOG", 0, Join({{4, 0}, Zeros(30)}));
  const auto in = [](const std::string& name, uint32_t op = 0) { return Compare(Text(name), op); };
  const std::vector<OpaqueRow> rows = {
      {"accept", List(other, Verdict(NF_ACCEPT)), "ACCEPT"},
      {"drop", List(other, Verdict(NF_DROP))},
      {"return", List(other, Verdict(NFT_RETURN)), "RETURN", true, {}, true},
      {"return, then more", List(Verdict(NFT_RETURN), log), "RETURN", true, {}, true},
      {"jump", List(other, Verdict(NFT_JUMP, "C")), "", false, {}, false, false, "C"},
      {"mark", List(other, XtTarget("MARK", 2, XtSetMarkInfo(1, 1))), "MARK", false},
      {"masquerade", List(other, XtTarget("MASQUERADE", 0, XtMasqueradeInfo(0))), "MASQUERADE"},
      {"log", List(other, log), "LOG", false},
      {"reject", List(ExpressionBytes("reject", Join({Attr(1, 0), Attr(2, Bytes{3})}))), "REJECT"},
      {"counted by name", List(nfacct, other, Verdict(NF_DROP)), "DROP", true, {}, false, true},
      {"an interface", List(Meta(NFT_META_IIFNAME), in("eth0"), Verdict(NF_DROP)), "DROP", true,
       InterfaceMatch{"eth0", false}},
      {"not an interface", List(Meta(NFT_META_IIFNAME), in("eth0", 1), Verdict(NF_DROP)), "DROP",
       true, InterfaceMatch{"eth0", true}},
      {"two interfaces",
       List(Meta(NFT_META_IIFNAME), in("eth0"), Meta(NFT_META_IIFNAME), in("eth1"),
            Verdict(NF_DROP)),
       "DROP", true, InterfaceMatch{"eth0", false}},
      {"an output", List(Meta(NFT_META_OIFNAME), in("eth0"), Verdict(NF_DROP))},
  };
  for (const OpaqueRow& row : rows) {
    const OpaqueRule opaque = Opaque(row.expressions);
    EXPECT_EQ(opaque.target, row.target) << row.name;
    EXPECT_EQ(opaque.terminal, row.terminal) << row.name;
    EXPECT_EQ(opaque.returns, row.returns) << row.name;
    EXPECT_EQ(opaque.nfacct, row.nfacct) << row.name;
    EXPECT_EQ(opaque.in_interface, row.in_interface) << row.name;
    EXPECT_EQ(opaque.jump, row.jump) << row.name;
  }
}

TEST(OpaqueRuleTest, VerdictsThatLeaveThePacketHaveNothingToDoWithItsMark) {
  for (const int32_t code :
       std::vector<int32_t>{NF_ACCEPT, NF_DROP, NFT_CONTINUE, NFT_BREAK, NFT_RETURN}) {
    EXPECT_EQ(Opaque({XtMatch("u32", 0, {}), Verdict(code)}).marks, Marks{}) << code;
  }
  for (const int32_t code : std::vector<int32_t>{NFT_JUMP, NFT_GOTO}) {
    EXPECT_EQ(Opaque({XtMatch("u32", 0, {}), Verdict(code, "C")}).marks, Marks{}) << code;
  }
  EXPECT_NE(Opaque({XtMatch("u32", 0, {}), Verdict(NF_QUEUE)}).marks, Marks{});
}

TEST(OpaqueRuleTest, ATargetHasTheNameThatIptablesHas) {
  const auto name = [](const Target& target) {
    return TargetName({.content = Rule{.target = target}});
  };
  EXPECT_EQ(name(Drop{}), "DROP");
  EXPECT_EQ(name(Return{}), "RETURN");
  EXPECT_EQ(name(SetMark{1, 1}), "MARK");
  EXPECT_EQ(name(Masquerade{.random_fully = true}), "MASQUERADE");
  EXPECT_EQ(name(Jump{"C"}), "") << "a chain";
  EXPECT_EQ(TargetName({.content = OpaqueRule{.target = "SNAT"}}), "SNAT");
}

TEST(OpaqueRuleTest, WhatIsKnownOfARuleIsAllOfItOrItsKnownConditions) {
  const Rule rule = {.comment = "x", .target = Drop{}};
  const ObservedRule whole = {.content = rule};
  EXPECT_EQ(KnownMatches(whole), rule);
  const ObservedRule opaque = {.content = OpaqueRule{.known = rule}};
  EXPECT_EQ(KnownMatches(opaque), rule);
}

TEST(OpaqueRuleTest, TheFirstConditionOfEachKindIsKnown) {
  const OpaqueRule opaque = Opaque({XtMatch("comment", 0, XtCommentInfo("first")),
                                    XtMatch("comment", 0, XtCommentInfo("second")),
                                    XtMatch("mark", 1, XtMarkInfo(1, 1, 0)),
                                    XtMatch("mark", 1, XtMarkInfo(2, 2, 0)), Verdict(0)});
  EXPECT_EQ(opaque.known.comment, "first");
  EXPECT_EQ(opaque.known.mark, (MarkMatch{.value = 1, .mask = 1}));
  EXPECT_EQ(opaque.known.target, Target(NoTarget{}));
}

TEST(OpaqueRuleTest, MarksAreAddedEachKindToItsOwn) {
  Marks marks = {.tested = 1, .set = 2, .cleared = 4, .labels_set = ConnLabelSet().set(1)};
  marks |= Marks{.tested = 16, .set = 32, .cleared = 64, .labels_set = ConnLabelSet().set(2)};
  EXPECT_EQ(marks.tested, 17U);
  EXPECT_EQ(marks.set, 34U);
  EXPECT_EQ(marks.cleared, 68U);
  EXPECT_EQ(marks.labels_set, ConnLabelSet().set(1).set(2));
}

}  // namespace
}  // namespace kipt::netlink::opaque_rule_test
