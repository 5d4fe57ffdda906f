// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/dependents.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "agent/policy/rule_forms.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/rows.h"
#include "tests/support/surveyed.h"

namespace kipt::agent {
namespace {

using netlink::SurveyRule;
using netlink::TableId;

const TableId kIpNat = {"ip", "nat"};
const TableId kIpFilter = {"ip", "filter"};

SurveyRule Jump(const std::string& to, const std::string& before = "") {
  return Surveyed(before + "-j " + to, to);
}
SurveyRule Mark(const std::string& text, uint32_t bits) { return Surveyed(text, bits, {}); }

SurveyRule Label(const std::string& text, const netlink::ConnLabelSet& labels) {
  return Surveyed(text, 0, labels);
}
SurveyRule Label(size_t label) {
  return Label("-m connlabel --label \"" + std::to_string(label) + "\" --set",
               netlink::ConnLabelSet().set(label));
}

class DependentsTest : public ::testing::Test {
 protected:
  Dependents Found() { return collector_.Finish({}, {}); }

  DependentsCollector collector_;
  const netlink::SurveyFilter see_ = collector_.ManagedMode();
};

constexpr uint32_t kAll = 0xffffffff;
const TableId kArpFilter = {"arp", "filter"};
const TableId kInetMine = {"inet", "mine"};
const TableId kIpKubeProxy = {"ip", "kube-proxy"};
const TableId kIpMangle = {"ip", "mangle"};

TEST_F(DependentsTest, AreRulesOfOthersThatJumpToAChainOfKubelets) {
  EXPECT_FALSE(see_(kIpNat, "CNI-DN-1", Jump("KUBE-MARK-MASQ", "-s 10.0.0.0/8 ")));
  see_(kIpNat, "KUBE-SVC-X", Jump("KUBE-MARK-MASQ"));
  see_(kIpNat, "MINE", Jump("OTHER"));
  see_({"inet", "nat"}, "MINE", Jump("KUBE-MARK-MASQ"));
  const Dependents found = Found();
  ASSERT_THAT(found.references, SizeIs(2));
  EXPECT_EQ(found.references[0], (Reference{Nat("KUBE-MARK-MASQ"), "ip nat CNI-DN-1",
                                            "-A CNI-DN-1 -s 10.0.0.0/8 -j KUBE-MARK-MASQ", false}));
  EXPECT_TRUE(found.references[1].kube_proxy);
  EXPECT_THAT(found.reference_counts, ElementsAre(std::pair(Nat("KUBE-MARK-MASQ"), 1U)));
}

TEST_F(DependentsTest, AreNotKubeletsOwnJumps) {
  see_(kIpFilter, "INPUT", Jump("KUBE-FIREWALL"));
  see_(kIpNat, "POSTROUTING",
       Jump("KUBE-POSTROUTING", "-m comment --comment \"kubernetes postrouting rules\" "));
  for (const char* base : {"INPUT", "FORWARD", "OUTPUT"}) {
    see_(kIpFilter, base, Jump("KUBELET-FIREWALL"));
  }
  see_({"ip6", "nat"}, "POSTROUTING",
       Jump("KUBELET-POSTROUTING", "-m comment --comment \"kubelet postrouting rules\" "));
  EXPECT_EQ(Found(), Dependents{});
  see_(kIpNat, "KUBE-LOAD-BALANCER", Jump("KUBE-FIREWALL"));  // IPVS mode's own, of nat
  // Jumps from another chain, or with another match, are foreign.
  see_(kIpFilter, "FORWARD", Jump("KUBE-FIREWALL"));
  see_(kIpFilter, "INPUT", Jump("KUBE-FIREWALL", "-i eth0 "));
  see_(kIpFilter, "MINE", Jump("KUBELET-FIREWALL"));
  see_(kIpNat, "MINE", Jump("KUBELET-MARK-MASQ"));
  EXPECT_THAT(Found().reference_counts, UnorderedElementsAre(Pair(Filter("KUBE-FIREWALL"), 2U),
                                                             Pair(Filter("KUBELET-FIREWALL"), 1U),
                                                             Pair(Nat("KUBELET-MARK-MASQ"), 1U)));
}

TEST_F(DependentsTest, CountAllAndKeepAFew) {
  for (int i = 0; i < 1000; ++i) {
    see_(kIpNat, "CNI-DN-" + std::to_string(i), Jump("KUBE-MARK-MASQ"));
    see_(kIpNat, "KUBE-SEP-" + std::to_string(i), Jump("KUBE-MARK-MASQ"));
  }
  const Dependents found = Found();
  EXPECT_THAT(found.references, SizeIs(8));
  EXPECT_THAT(found.reference_counts, ElementsAre(std::pair(Nat("KUBE-MARK-MASQ"), 1000U)));
}

// Another setter of known bits or labels, for known packets, adds no information.
TEST_F(DependentsTest, KeepASetterOnlyForWhatNoneBeforeItSets) {
  const TableId ip = {"ip", "mangle"};
  const TableId ip6 = {"ip6", "mangle"};
  struct Row {
    const char* name;
    SurveyRule first;
    TableId table;
    SurveyRule second;
    size_t setters = 2;
  };
  const SurveyRule marks = Mark("-j MARK", 0x6);
  const SurveyRule labels = Label("x", netlink::ConnLabelSet().set(1).set(2));
  const Row rows[] = {
      {"the same bits", marks, ip, marks, 1},
      {"fewer bits", marks, ip, Mark("-j MARK", 0x2), 1},
      {"more bits", marks, ip, Mark("-j MARK", 0xE)},
      {"other bits", marks, ip, Mark("-j MARK", 0x8)},
      {"the other family", marks, ip6, marks},
      {"both families", marks, kInetMine, marks},
      {"fewer labels", labels, ip, Label(2), 1},
      {"other labels", labels, ip, Label(3)},
      {"labels in the other family", labels, ip6, Label(2)},
  };
  for (const Row& row : rows) {
    DependentsCollector collector;
    const netlink::SurveyFilter see = collector.ManagedMode();
    see(ip, "FIRST", row.first);
    see(row.table, "SECOND", row.second);
    const Dependents found = collector.Finish({}, {});
    EXPECT_EQ(found.mark_setters.size() + found.label_setters.size(), row.setters) << row.name;
  }
  see_(ip6, "FIRST", marks);
  see_(kInetMine, "SECOND", marks);
  EXPECT_THAT(Found().mark_setters, SizeIs(2)) << "IPv4 is new";
  see_(ip, "THIRD", marks);
  see_(ip6, "FOURTH", marks);
  EXPECT_THAT(Found().mark_setters, SizeIs(2)) << "both are known";
}

// "0x8000, 114, 115": the bits and labels that a collector knows of.
std::string SetIn(const Dependents& found) {
  uint32_t bits = 0;
  netlink::ConnLabelSet labels;
  for (const Marking& setter : found.mark_setters) bits |= setter.bits;
  for (const Marking& setter : found.label_setters) {
    EXPECT_EQ(setter.bits, 0U);
    labels |= setter.labels;
  }
  std::vector<std::string> all;
  if (bits != 0) all.push_back(absl::StrFormat("0x%x", bits));
  for (size_t label = 0; label < labels.size(); ++label) {
    if (labels.test(label)) all.push_back(absl::StrCat(label));
  }
  return absl::StrJoin(all, ", ");
}

TEST_F(DependentsTest, AreSetByAMarkingChainOfTheOtherModeThatIsUsed) {
  const CniConfigs none;
  const CniConfigs unreadable = {.problems = {"unreadable"}};
  const auto named = [](const char* chain) {
    return CniConfigs{.references = {{"f", "portmap", chain}}};
  };
  struct Row {
    const char* name;
    const char* from = "";
    const char* chain = "";  // jumped to; none if empty
    const char* set = "";
    CniConfigs cni = {};
    TableId table = kIpNat;
    std::set<TableId> maps = {};        // tables with maps that jump to chains
    std::vector<SurveyRule> base = {};  // of nat/POSTROUTING; nat/KUBE-POSTROUTING has a whole set
    int bit = 14;                       // of that set
  };
  const SurveyRule way = {{.content = JumpTo("KUBE-POSTROUTING", "kubernetes postrouting rules")}};
  const Row rows[] = {
      {"no user"},
      {"perhaps a map", "", "", "0xc000, 114, 115", {}, kIpNat, {kIpNat}},
      {"a map of another table", "", "", "", {}, kIpNat, {kIpMangle, {"ip6", "nat"}}},
      {"a jump", "PREROUTING", "KUBE-MARK-DROP", "0x8000"},
      {"a user chain's jump", "MINE", "KUBE-MARK-MASQ", "0x4000", {}, kIpNat, {}, {way}},
      {"kube-proxy, which brings what acts on it", "KUBE-SVC-X", "KUBE-MARK-MASQ", "", none, kIpNat,
       List(), List(Surveyed("-j LOG"), way, Surveyed("-j ACCEPT"))},
      {"kube-proxy, of which other packets than that are accepted before", "KUBE-SVC-X",
       "KUBE-MARK-MASQ", "0x4000", none, kIpNat, List(), List(Surveyed("-o eth1 -j ACCEPT"), way)},
      {"kube-proxy, whose jump was flushed", "KUBE-SVC-X", "KUBE-MARK-MASQ", "0x4000"},
      {"kube-proxy, which masquerades by another bit", "KUBE-SVC-X", "KUBE-MARK-MASQ", "0x4000",
       none, kIpNat, List(), List(way), 15},
      {"kube-proxy, which does not", "KUBE-SVC-X", "KUBE-MARK-DROP", "0x8000", none, kIpNat, List(),
       List(way), 15},
      {"a CNI plugin", "", "", "0x4000", named("KUBE-MARK-MASQ")},
      {"perhaps a CNI plugin", "", "", "0xc000, 114, 115", unreadable},
      {"a jump to a label", "MINE", "KUBELET-MARK-DROP", "115"},
      {"a jump to the other label", "MINE", "KUBELET-MARK-MASQ", "114"},
      {"a jump in a table of no iptables", "MINE", "KUBELET-MARK-DROP", "", {}, kInetMine},
      {"a jump to a chain that sets none", "MINE", "KUBELET-POSTROUTING"},
      {"a CNI plugin for a label", "", "", "114", named("KUBELET-MARK-MASQ")},
  };
  for (const Row& row : rows) {
    DependentsCollector collector;
    const netlink::SurveyFilter see = collector.OtherMode();
    see(kIpNat, "KUBE-MARK-DROP", Mark("-j MARK --set-xmark 0x8000/0x8000", 0x8000));
    see(kIpNat, "KUBE-MARK-MASQ", Mark("-j MARK --set-xmark 0x4000/0x4000", 0x4000));
    see(kIpNat, "KUBELET-MARK-MASQ", Label(114));
    see(kIpNat, "KUBELET-MARK-DROP", Label(115));
    if (*row.chain != '\0') see(row.table, row.from, Jump(row.chain));
    EXPECT_TRUE(see(kIpNat, "POSTROUTING", way)) << "kept for NoteOtherMode";
    collector.NoteOtherMode({.tables = {{kIpNat, {{"POSTROUTING", {.rules = {way}}}}}}});
    netlink::SurveyChains nat = {{"POSTROUTING", {.base = true, .rules = row.base}}};
    for (const netlink::Rule& rule :
         {ReturnUnmarked(row.bit), ClearBit(row.bit), MasqueradeAll(0)}) {
      nat["KUBE-POSTROUTING"].rules.push_back({{.content = rule}});
    }
    collector.NoteOtherMode({.tables = {{kIpNat, nat}}, .jumping_maps = row.maps});
    EXPECT_EQ(SetIn(collector.Finish(row.cni, {})), row.set) << row.name;
  }
}

TEST_F(DependentsTest, ReferToEveryChainThatAMapOfTheManagedModeMayJumpTo) {
  collector_.NoteManagedMode({.jumping_maps = {{"ip6", "nat"}, {"inet", "nat"}}});
  std::set<netlink::ChainId> chains;
  for (const Reference& one : Found().references) chains.insert(one.chain);
  EXPECT_THAT(chains, SizeIs(7));
  EXPECT_THAT(chains, Contains(Nat("KUBE-MARK-DROP", Family::kIPv6)));
}

TEST_F(DependentsTest, TheFirstRuleOfOthersIsAnIptablesRuleWhateverTracksConnections) {
  see_({"ip", "mine"}, "c", Surveyed("-m conntrack --ctstate NEW -j LOG"));
  for (const char* rule : {"-j DROP", "-j ACCEPT"}) see_(kIpFilter, "INPUT", Surveyed(rule));
  EXPECT_EQ(Found().rule_of_others, "ip filter INPUT: -A INPUT -j DROP");
}

TEST(RouteLocalnetTest, NamesTheInterfacesAndWhatCouldNotBeRead) {
  EXPECT_EQ(ToString(RouteLocalnet{{"eth0", "eth1"}}), "route_localnet is 1 for eth0, eth1");
  EXPECT_EQ(ToString(RouteLocalnet{{}, "no /proc"}), "route_localnet may be 1: no /proc");
  EXPECT_EQ(ToString(RouteLocalnet{{"all"}, "no"}),
            "route_localnet is 1 for all, and may be for others: no");
}

// In IPv4, in IPv6.
TEST_F(DependentsTest, AreChainsOfTypeNatWhereNoRuleOfOthersTracksConnections) {
  const SurveyRule no_other;
  const TableId ip6_nat = {"ip6", "nat"};
  const struct {
    const char* name;
    TableId table;
    bool nat;
    const char* chain;
    SurveyRule rule;
    SurveyRule other = {};  // of inet
    std::string ipv4 = "";
    std::string ipv6 = "";
  } rows[] = {
      {"a mark", kIpNat, true, "MINE", Surveyed("-j MARK --set-xmark 0x1/0x1"), no_other,
       "ip nat MINE: -A MINE -j MARK --set-xmark 0x1/0x1"},
      {"a jump of IPv6", ip6_nat, true, "PREROUTING",
       Surveyed("-j KUBE-MARK-DROP", "KUBE-MARK-DROP"), no_other, "",
       "ip6 nat PREROUTING: -A PREROUTING -j KUBE-MARK-DROP"},
      {"a native chain", kInetMine, true, "c", Surveyed("-j DROP"), no_other,
       "inet mine c: -A c -j DROP", "inet mine c: -A c -j DROP"},
      {"a chain of another type", kInetMine, false, "c", Surveyed("-j DROP")},
      {"a rule that tracks", kIpNat, true, "MINE", Surveyed("-j SNAT --to-source 10.0.0.1")},
      {"another that tracks", kIpNat, true, "MINE", Surveyed("-j ACCEPT"),
       Surveyed("-m conntrack --ctstate NEW -j LOG")},
      {"kubelet's", kIpNat, true, "POSTROUTING",
       Surveyed("-m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING",
                "KUBE-POSTROUTING")},
      {"a rule of kubelet's chain", kIpNat, true, "KUBE-MARK-MASQ", Surveyed("-j ACCEPT")},
  };
  for (const auto& row : rows) {
    DependentsCollector collector;
    const netlink::SurveyFilter see = collector.ManagedMode();
    see({"inet", "other"}, "INPUT", row.other);
    see(row.table, row.chain, row.rule);
    if (!row.ipv4.empty()) see(row.table, row.chain, Surveyed("-j LOG"));
    netlink::Survey survey;
    survey.tables[row.table]["base"] = {.base = true, .hook = netlink::ChainHook{.nat = row.nat}};
    collector.NoteManagedMode(survey);
    std::map<Family, std::string> found = collector.Finish({}, {}).untracked;
    EXPECT_EQ(found[Family::kIPv4], row.ipv4) << row.name;
    EXPECT_EQ(found[Family::kIPv6], row.ipv6) << row.name;
  }
}

// A jump to them is a claim already.
TEST_F(DependentsTest, AreNotSetByTheMarkingChainsOfTheManagedModeWhateverUsesThem) {
  see_(kIpNat, "KUBE-MARK-MASQ", Mark("-j MARK --set-xmark 0x4000/0x4000", 0x4000));
  see_(kIpNat, "KUBELET-MARK-MASQ", Label(114));
  const Dependents found = collector_.Finish({.problems = {"unreadable"}}, {});
  EXPECT_THAT(found.mark_setters, IsEmpty());
  EXPECT_THAT(found.label_setters, IsEmpty());
}

TEST_F(DependentsTest, ARuleThatSetsAMarkAndALabelIsASetterOfBoth) {
  const std::string text = "-m connlabel --label \"5\" --set -j MARK --set-xmark 0x4000/0x4000";
  const auto label = netlink::ConnLabelSet().set(5);
  see_(kIpNat, "MINE", Surveyed(text, 0x4000, label));
  see_(kIpNat, "MARKS", Mark("-j MARK --set-xmark 0x10000/0x10000", 0x10000));
  const Dependents found = Found();
  ASSERT_THAT(found.mark_setters, SizeIs(2));
  ASSERT_THAT(found.label_setters, SizeIs(1));
  EXPECT_EQ(found.label_setters[0].from, "ip nat MINE");
  EXPECT_EQ(found.label_setters[0].bits, 0U);
  EXPECT_EQ(found.label_setters[0].labels, label);
}

TEST_F(DependentsTest, AreSorted) {
  see_(kIpNat, "SECOND", Jump("KUBE-MARK-MASQ"));
  see_(kIpNat, "FIRST", Jump("KUBE-MARK-MASQ"));
  see_({"ip", "mangle"}, "SECOND", Mark("-j MARK", 2));
  see_({"ip", "mangle"}, "FIRST", Mark("-j MARK", 1));
  see_({"ip", "mangle"}, "SECOND", Label(2));
  see_({"ip", "mangle"}, "FIRST", Label(1));
  const Dependents found = Found();
  ASSERT_THAT(found.references, SizeIs(2));
  EXPECT_EQ(found.references[0].from, "ip nat FIRST");
  ASSERT_THAT(found.mark_setters, SizeIs(2));
  EXPECT_EQ(found.mark_setters[0].from, "ip mangle FIRST");
  ASSERT_THAT(found.label_setters, SizeIs(2));
  EXPECT_EQ(found.label_setters[0].from, "ip mangle FIRST");
}

TEST_F(DependentsTest, KnowOneRuleOfOthersInATableOfIptables) {
  struct Row {
    TableId table;
    const char* chain = "MINE";
    const char* known = "";
    SurveyRule rule = Mark("-j DROP", 0);
  };
  const Row rows[] = {
      {kIpFilter, "MINE", "ip filter MINE: -A MINE -j DROP"},
      {{"ip6", "raw"}, "PREROUTING", "ip6 raw PREROUTING: -A PREROUTING -j DROP"},
      {{"ip", "mangle"}, "MINE", "ip mangle MINE: -A MINE -j DROP"},
      {{"ip6", "security"}, "MINE", "ip6 security MINE: -A MINE -j DROP"},
      {kIpNat, "KUBE-SVC-X", "ip nat KUBE-SVC-X: -A KUBE-SVC-X -j KUBE-MARK-MASQ",
       Jump("KUBE-MARK-MASQ")},
      {kIpFilter, "INPUT", "", Jump("KUBE-FIREWALL")},
      {kIpNat, "KUBE-MARK-MASQ"},
      {{"inet", "filter"}, "input"},
      {{"ip", "kube-proxy"}, "filter"},
  };
  for (const Row& row : rows) {
    DependentsCollector collector;
    collector.ManagedMode()(row.table, row.chain, row.rule);
    // The first is enough.
    if (*row.known != '\0') collector.ManagedMode()(kIpFilter, "LATER", Mark("-j DROP", 0));
    collector.OtherMode()(kIpFilter, "MINE", Mark("-j ACCEPT", 0));
    EXPECT_EQ(collector.Finish({}, {}).rule_of_others, row.known);
  }
}

TEST_F(DependentsTest, CountRulesThatSetMarksAndLabelsOutsideOfTheChainsThatAreForIt) {
  const SurveyRule mark = Mark("-j MARK --set-xmark 0x4000/0x4000", 0x4000);
  const SurveyRule label = Label(114);
  const auto all = netlink::AllConnLabels();
  struct Row {
    const char* name;
    TableId table;
    const char* chain;
    SurveyRule rule;
    bool counts = true;
  };
  const TableId ip6_nat = {"ip6", "nat"};
  const Row rows[] = {
      {"a mark of a foreign chain", kIpMangle, "MINE", mark},
      {"a mark of a native table", kInetMine, "prerouting", Mark("[nft meta]", kAll)},
      {"on a condition in the marking chain", kIpNat, "KUBE-MARK-MASQ",
       Mark("-i eth0 -j MARK --set-xmark 0x4000/0x4000", 0x4000)},
      {"another mask in the marking chain", kIpNat, "KUBE-MARK-MASQ",
       Mark("-j MARK --set-xmark 0x4000/0xffffffff", 0x4000)},
      {"two bits in the marking chain", kIpNat, "KUBE-MARK-MASQ",
       Mark("-j MARK --set-xmark 0xc000/0xc000", 0xc000)},
      {"a mark where it is cleared", kIpNat, "KUBE-POSTROUTING", mark},
      {"a mark in the firewall", kIpFilter, "KUBE-FIREWALL", mark},
      {"a mark in a chain of that name in another table", kIpMangle, "KUBE-MARK-MASQ", mark},
      {"kubelet's mark", kIpNat, "KUBE-MARK-MASQ", mark, false},
      {"what clears the mark", kIpNat, "KUBE-POSTROUTING",
       Mark("-j MARK --set-xmark 0x4000/0x0", 0x4000), false},
      {"kube-proxy's nftables mode", kIpKubeProxy, "mark-for-masquerade",
       Mark("[nft meta]", 0x4000), false},
      {"what sets nothing", kIpNat, "MINE", Mark("-j ACCEPT", 0), false},
      {"a mark of arp", kArpFilter, "INPUT", Mark("[xt mangle rev 0]", kAll), false},
      {"a label of a foreign chain", kIpNat, "MINE", label},
      {"a label of another table", kIpMangle, "PREROUTING", Label(5)},
      {"a label of IPv6", {"ip6", "mangle"}, "MINE", Label(5)},
      {"a label of a native table", kInetMine, "c", Label("[nft ct]", all)},
      {"on a condition in our chain", kIpNat, "KUBELET-MARK-MASQ",
       Label("-p tcp -m connlabel --label \"114\" --set", netlink::ConnLabelSet().set(114))},
      {"a label in a chain of that name elsewhere", kIpFilter, "KUBELET-MARK-MASQ", label},
      {"a label where we set none", kIpNat, "KUBELET-POSTROUTING", label},
      {"a label in a chain for marks", kIpNat, "KUBE-MARK-MASQ", label},
      {"our label", kIpNat, "KUBELET-MARK-MASQ", label, false},
      {"our label 0", kIpNat, "KUBELET-MARK-MASQ", Label(0), false},
      {"our label of before", ip6_nat, "KUBELET-MARK-DROP", Label(7), false},
      {"a label that is tested", kIpNat, "MINE", Label("-m connlabel --label \"1\" -j DROP", {}),
       false},
      {"a label of arp", kArpFilter, "INPUT", Label("[xt x rev 0]", all), false},
  };
  for (const Row& row : rows) {
    for (const bool other_mode : {false, true}) {
      SCOPED_TRACE(row.name);
      DependentsCollector collector;
      const netlink::SurveyFilter see =
          other_mode ? collector.OtherMode() : collector.ManagedMode();
      const bool judged = other_mode && std::string(row.chain) == "KUBE-POSTROUTING";
      EXPECT_EQ(see(row.table, row.chain, row.rule), judged) << "kept for no other reason";
      const Dependents found = collector.Finish({}, {});
      std::vector<Marking> setters = found.mark_setters;
      setters.insert(setters.end(), found.label_setters.begin(), found.label_setters.end());
      ASSERT_THAT(setters, SizeIs(row.counts ? 1 : 0));
      if (!row.counts) continue;
      EXPECT_EQ(setters[0].bits, MarksSet(row.rule));
      EXPECT_EQ(setters[0].labels, LabelsSet(row.rule));
      EXPECT_EQ(setters[0].rule, std::string("-A ") + row.chain + " " +
                                     ::kipt::testing::TextOf(row.rule, row.table.family));
      EXPECT_EQ(setters[0].ipv4, row.table.family != "ip6");
      EXPECT_EQ(setters[0].ipv6, row.table.family != "ip");
    }
  }
}

TEST_F(DependentsTest, OfAModeThatCannotBeReadMaySetAnyMarkAndLabel) {
  collector_.OtherModeUnreadable("why");
  const Dependents found = Found();
  ASSERT_THAT(found.mark_setters, SizeIs(1));
  EXPECT_EQ(found.mark_setters[0].bits, 0xffffffff);
  EXPECT_TRUE(found.mark_setters[0].ipv4 && found.mark_setters[0].ipv6);
  ASSERT_THAT(found.label_setters, SizeIs(1));
  EXPECT_TRUE(found.label_setters[0].labels.all());
  EXPECT_TRUE(found.label_setters[0].ipv4 && found.label_setters[0].ipv6);
}

}  // namespace
}  // namespace kipt::agent
