// SPDX-License-Identifier: Apache-2.0
//
// ConnLabelMarking in policy and diff.
#include <string>
#include <vector>

#include "agent/config/config.h"
#include "agent/policy/diff.h"
#include "agent/policy/ownership.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"
#include "tests/agent/policy/ipv4_plans.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

PolicyInput Labelled(Mode mode, ConnLabels labels = {}) {
  return Wanting(mode, kIPv4Only, {}, labels);
}

TEST(ConnLabelsTest, CleanupModeWithTheGateIsCleanupModeAndChainsOfLabels) {
  const netlink::Family six[] = {netlink::Family::kIPv6};
  EXPECT_EQ(::kipt::testing::ToText(DesiredRuleset(Wanting(Mode::kCleanup, six, {}, ConnLabels{}))),
            R"(# ip6
*mangle
:KUBE-IPTABLES-HINT - [0:0]
COMMIT
# ip6
*nat
:KUBELET-MARK-DROP - [0:0]
:KUBELET-MARK-MASQ - [0:0]
:KUBELET-POSTROUTING - [0:0]
-A KUBELET-MARK-DROP -m connlabel --label "115" --set
-A KUBELET-MARK-MASQ -m connlabel --label "114" --set
-A KUBELET-POSTROUTING -m connlabel --label "114" -j MASQUERADE --random-fully
-I POSTROUTING -m comment --comment "kubelet postrouting rules" -j KUBELET-POSTROUTING
COMMIT
# ip6
*filter
:KUBELET-FIREWALL - [0:0]
-A KUBELET-FIREWALL -m connlabel --label "115" -j DROP
-I INPUT -j KUBELET-FIREWALL
-I FORWARD -j KUBELET-FIREWALL
-I OUTPUT -j KUBELET-FIREWALL
COMMIT
)");
}

TEST(ConnLabelsTest, EachModeKeepsAllThatItHasWithoutThem) {
  for (const Mode mode : {Mode::kLegacy, Mode::kCleanup}) {
    const Ruleset without = DesiredRuleset(Wanting(mode, netlink::kFamilies));
    const Ruleset with = DesiredRuleset(Wanting(mode, netlink::kFamilies, {}, ConnLabels{}));
    for (const DesiredChain& chain : without.chains) {
      EXPECT_THAT(with.chains, Contains(chain)) << netlink::ToString(chain.id);
    }
    for (const DesiredJump& jump : without.jumps) {
      EXPECT_THAT(with.jumps, Contains(jump));
    }
    EXPECT_EQ(with.chains.size(), without.chains.size() + 8);
    EXPECT_EQ(with.jumps.size(), without.jumps.size() + 8);
  }
}

TEST(ConnLabelsTest, AreThoseThatAreGivenAndReachBothEnds) {
  const std::string text = ::kipt::testing::ToText(
      DesiredRuleset(Labelled(Mode::kCleanup, {.masquerade = 0, .drop = 127})));
  for (const char* line : {"-A KUBELET-MARK-DROP -m connlabel --label \"127\" --set\n",
                           "-A KUBELET-MARK-MASQ -m connlabel --label \"0\" --set\n",
                           "-A KUBELET-POSTROUTING -m connlabel --label \"0\" -j MASQUERADE",
                           "-A KUBELET-FIREWALL -m connlabel --label \"127\" -j DROP\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(ConnLabelsTest, NothingIsMadeWhereTheAgentIsOff) {
  EXPECT_EQ(::kipt::testing::ToText(DesiredRuleset(Labelled(Mode::kOff))), "");
  const auto gates = ResolveFeatureGates({1, 27}, {{.values = {{"ConnLabelMarking", true}}}});
  ASSERT_TRUE(gates.ok()) << gates.status();
  EXPECT_FALSE(LabelsFor(*gates, Mode::kOff, {}).has_value());
  EXPECT_EQ(LabelsFor(*gates, Mode::kCleanup, {.masquerade = 1, .drop = 2}),
            (ConnLabels{.masquerade = 1, .drop = 2}));
  EXPECT_FALSE(LabelsFor(*ResolveFeatureGates({1, 27}, {}), Mode::kCleanup, {}).has_value());
}

TEST(ConnLabelsTest, AreReadBackAsInPlace) {
  for (const Mode mode : {Mode::kLegacy, Mode::kCleanup}) {
    const Diff diff = ComputeDiff(Labelled(mode), Made(Labelled(mode)).snapshot());
    EXPECT_THAT(Operations(diff), IsEmpty());
    EXPECT_THAT(diff.stale, IsEmpty());
    EXPECT_THAT(diff.findings, IsEmpty());
  }
}

// Nobody else writes these chains, so what an earlier label left in them is nobody's.
TEST(ConnLabelsTest, AnotherLabelSupersedesTheOneBeforeInBothModes) {
  for (const Mode mode : {Mode::kLegacy, Mode::kCleanup}) {
    const Observed before = Made(Labelled(mode, {.masquerade = 7, .drop = 115}));
    EXPECT_THAT(Operations(ComputeDiff(Labelled(mode), before.snapshot())),
                ElementsAre("-A KUBELET-MARK-MASQ -m connlabel --label \"114\" --set",
                            "-A KUBELET-POSTROUTING -m connlabel --label \"114\" -j MASQUERADE "
                            "--random-fully",
                            "-D KUBELET-MARK-MASQ -m connlabel --label \"7\" --set",
                            "-D KUBELET-POSTROUTING -m connlabel --label \"7\" -j MASQUERADE "
                            "--random-fully"));
  }
}

TEST(ConnLabelsTest, AreStaleWhereTheGateIsOff) {
  const Diff diff = ComputeDiff(Cleanup(), Made(Labelled(Mode::kCleanup)).snapshot());
  EXPECT_THAT(diff.changes, IsEmpty());
  std::vector<std::string> chains;
  for (const ExistingItem& one : diff.stale) {
    if (one.text[0] == ':') chains.push_back(netlink::ToString(one.chain));
  }
  EXPECT_THAT(chains, ElementsAre("ip nat KUBELET-MARK-DROP", "ip nat KUBELET-MARK-MASQ",
                                  "ip nat KUBELET-POSTROUTING", "ip filter KUBELET-FIREWALL"));
}

TEST(ConnLabelsTest, GoTogetherWhereNobodyUsesThem) {
  const Retirement retirement = PlanFor(Cleanup(), Made(Labelled(Mode::kCleanup)));
  EXPECT_THAT(retirement.kept, IsEmpty());
  EXPECT_EQ(retirement.changes.size(), 4 + 4 + 4) << "chains, their rules, their jumps";
}

TEST(ConnLabelsTest, WhatAKernelLacksIsLeftOutAndSaid) {
  const RuleSupport support = {.conn_labels = false, .conn_labels_reason = "xt_connlabel: no"};
  for (const Mode mode : {Mode::kLegacy, Mode::kCleanup}) {
    const Ruleset desired = DesiredRuleset(Labelled(mode), support);
    EXPECT_THAT(::kipt::testing::ToText(desired), Not(HasSubstr("KUBELET-M")));
    EXPECT_EQ(desired.chains, DesiredRuleset(Wanting(mode, kIPv4Only)).chains);
    const Diff diff = ComputeDiff(Labelled(mode), {}, support);
    ASSERT_EQ(diff.findings.size(), 1);
    EXPECT_EQ(ConditionName(diff.findings[0].condition), "ConnLabelsImpossible");
    EXPECT_TRUE(NeedsAttention(diff.findings[0]));
    EXPECT_THAT(diff.findings[0].message, HasSubstr("xt_connlabel: no"));
    EXPECT_EQ(diff.findings[0].chain, Nat("KUBELET-MARK-MASQ"));
  }
}

TEST(ConnLabelsTest, TheAdviceIsToInstallWhatIsMissing) {
  struct Row {
    RuleSupport support;
    const char* said;
    const char* advice;
    const char* not_said;
  };
  const Row rows[] = {
      {{.conn_labels = false, .conn_labels_reason = "not in modules.dep"},
       "(not in modules.dep): rules that need them are not made, all others are. Turn",
       "or install the kernel module xt_connlabel",
       "kernel-modules-extra"},
      {{.xt = false, .reason = "nft_compat is not loaded"},
       "(nft_compat is not loaded): rules that need them are not made. Turn",
       "or install the kernel modules (kernel-modules-extra on RHEL 10)",
       "xt_connlabel"},
  };
  for (const Row& row : rows) {
    for (const Mode mode : {Mode::kLegacy, Mode::kCleanup}) {
      const Diff diff = ComputeDiff(Labelled(mode), {}, row.support);
      ASSERT_FALSE(diff.findings.empty()) << row.said;
      EXPECT_EQ(ConditionName(diff.findings[0].condition), "ConnLabelsImpossible");
      EXPECT_THAT(diff.findings[0].message, HasSubstr(row.said));
      EXPECT_THAT(diff.findings[0].message, EndsWith(row.advice));
      EXPECT_THAT(diff.findings[0].message, Not(HasSubstr(row.not_said)));
    }
  }
}

// KUBELET-FIREWALL is passed from INPUT, FORWARD and OUTPUT: such a rule cuts the node off.
TEST(ConnLabelsTest, SomebodysDropOfEverythingIsReportedAndStays) {
  const netlink::ChainId firewall = Filter("KUBELET-FIREWALL");
  struct Row {
    const char* name;
    PolicyInput desired;
    std::vector<RuleContent> rules;
    std::vector<std::string> operations;
  };
  const std::string ours = "KUBELET-FIREWALL -m connlabel --label \"115\" -j DROP";
  const std::string ours_first = "KUBELET-FIREWALL 1 -m connlabel --label \"115\" -j DROP";
  const Row rows[] = {
      {"behind ours", Labelled(Mode::kLegacy), {DropLabelled(115), BareDrop()}, {}},
      {"with a comment", Labelled(Mode::kCleanup), {DropLabelled(115), BareDrop("lockdown")}, {}},
      {"before ours",
       Labelled(Mode::kCleanup),
       {BareDrop(), DropLabelled(115)},
       {"-I " + ours_first, "-D " + ours}},
      {"the gate is off", Cleanup(), {DropLabelled(115), BareDrop()}, {}},
  };
  for (const Row& row : rows) {
    Observed observed = Made(Labelled(row.desired.mode));
    observed.Chain(firewall, row.rules);
    const Diff diff = ComputeDiff(row.desired, observed.snapshot());
    EXPECT_EQ(Operations(diff), row.operations) << row.name;
    ASSERT_EQ(diff.findings.size(), 1) << row.name;
    EXPECT_EQ(ConditionName(diff.findings[0].condition), "ForeignDropsEverything") << row.name;
    EXPECT_EQ(diff.findings[0].chain, firewall) << row.name;
    EXPECT_THAT(diff.findings[0].message, HasSubstr("-A KUBELET-FIREWALL ")) << row.name;
    EXPECT_TRUE(NeedsAttention(diff.findings[0])) << row.name;
  }
}

TEST(ConnLabelsTest, AFormOfOursIsToldFromSomebodyElses) {
  struct Row {
    const char* name;
    netlink::ChainId chain;
    netlink::Rule rule;
    std::optional<int> label;
  };
  netlink::Rule with_mark = DropLabelled(5);
  with_mark.mark = netlink::MarkMatch{.value = 1, .mask = 1};
  const Row rows[] = {
      {"Set", Nat("KUBELET-MARK-MASQ"), SetLabel(3), 3},
      {"SetInTheOther", Nat("KUBELET-MARK-DROP"), SetLabel(127), 127},
      {"Masquerade", Nat("KUBELET-POSTROUTING"), MasqueradeLabelled(0), 0},
      {"Drop", Filter("KUBELET-FIREWALL"), DropLabelled(115), 115},
      {"DropOfAMarkToo", Filter("KUBELET-FIREWALL"), with_mark, {}},
      {"AMark", Nat("KUBELET-MARK-MASQ"), SetBit(14), {}},
      {"InAnotherTable", Filter("KUBELET-MARK-MASQ"), SetLabel(3), {}},
      {"InKubeletsOwn", Nat("KUBE-MARK-MASQ"), SetLabel(3), {}},
  };
  for (const Row& row : rows) {
    const auto form = RecognizeKubeletForm(row.chain, row.rule);
    ASSERT_EQ(form.has_value(), row.label.has_value()) << row.name;
    if (!form) continue;
    EXPECT_EQ(form->label, row.label) << row.name;
    EXPECT_FALSE(form->bit.has_value()) << row.name;
    EXPECT_FALSE(form->shared_with_kube_proxy) << row.name;
    EXPECT_EQ(form->description, "label " + std::to_string(*row.label));
  }
}

TEST(ConnLabelsTest, SayWhyEachOfThemIsThere) {
  std::vector<std::string> reasons;
  const Ruleset ruleset = DesiredRuleset(Labelled(Mode::kCleanup));
  for (const DesiredChain& chain : ruleset.chains) {
    if (chain.id.name.rfind("KUBELET-", 0) != 0) continue;
    reasons.push_back(chain.id.name + ": " + chain.reason);
    for (const DesiredRule& rule : chain.rules) reasons.push_back(rule.reason);
  }
  for (const DesiredJump& jump : ruleset.jumps) {
    if (std::get<netlink::Jump>(jump.rule.target).chain.rfind("KUBELET-", 0) != 0) continue;
    reasons.push_back(jump.base_chain.name + ": " + jump.reason);
  }
  EXPECT_THAT(
      reasons,
      ElementsAre("KUBELET-MARK-DROP: kubelet's own: labels the connection for KUBELET-FIREWALL",
                  "labels the connection for KUBELET-FIREWALL",
                  "KUBELET-MARK-MASQ: kubelet's own: labels the connection for KUBELET-POSTROUTING",
                  "labels the connection for KUBELET-POSTROUTING",
                  "KUBELET-POSTROUTING: masquerades what KUBELET-MARK-MASQ labelled",
                  "masquerades labelled connections",
                  "KUBELET-FIREWALL: drops what KUBELET-MARK-DROP labelled",
                  "drops labelled connections",
                  "POSTROUTING: packets that leave this node pass KUBELET-POSTROUTING",
                  "INPUT: packets to this node pass KUBELET-FIREWALL",
                  "FORWARD: packets that this node forwards pass KUBELET-FIREWALL",
                  "OUTPUT: packets from this node pass KUBELET-FIREWALL"));
}

}  // namespace
}  // namespace kipt::agent
