// SPDX-License-Identifier: Apache-2.0
//
// ConnLabelMarking in policy and diff.
#include <string>
#include <vector>

#include "agent/config/config.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"
#include "tests/agent/policy/ipv4_plans.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/rows.h"

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

TEST(ConnLabelsTest, NothingIsMadeWhereTheAgentIsOff) {
  EXPECT_EQ(::kipt::testing::ToText(DesiredRuleset(Labelled(Mode::kOff))), "");
  const auto gates = ResolveFeatureGates({1, 27}, {{.values = {{"ConnLabelMarking", true}}}});
  ASSERT_TRUE(gates.ok()) << gates.status();
  EXPECT_FALSE(LabelsFor(*gates, Mode::kOff, {}).has_value());
  EXPECT_EQ(LabelsFor(*gates, Mode::kCleanup, {.masquerade = 1, .drop = 2}),
            (ConnLabels{.masquerade = 1, .drop = 2}));
  EXPECT_FALSE(LabelsFor(*ResolveFeatureGates({1, 27}, {}), Mode::kCleanup, {}).has_value());
}

// No other program writes these chains, so rules with an earlier label are leftovers of ours.
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
    EXPECT_EQ(ComputeDiff(Labelled(mode), Made(Labelled(mode)).snapshot()).changes.size(), 0);
  }
}

TEST(ConnLabelsTest, WhatAKernelLacksIsLeftOutAndReportedWithWhatToInstall) {
  struct Row {
    RuleSupport support;
    const char* reported;
    const char* advice;
    const char* not_reported;
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
    SCOPED_TRACE(row.reported);
    for (const Mode mode : {Mode::kLegacy, Mode::kCleanup}) {
      EXPECT_EQ(DesiredRuleset(Labelled(mode), row.support).chains,
                DesiredRuleset(Wanting(mode, kIPv4Only), row.support).chains);
      const Diff diff = ComputeDiff(Labelled(mode), {}, row.support);
      ASSERT_FALSE(diff.findings.empty());
      EXPECT_EQ(ConditionName(diff.findings[0].condition), "ConnLabelsImpossible");
      EXPECT_EQ(diff.findings[0].chain, Nat("KUBELET-MARK-MASQ"));
      EXPECT_TRUE(NeedsAttention(diff.findings[0]));
      EXPECT_THAT(diff.findings[0].message, AllOf(HasSubstr(row.reported), EndsWith(row.advice),
                                                  Not(HasSubstr(row.not_reported))));
    }
  }
}

// INPUT, FORWARD and OUTPUT jump to KUBELET-FIREWALL, so such a rule cuts the node off.
TEST(ConnLabelsTest, AForeignDropOfEverythingIsReportedAndStays) {
  const netlink::ChainId firewall = Filter("KUBELET-FIREWALL");
  struct Row {
    const char* name;
    PolicyInput desired;
    std::vector<RuleContent> rules;
    std::vector<std::string> operations = {};
  };
  const std::string ours = " -m connlabel --label \"115\" -j DROP";
  const RuleContent drop = DropLabelled(115);
  const Row rows[] = {
      {"after ours", Labelled(Mode::kLegacy), List(drop, BareDrop())},
      {"with a comment", Labelled(Mode::kCleanup), List(drop, BareDrop("lockdown"))},
      {"before ours", Labelled(Mode::kCleanup), List(BareDrop(), drop),
       List("-I KUBELET-FIREWALL 1" + ours, "-D KUBELET-FIREWALL" + ours)},
      {"the gate is off", Cleanup(), List(drop, BareDrop())},
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

}  // namespace
}  // namespace kipt::agent
