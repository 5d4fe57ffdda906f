// SPDX-License-Identifier: Apache-2.0
//
// Who keeps the chains of ConnLabelMarking from going once the gate is off.
#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "agent/policy/retirement.h"
#include "agent/policy/rule_forms.h"
#include "tests/agent/policy/ipv4_plans.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

constexpr Mode kModes[] = {Mode::kLegacy, Mode::kCleanup};

using Kept = std::map<std::string, std::set<std::string>>;

Kept KeptBy(const Retirement& retirement) {
  Kept kept;
  for (const Claimed& one : retirement.kept) {
    for (const Claim& claim : one.claims) {
      EXPECT_NE(claim.text, "");
      kept[one.standing.chain.name].insert(std::string(ClaimKindName(claim.kind)));
    }
  }
  return kept;
}

std::set<std::string> ChainsGone(const Retirement& retirement) {
  std::set<std::string> gone;
  for (const Change& change : retirement.changes) {
    if (!std::holds_alternative<netlink::DeleteChain>(change.operation)) continue;
    gone.insert(netlink::ChainOf(change.operation).name);
  }
  return gone;
}

Marking Setter(size_t label) {
  return {.from = "ip mangle MINE",
          .rule = "-A MINE -m connlabel --set",
          .labels = netlink::ConnLabelSet().set(label)};
}

struct LabelClaimRow {
  std::string name;
  // In the family that is planned for.
  std::function<void(Family, Observed&, Dependents&)> prepare;
  Kept kept = {};
};

// The other chains than those kept go, whatever the mode and family.

TEST(LabelClaimTest, KeepsWhatIsUsedAndWhatActsOnIt) {
  const LabelClaimRow rows[] = {
      {"Nobody", [](Family, Observed&, Dependents&) {}},
      {"AForeignJumpToMasquerade",
       [](Family family, Observed&, Dependents& dependents) {
         dependents.references = {
             {Nat("KUBELET-MARK-MASQ", family), "ip nat MINE", "-A MINE -j X"}};
       },
       {{"KUBELET-MARK-MASQ", {"foreignJump"}}, {"KUBELET-POSTROUTING", {"labelledPackets"}}}},
      {"AForeignJumpToDrop",
       [](Family family, Observed&, Dependents& dependents) {
         dependents.references = {
             {Nat("KUBELET-MARK-DROP", family), "ip nat MINE", "-A MINE -j X"}};
       },
       {{"KUBELET-MARK-DROP", {"foreignJump"}}, {"KUBELET-FIREWALL", {"labelledPackets"}}}},
      {"AJumpInTheOtherFamily",
       [](Family family, Observed&, Dependents& dependents) {
         const Family other = family == Family::kIPv4 ? Family::kIPv6 : Family::kIPv4;
         dependents.references = {{Nat("KUBELET-MARK-DROP", other), "nat MINE", "-A MINE -j X"}};
       }},
      {"AForeignJumpToTheFirewall",
       [](Family family, Observed&, Dependents& dependents) {
         dependents.references = {
             {Filter("KUBELET-FIREWALL", family), "filter MINE", "-A MINE -j X"}};
       },
       {{"KUBELET-FIREWALL", {"foreignJump"}}}},
      {"AForeignRuleInIt",
       [](Family family, Observed& observed, Dependents&) {
         observed.Chain(Nat("KUBELET-MARK-MASQ", family), {SetLabel(114), ForeignLog()});
       },
       {{"KUBELET-MARK-MASQ", {"foreignRule"}}, {"KUBELET-POSTROUTING", {"labelledPackets"}}}},
      {"ASetterOfTheMasqueradeLabel",
       [](Family, Observed&, Dependents& dependents) { dependents.label_setters = {Setter(114)}; },
       {{"KUBELET-POSTROUTING", {"labelledPackets"}}}},
      {"ASetterOfTheDropLabel",
       [](Family, Observed&, Dependents& dependents) { dependents.label_setters = {Setter(115)}; },
       {{"KUBELET-FIREWALL", {"labelledPackets"}}}},
      {"ASetterOfAnotherLabel",
       [](Family, Observed&, Dependents& dependents) {
         dependents.label_setters = {Setter(113), Setter(116), Setter(0)};
       }},
      {"ASetterOfAnotherFamily",
       [](Family family, Observed&, Dependents& dependents) {
         dependents.label_setters = {Setter(114)};
         dependents.label_setters[0].ipv4 = family != Family::kIPv4;
         dependents.label_setters[0].ipv6 = family != Family::kIPv6;
       }},
      {"ASetterOfTheLabelThatStands",
       [](Family family, Observed& observed, Dependents& dependents) {
         observed.Chain(Filter("KUBELET-FIREWALL", family), {DropLabelled(7)});
         dependents.label_setters = {Setter(7), Setter(115)};
       },
       {{"KUBELET-FIREWALL", {"labelledPackets"}}}},
      {"ASetterOfMarks",
       [](Family, Observed&, Dependents& dependents) {
         dependents.mark_setters = {{.from = "ip mangle X", .rule = "-j MARK", .bits = 0xffff0000}};
       }},
      {"ACniConfigurationThatNamesIt",
       [](Family, Observed&, Dependents& dependents) {
         dependents.cni.references = {{"/c.conflist", "portmap", "KUBELET-MARK-MASQ"}};
       },
       {{"KUBELET-MARK-MASQ", {"cniConfig"}}, {"KUBELET-POSTROUTING", {"labelledPackets"}}}},
      {"ACniConfigurationThatNamesKubeletsOther",
       [](Family, Observed&, Dependents& dependents) {
         dependents.cni.references = {{"/c.conflist", "portmap", "KUBE-MARK-MASQ"}};
       }},
      {"KubeProxy", [](Family family, Observed& observed,
                       Dependents&) { observed.Chain(Nat("KUBE-SERVICES", family)); }},
  };
  for (const LabelClaimRow& row : rows) {
    for (const Mode mode : kModes) {
      for (const Family family : netlink::kFamilies) {
        SCOPED_TRACE(absl::StrCat(ModeName(mode), " ", netlink::FamilyName(family)));
        const PolicyInput with = Wanting(mode, {&family, 1}, {}, ConnLabels{});
        Observed observed = Made(with);
        Dependents dependents;
        row.prepare(family, observed, dependents);
        const PolicyInput without = Wanting(mode, {&family, 1}, {});
        const Retirement retirement = PlanFor(without, observed, dependents);
        EXPECT_EQ(KeptBy(retirement), row.kept);
        std::set<std::string> expected = {"KUBELET-MARK-MASQ", "KUBELET-MARK-DROP",
                                          "KUBELET-POSTROUTING", "KUBELET-FIREWALL"};
        for (const auto& [chain, claims] : row.kept) expected.erase(chain);
        EXPECT_EQ(ChainsGone(retirement), expected);
        for (const Change& change : retirement.changes) {
          const auto* rule = std::get_if<netlink::DeleteRule>(&change.operation);
          if (rule == nullptr) {
            EXPECT_EQ(change.reason, "stale: ConnLabelMarking is off, and unused");
            continue;
          }
          // The jumps to what stays, stay.
          const auto* jump = std::get_if<netlink::Jump>(&rule->rule.target);
          if (jump == nullptr) continue;
          EXPECT_EQ(expected.count(jump->chain), 1U) << jump->chain;
        }
      }
    }
  }
}

TEST(LabelClaimsTest, WhatIsWantedIsNotRetired) {
  for (const Mode mode : kModes) {
    const PolicyInput with = Wanting(mode, netlink::kFamilies, {}, ConnLabels{});
    EXPECT_EQ(PlanFor(with, Made(with)).changes.size(), 0U) << ModeName(mode);
  }
}

TEST(LabelClaimsTest, WhatIsStaleSaysWhichGateIsOff) {
  const PolicyInput with = Wanting(Mode::kCleanup, kIPv4Only, {}, ConnLabels{});
  Observed observed = Made(with);
  observed.Chain(Nat("KUBE-SERVICES"));
  const Diff diff = ComputeDiff(Cleanup(), observed.snapshot());
  int told = 0;
  for (const ExistingItem& one : diff.stale) {
    if (one.reason == "stays with its chain") continue;
    EXPECT_EQ(one.reason.find("stale, kept: ConnLabelMarking is off"), 0U)
        << one.text << ": " << one.reason;
    ++told;
  }
  EXPECT_EQ(told, 4 + 4) << "chains and jumps";
  RuleSupport support;
  support.conn_labels = false;
  const Diff impossible = ComputeDiff(with, observed.snapshot(), support);
  ASSERT_FALSE(impossible.stale.empty());
  EXPECT_EQ(impossible.stale[0].reason.find("stale, kept: this node has no connection labels"), 0U)
      << impossible.stale[0].reason;
}

std::map<std::string, std::string> FirstClaims(const Retirement& retirement) {
  std::map<std::string, std::string> texts;
  for (const Claimed& one : retirement.kept) {
    texts[one.standing.chain.name] = one.claims.front().text;
  }
  return texts;
}

TEST(LabelClaimsTest, NameTheLabelsThatOthersSetUpToBothEnds) {
  const ConnLabels ends = {.masquerade = 0, .drop = 127};
  const Observed observed = Made(Wanting(Mode::kCleanup, kIPv4Only, {}, ends));
  Dependents dependents;
  dependents.label_setters = {Setter(0)};
  dependents.label_setters[0].labels = netlink::AllConnLabels();
  EXPECT_EQ(FirstClaims(PlanFor(Cleanup(), observed, dependents)),
            (std::map<std::string, std::string>{
                {"KUBELET-POSTROUTING",
                 "acts on label 0, which ip mangle MINE may set: -A MINE -m connlabel --set"},
                {"KUBELET-FIREWALL",
                 "acts on label 127, which ip mangle MINE may set: -A MINE -m connlabel --set"}}));
}

TEST(LabelClaimsTest, AreOfLabelsThatAreTestedNotOfThoseThatAreSet) {
  Observed observed = Made(Wanting(Mode::kCleanup, kIPv4Only, {}, ConnLabels{}));
  observed.Chain(Nat("KUBELET-POSTROUTING"),
                 {MasqueradeLabelled(114), SetLabel(3), MasqueradeAll(0)});
  Dependents dependents;
  dependents.label_setters = {Setter(3), Setter(0)};
  EXPECT_EQ(KeptBy(PlanFor(Cleanup(), observed, dependents)),
            (Kept{{"KUBELET-POSTROUTING", {"foreignRule"}}}));
}

TEST(LabelClaimsTest, ACniConfigurationClaimsEitherOfTheChainsThatLabel) {
  for (const std::string chain : {"KUBELET-MARK-MASQ", "KUBELET-MARK-DROP"}) {
    const Observed observed = Made(Wanting(Mode::kCleanup, kIPv4Only, {}, ConnLabels{}));
    Dependents dependents;
    dependents.cni.references = {{"/etc/cni/net.d/1.conflist", "portmap", chain}};
    EXPECT_EQ(KeptBy(PlanFor(Cleanup(), observed, dependents)).at(chain),
              std::set<std::string>{"cniConfig"});
  }
}

}  // namespace
}  // namespace kipt::agent
