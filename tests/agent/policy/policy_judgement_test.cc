// SPDX-License-Identifier: Apache-2.0
//
// The single decisions of policy, each with its nearest counterexample: tests/mutants shows which
// of them no other test covers.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/policy/claims.h"
#include "agent/policy/ownership.h"
#include "agent/policy/rule_forms.h"
#include "netlink/ruleset.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/rows.h"

namespace kipt::agent {
namespace {

using netlink::ObservedRule;

constexpr char kDropComment[] = "kubernetes firewall for dropping marked packets";

std::vector<ObservedRule> Rules(const std::vector<RuleContent>& contents) {
  std::vector<ObservedRule> rules;
  for (const RuleContent& content : contents) {
    rules.push_back({.handle = rules.size() + 1, .content = content});
  }
  return rules;
}

// "mark bit 14, bit 14, shared with kube-proxy"; "foreign".
std::string FormOf(const netlink::ChainId& chain, const netlink::Rule& rule) {
  const std::optional<KubeletForm> form = RecognizeKubeletForm(chain, rule);
  if (!form) return "foreign";
  std::string text = form->description;
  if (form->bit) absl::StrAppend(&text, ", bit ", *form->bit);
  if (form->label) absl::StrAppend(&text, ", label ", *form->label);
  return text + (form->shared_with_kube_proxy ? ", shared with kube-proxy" : "");
}

netlink::Rule TwoBits() {
  netlink::Rule rule = SetBit(14);
  rule.target = netlink::SetMark{.value = 0xc000, .mask = 0xc000};
  return rule;
}
netlink::Rule WithSource(netlink::Rule rule) {
  rule.source = netlink::PrefixMatch{.prefix = {.address = {10}, .length = 8}};
  return rule;
}
netlink::Rule WithMark(netlink::Rule rule) {
  rule.mark = netlink::MarkMatch{.value = 1, .mask = 1};
  return rule;
}

TEST(KubeletFormTest, IsDistinguishedFromForeignForms) {
  const netlink::ChainId postrouting = Nat("KUBE-POSTROUTING");
  const netlink::ChainId six_postrouting = Nat("KUBE-POSTROUTING", Family::kIPv6);
  const std::string single = "the single masquerade rule of kubelet before 1.19";
  const std::string plain = "masquerade without --random-fully (iptables before 1.6.2)";
  const std::string shared = ", shared with kube-proxy";
  const std::string other = "foreign";
  const struct {
    const char* name;
    netlink::ChainId chain;
    netlink::Rule rule;
    std::string form;
  } rows[] = {
      {"our bit", Nat("KUBE-MARK-MASQ"), SetBit(14), "mark bit 14, bit 14" + shared},
      {"bit 0", Nat("KUBE-MARK-MASQ"), SetBit(0), "mark bit 0, bit 0" + shared},
      {"bit 31", Nat("KUBE-MARK-DROP"), SetBit(31), "mark bit 31, bit 31"},
      {"two bits at once", Nat("KUBE-MARK-MASQ"), TwoBits(), other},
      {"another chain", Nat("MY-MARK"), SetBit(14), other},
      {"the same name in another table", Nat("KUBE-FIREWALL"), DropMarked(15), other},
      {"what marks where the mark is cleared", postrouting, SetBit(14), other},
      {"what drops in a marking chain", Nat("KUBE-MARK-DROP"), DropMarked(15), other},
      {"martians", Filter("KUBE-FIREWALL"), DropMartians(0),
       "keeps neighbours from 127.0.0.1 (CVE-2020-8558)" + shared},
      {"martians on IPv6", Filter("KUBE-FIREWALL", Family::kIPv6), DropMartians(0), other},
      {"drop of a mark on IPv6", Filter("KUBE-FIREWALL", Family::kIPv6), DropMarked(3),
       "mark bit 3, bit 3"},
      {"the single rule", postrouting, MasqueradeMarked(14), single + ", bit 14" + shared},
      {"the single rule on IPv6", six_postrouting, MasqueradeMarked(7),
       single + ", bit 7" + shared},
      {"the single rule in a marking chain", Nat("KUBE-MARK-MASQ"), MasqueradeMarked(14), other},
      {"the single rule in another table", Filter("KUBE-POSTROUTING"), MasqueradeMarked(14), other},
      {"the same without --random-fully", postrouting, MasqueradeMarkedPlain(7),
       single + ", without --random-fully, bit 7" + shared},
      {"the same on IPv6", six_postrouting, MasqueradeMarkedPlain(7),
       single + ", without --random-fully, bit 7" + shared},
      {"the third rule", postrouting, MasqueradeAll(0), "masquerades marked packets" + shared},
      {"the third without --random-fully", postrouting, MasqueradeAllPlain(0), plain + shared},
      {"the same on IPv6", six_postrouting, MasqueradeAllPlain(0), plain + shared},
      {"with a source", postrouting, WithSource(MasqueradeAll(0)), other},
      {"a label is set", Nat("KUBELET-MARK-MASQ"), SetLabel(3), "label 3, label 3"},
      {"the other label", Nat("KUBELET-MARK-DROP"), SetLabel(127), "label 127, label 127"},
      {"masquerade by a label", Nat("KUBELET-POSTROUTING"), MasqueradeLabelled(0),
       "label 0, label 0"},
      {"drop by a label", Filter("KUBELET-FIREWALL"), DropLabelled(115), "label 115, label 115"},
      {"drop by a label and a mark", Filter("KUBELET-FIREWALL"), WithMark(DropLabelled(5)), other},
      {"a mark for a label", Nat("KUBELET-MARK-MASQ"), SetBit(14), other},
      {"a label in another table", Filter("KUBELET-MARK-MASQ"), SetLabel(3), other},
      {"a label in kubelet's chain", Nat("KUBE-MARK-MASQ"), SetLabel(3), other},
  };
  for (const auto& row : rows) EXPECT_EQ(FormOf(row.chain, row.rule), row.form) << row.name;
}

TEST(KubeletFormTest, LosesItsMatchInItsTableAndChainOnly) {
  EXPECT_TRUE(LostItsMatch(Filter("KUBE-FIREWALL"), BareDrop(kDropComment)));
  EXPECT_FALSE(LostItsMatch(Filter("KUBE-MARK-MASQ"), BareDrop(kDropComment)));
  EXPECT_FALSE(LostItsMatch(Nat("KUBE-FIREWALL"), BareDrop(kDropComment)));
}

TEST(CompleteSetTest, IsFoundWhereTheChainWorks) {
  const netlink::ChainId postrouting = Nat("KUBE-POSTROUTING");
  const RuleContent returns = ReturnUnmarked(9);
  const RuleContent clears = ClearBit(9);
  const RuleContent masquerades = MasqueradeAll(0);
  const struct {
    const char* name;
    netlink::ChainId chain;
    std::vector<RuleContent> rules;
    std::optional<int> bit = {};
  } rows[] = {
      {"nothing", postrouting, {}},
      {"the triple", postrouting, List(returns, clears, masquerades), 9},
      {"without --random-fully", postrouting, List(returns, clears, MasqueradeAllPlain(0)), 9},
      {"the single rule", postrouting, List(MasqueradeMarked(9)), 9},
      {"the single rule elsewhere", Nat("OTHER"), List(MasqueradeMarked(9))},
      {"a label between that decides nothing", postrouting,
       List(returns, SetLabel(3), clears, masquerades), 9},
      {"a log between", postrouting, List(returns, ForeignLog(), clears, masquerades), 9},
      {"an accept between", postrouting, List(returns, ForeignAccept(), clears, masquerades), 9},
      {"below an accept of all, which is a finding", postrouting,
       List(ForeignAcceptAll(), returns, clears, masquerades), 9},
      {"out of order", postrouting, List(masquerades, returns, clears)},
      {"bits mixed", postrouting, List(returns, ClearBit(8), masquerades)},
      {"below a return of another bit", postrouting,
       List(ReturnUnmarked(4), returns, clears, masquerades)},
      {"half", postrouting, List(returns, clears)},
      {"the middle alone", postrouting, List(clears)},
      {"below a return", postrouting, List(BareReturn(), returns, clears, masquerades)},
      {"a mark", Nat("KUBE-MARK-MASQ"), List(SetBit(9)), 9},
      {"a mark that is cleared", Nat("KUBE-MARK-MASQ"), List(clears)},
      {"the drop mark", Nat("KUBE-MARK-DROP"), List(SetBit(9))},
      {"a mark in another table", Filter("KUBE-MARK-MASQ"), List(SetBit(9))},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(CompleteSetBit(row.chain, Rules(row.rules)), row.bit) << row.name;
  }
}

TEST(DamageTest, IsFoundOnlyInKubeletsChains) {
  const std::vector<ObservedRule> drop = Rules({BareDrop(kDropComment)});
  EXPECT_EQ(FindDamage(Filter("KUBE-FIREWALL"), drop).size(), 1);
  EXPECT_THAT(FindDamage(Filter("OTHER"), drop), IsEmpty());
  EXPECT_THAT(FindDamage(Nat("KUBE-FIREWALL"), drop), IsEmpty());
  const std::vector<ObservedRule> masquerade = Rules({BareReturn(), MasqueradeAll(0)});
  const std::vector<Damage> damage = FindDamage(Nat("KUBE-POSTROUTING"), masquerade);
  ASSERT_EQ(damage.size(), 2);
  EXPECT_THAT(damage[0].message, HasSubstr("returns every packet, so that none is masqueraded"));
  EXPECT_THAT(damage[1].message, HasSubstr("masquerades every packet: no mark is tested"));
  EXPECT_THAT(FindDamage(Nat("OTHER"), masquerade), IsEmpty());
  EXPECT_THAT(FindDamage(Filter("KUBE-POSTROUTING"), masquerade), IsEmpty());
}

// KUBELET-FIREWALL had no rule with a comment, so what drops everything there was never kubelet's.
TEST(DamageTest, ADropOfEverythingAmongTheLabelsIsAlwaysForeign) {
  for (const Family family : netlink::kFamilies) {
    const netlink::ChainId chain = Filter("KUBELET-FIREWALL", family);
    for (const char* comment : {"", "lockdown", kDropComment}) {
      const std::vector<Damage> damage =
          FindDamage(chain, Rules({DropLabelled(115), BareDrop(comment)}));
      ASSERT_EQ(damage.size(), 1) << comment;
      EXPECT_EQ(damage[0].condition, Condition::kForeignDropsEverything) << comment;
      EXPECT_EQ(damage[0].index, 1);
      EXPECT_FALSE(damage[0].delete_rule) << comment;
    }
    EXPECT_THAT(FindDamage(chain, Rules({DropLabelled(115), BareReturn()})), IsEmpty());
  }
  EXPECT_THAT(FindDamage(Nat("KUBELET-FIREWALL"), Rules({BareDrop()})), IsEmpty());
}

TEST(VoidedMarksTest, AreTheBitsThatKubeletsRuleAboveHasSet) {
  const netlink::Rule set_all = SettingMark(0, 0xffffffff);
  const netlink::OpaqueRule udp = {.text = "-p udp -j MARK --set-xmark 0x0/0x8000",
                                   .marks = {.cleared = 0x8000}};
  const netlink::OpaqueRule restored = {
      .text = "-j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff",
      .marks = {.set = 0xffffffff, .cleared = 0xffffffff}};
  struct Row {
    const char* name;
    std::vector<RuleContent> rules;
    std::vector<size_t> voided = {};
  };
  const std::vector<Row> rows = {
      {"nothing of others", {SetBit(15)}},
      {"all cleared", {SetBit(15), set_all}, {1}},
      {"the bit cleared", {SetBit(15), SettingMark(0, 0x8000)}, {1}},
      {"the bit flipped", {SetBit(15), SettingMark(0x8000, 0)}, {1}},
      {"another mark instead", {SetBit(15), SettingMark(0x10, 0xffffffff)}, {1}},
      {"of some packets", {SetBit(15), udp}, {1}},
      {"restored from the connection", {SetBit(15), restored}, {1}},
      {"two", {SetBit(15), udp, set_all}, {1, 2}},
      {"another bit's kubelet", {SetBit(20), SettingMark(0, 0x100000)}, {1}},
      {"above kubelet's", {set_all, udp, SetBit(15)}},
      {"no rule of kubelet's", {set_all}},
      {"another bit cleared", {SetBit(15), SettingMark(0, 0x4000)}},
      {"the bit set again", {SetBit(15), SettingMark(0x18000, 0x18000)}},
      {"no mark at all", {SetBit(15), ForeignAccept(), ForeignLog(), BareReturn()}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    for (const char* chain : {"KUBE-MARK-DROP", "KUBE-MARK-MASQ"}) {
      std::vector<size_t> voided;
      for (const Damage& damage : FindVoidedMarks(Nat(chain), Rules(row.rules))) {
        EXPECT_EQ(damage.condition, Condition::kVoidedMark);
        EXPECT_FALSE(damage.delete_rule);
        voided.push_back(damage.index);
      }
      EXPECT_EQ(voided, row.voided);
    }
    EXPECT_THAT(FindVoidedMarks(Filter("KUBE-MARK-DROP"), Rules(row.rules)), IsEmpty());
    EXPECT_THAT(FindVoidedMarks(Nat("OTHER"), Rules(row.rules)), IsEmpty());
  }
  EXPECT_EQ(FindVoidedMarks(Nat("KUBE-MARK-DROP"), Rules({SetBit(15), set_all}))[0].message,
            "\"-A KUBE-MARK-DROP -j MARK --set-xmark 0x0/0xffffffff\" clears mark 0x8000 after "
            "kubelet's rule has set it, so packets that match it are not marked: delete it");
}

TEST(DamageTest, OnlyAReturnOfWhatIsNotMarkedGuardsAMasquerade) {
  netlink::Rule returns_marked = ReturnUnmarked(14);
  returns_marked.mark->negated = false;
  netlink::Rule jumps_unmarked = ReturnUnmarked(14);
  jumps_unmarked.target = netlink::Jump{"OTHER"};
  netlink::Rule returns_some = BareReturn();
  returns_some.comment = "some";
  const netlink::ChainId chain = Nat("KUBE-POSTROUTING");
  EXPECT_THAT(FindDamage(chain, Rules({ReturnUnmarked(14), MasqueradeAll(0)})), IsEmpty());
  for (const netlink::Rule& rule : {returns_marked, jumps_unmarked, returns_some}) {
    EXPECT_EQ(FindDamage(chain, Rules({rule, MasqueradeAll(0)})).size(), 1)
        << netlink::ToString(Family::kIPv4, rule);
  }
}

TEST(ClaimsTest, AKubeletRuleIsAFormOrWhatIsLeftOfOne) {
  const netlink::ChainId firewall = Filter("KUBE-FIREWALL");
  const auto is = [](const netlink::ChainId& chain, const RuleContent& content) {
    return IsKubeletRule(chain, {.handle = 1, .content = content});
  };
  EXPECT_TRUE(is(Nat("KUBE-POSTROUTING"), BareReturn()));
  EXPECT_FALSE(is(Nat("KUBE-MARK-MASQ"), BareReturn()));
  EXPECT_FALSE(is(Nat("KUBE-POSTROUTING"), JumpTo("OTHER")));
  EXPECT_TRUE(is(firewall, BareDrop(kDropComment)));
  EXPECT_FALSE(is(firewall, BareDrop("an admin's")));
  // It is judged alone, whatever rule follows it.
  const std::vector<ObservedRule> rules = Rules({JumpTo("OTHER"), BareDrop(kDropComment)});
  EXPECT_FALSE(IsKubeletRule(firewall, rules[0]));
}

std::vector<Claim> ClaimsOn(const netlink::ChainId& chain, const Observed& observed,
                            const Dependents& dependents) {
  return ClaimsOnChain({Family::kIPv4, observed.snapshot(), dependents}, chain,
                       *observed.snapshot().Find(chain));
}

TEST(ClaimsTest, KubeProxyLeavesWhereNoBaseChainLeadsToItsServices) {
  const netlink::Rule jump = JumpTo("KUBE-SERVICES", "kubernetes service portals");
  const auto with = [](const netlink::ChainId& chain, const std::vector<RuleContent>& rules = {}) {
    return Observed().Chain(Nat("KUBE-SERVICES")).Chain(chain, rules);
  };
  const Observed leaves[] = {
      Observed().Chain(Nat("KUBE-SERVICES")),
      with(Nat("OUTPUT")).Chain(Nat("PREROUTING")),
      with(Nat("OUTPUT"), {JumpTo("CNI-X")}),
      with(Nat("OUTPUT", Family::kIPv6), {jump}),
  };
  const Observed stays[] = {
      Observed(),
      Observed().Chain(Nat("KUBE-PROXY-CANARY")),
      Observed().Chain(Filter("KUBE-SERVICES")),
      with(Nat("OUTPUT"), {jump}),
      with(Nat("PREROUTING"), {ForeignLog(), jump}),
  };
  for (const Observed& observed : leaves) {
    EXPECT_TRUE(KubeProxyLeaves(observed.snapshot(), Family::kIPv4)) << &observed - leaves;
    EXPECT_FALSE(KubeProxyLeaves(observed.snapshot(), Family::kIPv6)) << &observed - leaves;
  }
  for (const Observed& observed : stays) {
    EXPECT_FALSE(KubeProxyLeaves(observed.snapshot(), Family::kIPv4)) << &observed - stays;
  }
}

TEST(ClaimsTest, OnlyAFirewallWithTheMartianRuleKeepsMartiansOut) {
  const netlink::ChainId firewall = Filter("KUBE-FIREWALL");
  Dependents dependents;
  dependents.route_localnet.interfaces = {"eth0"};
  const auto claims_on = [&](const std::vector<RuleContent>& rules) {
    Observed observed;
    observed.Chain(firewall, rules);
    std::vector<ClaimKind> kinds;
    for (const Claim& claim : ClaimsOn(firewall, observed, dependents)) {
      kinds.push_back(claim.kind);
    }
    return kinds;
  };
  EXPECT_THAT(claims_on({DropMarked(15)}), IsEmpty());
  EXPECT_THAT(claims_on({DropMarked(15), DropMartians(0)}), ElementsAre(ClaimKind::kMartians));
  EXPECT_THAT(claims_on({ForeignLog()}), ElementsAre(ClaimKind::kForeignRule));
}

TEST(ClaimsTest, AFirewallThatDropsNoMarkIsNotKeptForWhoMarks) {
  Observed observed;
  observed.Chain(Filter("KUBE-FIREWALL"), {DropMartians(0)}).Chain(Nat("KUBE-MARK-DROP"));
  Dependents dependents;
  dependents.references = {{Nat("KUBE-MARK-DROP"), "ip nat MINE", "-A MINE -j KUBE-MARK-DROP"}};
  EXPECT_THAT(ClaimsOn(Filter("KUBE-FIREWALL"), observed, dependents), IsEmpty());
  EXPECT_FALSE(ClaimsOn(Nat("KUBE-MARK-DROP"), observed, dependents).empty());
}

TEST(ClaimsTest, WhatActsOnAMarkOrLabelNamesTheChainThatSetsIt) {
  const struct {
    const char* acts;
    RuleContent tests;
    const char* sets;
    RuleContent set;
    const char* text;
  } rows[] = {
      {"KUBE-POSTROUTING", ReturnUnmarked(14), "KUBE-MARK-MASQ", SetBit(14),
       "acts on what nat/KUBE-MARK-MASQ marks, which stays"},
      {"KUBELET-POSTROUTING", MasqueradeLabelled(114), "KUBELET-MARK-MASQ", SetLabel(114),
       "acts on what nat/KUBELET-MARK-MASQ labels, which stays"},
  };
  for (const auto& row : rows) {
    Observed observed;
    observed.Chain(Nat(row.acts), {row.tests}).Chain(Nat(row.sets), {row.set});
    Dependents dependents;
    dependents.references = {{Nat(row.sets), "ip nat MINE", "-A MINE -j X"}};
    const std::vector<Claim> claims = ClaimsOn(Nat(row.acts), observed, dependents);
    ASSERT_EQ(claims.size(), 1) << row.text;
    EXPECT_EQ(claims[0].text, row.text);
  }
}

// pkg/proxy/iptables/proxier.go and pkg/proxy/ipvs/proxier.go, releases 1.17 to 1.34.
TEST(KubeProxyChainsTest, AreTheOnesThatKubeProxyMakesInTheTablesWhereItDoes) {
  using Tables = std::set<Table>;
  const std::pair<Tables, std::vector<std::string>> rows[] = {
      {{Table::kMangle, Table::kNat, Table::kFilter}, {"KUBE-PROXY-CANARY"}},
      {{Table::kNat, Table::kFilter}, {"KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-NODE-PORT"}},
      {{Table::kFilter},
       {"KUBE-FORWARD", "KUBE-PROXY-FIREWALL", "KUBE-EXTERNAL-SERVICES",
        "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER"}},
      // KUBE-FIREWALL is kubelet's in filter.
      {{Table::kNat},
       {"KUBE-FIREWALL", "KUBE-LOAD-BALANCER", "KUBE-SVC-TCOU7JCQXEZGVUNU",
        "KUBE-SEP-LLMSFKRLGJ6BVN6Y", "KUBE-FW-IQXQGEY2NRLIYFSQ", "KUBE-XLB-IQXQGEY2NRLIYFSQ",
        "KUBE-EXT-IQXQGEY2NRLIYFSQ", "KUBE-SVL-IQXQGEY2NRLIYFSQ"}},
      {{},
       {"", "INPUT", "KUBE-MARK-MASQ", "KUBE-MARK-DROP", "KUBE-POSTROUTING", "KUBE-IPTABLES-HINT",
        "KUBE-KUBELET-CANARY", "KUBE-ROUTER-INPUT", "KUBE-SERVICES-2", "KUBE-SV",
        "cali-KUBE-SVC-X"}},
  };
  for (const auto& [expected, names] : rows) {
    for (const std::string& name : names) {
      for (const Family family : netlink::kFamilies) {
        Tables tables;
        for (const Table table : netlink::kTables) {
          if (IsKubeProxyChain({family, table, name})) tables.insert(table);
        }
        EXPECT_EQ(tables, expected) << name;
      }
    }
  }
}

}  // namespace
}  // namespace kipt::agent
