// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/explain.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/audit/mark_map.h"
#include "agent/audit/rule_words.h"
#include "tests/agent/audit/audited.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"
#include "tests/support/surveyed.h"

namespace kipt::agent {
namespace {

using netlink::Family;

Explanation ExplainFile(const std::string& file, const std::string& chain) {
  const std::string text = ReadTestdata(file);
  EXPECT_NE(text, "") << file;
  const absl::StatusOr<Explanation> explanation =
      Explain(SurveyOf("nft", text), Family::kIPv4, chain);
  EXPECT_TRUE(explanation.ok()) << explanation.status();
  return explanation.ok() ? *explanation : Explanation();
}

// "2 Hairpin", in the order of the explanation.
std::vector<std::string> Purposes(const Explanation& explanation) {
  std::vector<std::string> purposes;
  for (const PurposeGroup& group : explanation.purposes) {
    purposes.push_back(absl::StrCat(group.count, " ", group.id));
  }
  return purposes;
}

struct PurposeRow {
  std::string name;
  std::string file;
  std::vector<std::string> purposes = {};
  std::string chain = "nat/KUBE-MARK-MASQ";
};

TEST(ExplainPurposeTest, GivesThePurposeOfEachRule) {
  const PurposeRow rows[] = {
      {"MarkMasqOf117", "rulesets/kube-proxy-1.17-A-v4.save",
       List("3 OutsidePodRange", "4 Hairpin", "1 ExternalFromNode", "1 LoadBalancer", "1 NodePort",
            "1 NodePortLoopback")},
      {"MarkMasqOf128", "rulesets/kube-proxy-1.28-A-v4.save",
       List("3 OutsidePodRange", "4 Hairpin", "1 External", "1 ExternalFromNode")},
      {"MarkMasqOfEveryKindOfService123", "rulesets/kube-proxy-1.23-B-v4.save",
       List("9 OutsidePodRange", "14 Hairpin", "1 ExternalFromNode", "1 NodePort",
            "1 NodePortLoopback")},
      {"MarkMasqOfIpvs", "audited/ipvs-1.23-v4.save",
       List("1 OutsidePodRange", "1 ExternalIP", "1 LoadBalancer", "1 NodePort")},
      {"MarkMasqOfPortmap", "audited/portmap-v4.save",
       List("1 HostPortHairpin", "1 HostPortLoopback")},
      {"MarkMasqOfHostPorts", "audited/host-ports-v4.save", List("1 HostPortHairpin")},
      {"MarkMasqOfAnAdministrator", "audited/hand-written-v4.save",
       List("3 OutsidePodRange", "4 Hairpin", "1 External", "1 ExternalFromNode", "1 ThirdParty")},
      {"MarkDropOf124", "rulesets/kube-proxy-1.24-A-v4.save",
       List("1 SourceRanges", "1 NoLocalEndpoints"), "nat/KUBE-MARK-DROP"},
      {"MarkDropOfIpvs", "audited/ipvs-1.23-v4.save", List("1 SourceRanges"), "nat/KUBE-MARK-DROP"},
      {"Firewall", "rulesets/kube-proxy-1.28-A-v4.save", List("1 BaseJump", "1 BaseJump"),
       "filter/KUBE-FIREWALL"},
      {"Postrouting", "rulesets/kube-proxy-1.28-A-v4.save", List("1 BaseJump"),
       "nat/KUBE-POSTROUTING"},
      {"AServiceOfKubeProxys", "rulesets/kube-proxy-1.28-A-v4.save", List("2 Other", "1 Other"),
       "nat/KUBE-SVC-GNZBNJ2PO5MGZ6GT"},
      {"TheHint", "audited/portmap-v4.save", List(), "mangle/KUBE-IPTABLES-HINT"},
  };
  for (const PurposeRow& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(Purposes(ExplainFile(row.file, row.chain)), row.purposes);
  }
}

// The question: why are there so many different KUBE-MARK-MASQ rules; why "!"; why the pod's own
// address; why any source?
TEST(ExplainTest, AnswersTheQuestionPointByPoint) {
  const Explanation explanation = ExplainFile("audited/question-v4.save", "nat/KUBE-MARK-MASQ");
  ASSERT_THAT(explanation.purposes, SizeIs(3));
  EXPECT_THAT(explanation.in_short,
              ElementsAre(AllOf(HasSubstr("There is one such chain"),
                                HasSubstr("4 rules in 4 chains lead to it")),
                          HasSubstr("Packets of pods to the outside do not pass it"),
                          AllOf(StartsWith("1 rule: "), HasSubstr("10.244.0.0/16")),
                          "2 rules: a pod that reaches itself through its own service.",
                          "1 rule: to a service's load balancer address."));
  const PurposeGroup& cluster_ip = explanation.purposes[0];
  EXPECT_THAT(std::string(cluster_ip.reason), StartsWith("The '!' leaves the pods out"));
  EXPECT_EQ(cluster_ip.packets, 7U);
  EXPECT_THAT(cluster_ip.examples[0].sentence,
              "kube-system/kube-dns:metrics: a tcp packet from outside 10.244.0.0/16 to 10.96.0.10 "
              "port 9153");
  EXPECT_THAT(explanation.purposes[1].examples[0].sentence,
              "default/echo-load-balance: the pod 10.244.2.162 calls itself");
  EXPECT_THAT(std::string(explanation.purposes[2].reason), StartsWith("Any source (0.0.0.0/0"));
  ASSERT_THAT(explanation.rules, SizeIs(1));
  EXPECT_EQ(explanation.rules[0].sentence, "every packet gets mark bit 14 (0x4000)");
  EXPECT_THAT(explanation.next, Contains(HasSubstr("70 packets so far")));
  EXPECT_THAT(explanation.maker, HasSubstr("kube-proxy 1.18 to 1.21"));
}

TEST(ExplainTest, NamesServicesThatRulesOf117DoNotName) {
  const Explanation explanation =
      ExplainFile("rulesets/kube-proxy-1.17-A-v4.save", "nat/KUBE-MARK-MASQ");
  const PurposeGroup& hairpin = explanation.purposes[1];
  ASSERT_EQ(hairpin.id, "Hairpin");
  EXPECT_EQ(hairpin.examples[0].sentence, "ns2/svc2:p80: the pod 10.180.1.1 calls itself");
}

TEST(ExplainTest, OtherWaysToDetectPodsAndMasqueradeAll) {
  const std::string text =
      NatText({"KUBE-MARK-MASQ", "KUBE-SVC-A", "KUBE-SVC-B"},
              {"-A KUBE-SVC-A ! -i cni0 -d 10.96.0.1/32 -p tcp -m comment --comment \"a/a cluster "
               "IP\" -m tcp --dport 443 -j KUBE-MARK-MASQ",
               "-A KUBE-SVC-B -d 10.96.0.2/32 -p tcp -m comment --comment \"b/b cluster IP\" -m "
               "tcp --dport 443 -j KUBE-MARK-MASQ"});
  const absl::StatusOr<Explanation> explanation =
      Explain(SurveyOf("nft", text), Family::kIPv4, "nat/KUBE-MARK-MASQ");
  ASSERT_TRUE(explanation.ok());
  EXPECT_THAT(Purposes(*explanation), ElementsAre("1 OutsidePodRange", "1 MasqueradeAll"));
  EXPECT_THAT(explanation->purposes[0].title, HasSubstr("interface cni0"));
  EXPECT_THAT(explanation->next, ElementsAre(HasSubstr("no rule acts on the mark")));
}

TEST(ExplainTest, NamesTheBaseChainsThatDoNotLeadToTheDrop) {
  const std::string mark = " to filter/KUBE-FIREWALL";
  const std::string drops_marked =
      mark +
      ", which drops marked packets if it has its rule for the mark. Forwarded packets pass "
      "neither INPUT nor OUTPUT, and are not dropped.";
  const std::string unheard = "no rule acts on the mark, and the packet passes.";
  const std::string label = " to filter/KUBELET-FIREWALL";
  const std::string drops_labelled =
      label + ", which drops labelled packets for as long as the connection lasts.";
  const std::string no_label = "no rule acts on the label.";
  const struct {
    std::string prefix;  // of the chains
    std::vector<std::string> bases;
    std::vector<std::string> next;
  } rows[] = {
      {"KUBE", List("INPUT", "OUTPUT"),
       List("In table filter, INPUT and OUTPUT lead" + drops_marked)},
      {"KUBE", List("INPUT"),
       List("In table filter, INPUT leads" + drops_marked,
            "OUTPUT does not jump" + mark + ": there " + unheard)},
      {"KUBE", List(), List("INPUT and OUTPUT do not jump" + mark + ": " + unheard)},
      {"KUBELET", List("INPUT", "FORWARD", "OUTPUT"),
       List("In table filter, INPUT, FORWARD and OUTPUT lead" + drops_labelled)},
      {"KUBELET", List("INPUT", "OUTPUT"),
       List("In table filter, INPUT and OUTPUT lead" + drops_labelled,
            "FORWARD does not jump" + label + ": there " + no_label)},
      {"KUBELET", List("FORWARD"),
       List("In table filter, FORWARD leads" + drops_labelled,
            "INPUT and OUTPUT do not jump" + label + ": there " + no_label)},
      {"KUBELET", List(), List("INPUT, FORWARD and OUTPUT do not jump" + label + ": " + no_label)},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(absl::StrJoin(row.bases, " "));
    std::string text = absl::StrCat(
        NatText({row.prefix + "-MARK-DROP"}, {}),
        "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:", row.prefix,
        "-FIREWALL - [0:0]\n");
    for (const std::string& base : row.bases) {
      absl::StrAppend(&text, "-A ", base, " -j ", row.prefix, "-FIREWALL\n");
    }
    const absl::StatusOr<Explanation> explanation = Explain(
        SurveyOf("nft", text + "COMMIT\n"), Family::kIPv4, "nat/" + row.prefix + "-MARK-DROP");
    ASSERT_TRUE(explanation.ok());
    EXPECT_EQ(explanation->next, row.next);
  }
}

TEST(ExplainTest, DistinguishesTheTwoKubeFirewalls) {
  const Explanation nat = ExplainFile("audited/ipvs-1.23-v4.save", "nat/KUBE-FIREWALL");
  EXPECT_EQ(nat.owner, Owner::kKubeProxyIpvs);
  EXPECT_THAT(nat.what, StartsWith("IPVS mode up to 1.24"));
  const Explanation filter = ExplainFile("audited/ipvs-1.23-v4.save", "filter/KUBE-FIREWALL");
  EXPECT_EQ(filter.owner, Owner::kKubelet);
  EXPECT_THAT(filter.maker, HasSubstr("kubelet"));
  ASSERT_THAT(filter.rules, SizeIs(2));
  EXPECT_EQ(filter.rules[0].sentence, "a packet with mark bit 15 (0x8000) is dropped");
}

TEST(ExplainTest, ShowsThreeExamplesAndHowManyMoreThereAre) {
  const Explanation nine = ExplainFile("rulesets/kube-proxy-1.23-B-v4.save", "nat/KUBE-MARK-MASQ");
  EXPECT_THAT(nine.purposes[0].examples, SizeIs(3));
  EXPECT_THAT(ExplainText(nine), HasSubstr("... and 6 more"));
}

TEST(ExplainTest, ANameInOneTableOnlyIsEnough) {
  EXPECT_EQ(ExplainFile("audited/portmap-v4.save", "KUBE-FIREWALL").chain, "filter/KUBE-FIREWALL");
  const absl::StatusOr<Explanation> canary =
      Explain(SurveyOf("nft", ReadTestdata("audited/portmap-v4.save")), Family::kIPv4,
              "KUBE-KUBELET-CANARY");
  EXPECT_EQ(canary.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(canary.status().message()), HasSubstr("filter, mangle, nat"));
}

TEST(ExplainTest, AChainThatIsNotThereIsNotFoundWithItsLikes) {
  const netlink::Survey survey = SurveyOf("nft", ReadTestdata("audited/portmap-v4.save"));
  const absl::StatusOr<Explanation> typo = Explain(survey, Family::kIPv4, "nat/KUBE-MARK-MASK");
  EXPECT_EQ(typo.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(typo.status().message()), HasSubstr("there is nat/KUBE-MARK-MASQ"));
  // In another table, and in another family.
  EXPECT_THAT(std::string(Explain(survey, Family::kIPv4, "nat/KUBE-FIREWALL").status().message()),
              HasSubstr("there is filter/KUBE-FIREWALL"));
  EXPECT_EQ(Explain(survey, Family::kIPv6, "nat/KUBE-MARK-MASQ").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Explain(survey, Family::kIPv4, "").status().code(), absl::StatusCode::kNotFound);
}

TEST(ExplainTest, TextAndJsonSayTheSame) {
  const Explanation explanation = ExplainFile("audited/question-v4.save", "nat/KUBE-MARK-MASQ");
  const std::string text = ExplainText(explanation);
  EXPECT_THAT(text, StartsWith("nat/KUBE-MARK-MASQ  (nft ip)\n"));
  EXPECT_THAT(text, HasSubstr("2 rules, hit by no packet: a pod that reaches itself"));
  const nlohmann::json json = nlohmann::json::parse(ExplainJson(explanation));
  EXPECT_EQ(json["chain"], "nat/KUBE-MARK-MASQ");
  EXPECT_EQ(json["users"], 4);
  EXPECT_EQ(json["purposes"][1]["id"], "Hairpin");
  EXPECT_EQ(json["purposes"][1]["count"], 2);
  EXPECT_EQ(json["purposes"][0]["packets"], 7);
}

TEST(ExplainTest, ATableThatADumpLacksIsNotAMissingChain) {
  netlink::Survey survey = SurveyOf("", "*filter\n:KUBE-FIREWALL - [0:0]\nCOMMIT\n");
  survey.not_printed = {"nat"};
  for (const char* chain : {"nat/KUBE-MARK-MASQ", "KUBE-MARK-MASQ"}) {
    EXPECT_THAT(Explain(survey, Family::kIPv4, chain).status().message(),
                HasSubstr("this dump lacks table nat, because iptables-save could not print it"));
  }
  EXPECT_THAT(Explain(survey, Family::kIPv4, "filter/KUBE-FORWARD").status().message(),
              HasSubstr("there is no chain filter/KUBE-FORWARD"));
  EXPECT_TRUE(Explain(survey, Family::kIPv4, "KUBE-FIREWALL").ok());
}

// Since 1.28, or with the gate, only kube-proxy keeps KUBE-MARK-MASQ and KUBE-POSTROUTING.
TEST(ExplainTest, NamesTheProgramThatKeepsASharedChain) {
  const std::string proxys = ReadTestdata("rulesets/kube-proxy-1.28-A-v4.save");
  const std::string kubelets = ReadTestdata("audited/portmap-v4.save");
  const std::pair<std::string, Owner> rows[] = {
      {proxys, Owner::kKubeProxy},
      {ReadTestdata("audited/ipvs-1.28-v4.save"), Owner::kKubeProxyIpvs},
      // A kubelet with the gate off keeps both.
      {ReadTestdata("rulesets/kube-proxy-1.24-A-v4.save"), Owner::kKubelet},
      {kubelets, Owner::kKubelet}};
  for (const auto& [text, owner] : rows) {
    const netlink::Survey survey = SurveyOf("nft", text);
    const auto explained = Explain(survey, Family::kIPv4, "nat/KUBE-POSTROUTING");
    ASSERT_TRUE(explained.ok());
    EXPECT_EQ(explained->owner, owner);
    const MarkMap map = MapMarks(ViewOf(survey), {});
    ASSERT_FALSE(map.users.empty());
    EXPECT_EQ(absl::c_any_of(map.users,
                             [](const auto& user) { return user.who == "nft ip nat: kubelet"; }),
              owner == Owner::kKubelet);
  }
}

TEST(ExplainTest, KnowsWhichChainsNoProgramMakesAnyMore) {
  EXPECT_THAT(NoLongerMade("nat/KUBE-MARK-DROP"), HasSubstr("kubelet makes none since 1.27"));
  EXPECT_THAT(NoLongerMade("KUBE-MARK-MASQ"), HasSubstr("There is no chain nat/KUBE-MARK-MASQ"));
  EXPECT_THAT(NoLongerMade("KUBE-XLB-FW5LKTDVF5CT6EHI"), HasSubstr("since 1.24"));
  for (const char* chain : {"filter/KUBE-MARK-DROP", "nat/KUBE-SERVICES", "mine", ""}) {
    EXPECT_EQ(NoLongerMade(chain), "");
  }
}

struct SentenceRow {
  std::string name;
  std::string rule;
  std::string sentence;
};

TEST(RuleSentenceTest, IsInPlainWords) {
  const SentenceRow rows[] = {
      {"OrMark", "-j MARK --set-xmark 0x4000/0x4000", "every packet gets mark bit 14 (0x4000)"},
      {"XorMark", "-j MARK --set-xmark 0x4000/0x0",
       "every packet has mark bit 14 (0x4000) turned over"},
      {"ClearMark", "-j MARK --set-xmark 0x0/0xc000", "every packet loses mark bits 0xc000"},
      {"MarkByHand", "-j MARK --or-mark 16384",
       "every packet has its mark changed (--or-mark 16384)"},
      {"MarkWithoutOptions", "-j MARK", "every packet has its mark changed ()"},
      {"UnmarkedReturn", "-m mark ! --mark 0x4000/0x4000 -j RETURN",
       "a packet without mark bit 14 (0x4000) returns, and no other rule here applies to it"},
      {"Dnat", "-s 10.0.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 1.2.3.4:8",
       "a tcp packet from 10.0.0.1 to port 80 is sent to 1.2.3.4:8 instead"},
      {"Martian",
       "! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate "
       "RELATED,ESTABLISHED,DNAT -j DROP",
       "a packet from outside 127.0.0.0/8 to 127.0.0.0/8 of connections in none of the "
       "states RELATED,ESTABLISHED,DNAT is dropped"},
      {"Chance", "-m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-X",
       "a packet by chance (33.3 %) jumps to KUBE-SEP-X"},
      {"SetLabel", "-m connlabel --label \"114\" --set",
       "every packet gives its connection label 114"},
      {"SetLabelAndMore", "-p tcp -m connlabel --label \"5\" --set -m tcp --dport 80 -j ACCEPT",
       "a tcp packet to port 80 gives its connection label 5 and is accepted"},
      {"Labelled", "-m connlabel --label \"115\" -j DROP",
       "a packet of connections with label 115 is dropped"},
      {"NotLabelled", "-m connlabel ! --label \"mine\" -j RETURN",
       "a packet of connections without label mine returns, and no other rule here "
       "applies to it"},
      {"LabelsThatAreNoLabels", "-m connlabel --set -j DROP", "a packet (--set) is dropped"},
      {"NoTarget", "-p udp", "every udp packet is counted"},
      {"WhatIsNotUnderstoodIsQuoted",
       "-m physdev --physdev-in veth0 ! --physdev-is-bridged -s 10.0.0.1/32 [xt foo rev 1] -m mark "
       "--mark 0x1 -m connmark --mark 0x2 -g OTHER",
       "a packet from 10.0.0.1 with mark 0x1 (-m physdev --physdev-in veth0 ! "
       "--physdev-is-bridged) ([xt foo rev 1]) (-m connmark --mark 0x2) jumps to OTHER"},
      {"NotOfASet",
       "-m set ! --match-set KUBE-CLUSTER-IP dst,dst -m addrtype ! --dst-type LOCAL -j ACCEPT",
       "a packet not to an address of this node not in the set KUBE-CLUSTER-IP (dst,dst) is "
       "accepted"},
      {"ACommentRestrictsNothing", "-m comment --comment x -j ACCEPT", "every packet is accepted"},
  };
  for (const SentenceRow& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(RuleSentence(ParseRuleWords(row.rule)), row.sentence);
  }
}

TEST(ServiceInCommentTest, IsTheNameThatKubeProxyWrote) {
  EXPECT_EQ(ServiceInComment("ns1/svc1:p80 cluster IP"), "ns1/svc1:p80");
  EXPECT_EQ(ServiceInComment("default/echo: loadbalancer IP"), "default/echo");
  EXPECT_EQ(ServiceInComment("masquerade traffic for b/np:p80 external destinations"), "b/np:p80");
  EXPECT_EQ(ServiceInComment("masquerade LOCAL traffic for a/b LB IP"), "a/b");
  EXPECT_EQ(ServiceInComment("b/aff:p80 -> 10.180.0.11:80"), "b/aff:p80");
  EXPECT_EQ(ServiceInComment("kubernetes service portals"), "");
  EXPECT_EQ(ServiceInComment(""), "");
}

}  // namespace
}  // namespace kipt::agent
