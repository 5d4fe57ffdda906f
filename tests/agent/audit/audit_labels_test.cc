// SPDX-License-Identifier: Apache-2.0
//
// Audit and explain for the chains of ConnLabelMarking, which only this agent uses.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_split.h"
#include "agent/audit/audit.h"
#include "agent/audit/explain.h"
#include "agent/audit/finding.h"
#include "agent/audit/node_view.h"
#include "agent/policy/policy.h"
#include "tests/agent/audit/audited.h"
#include "tests/support/matchers.h"

namespace kipt::agent {
namespace {

using netlink::Family;

// The chains as this agent makes them, and rules of others, a line each.
std::string With(const std::string& nat = "", const std::string& filter = "",
                 Family family = Family::kIPv4) {
  const std::string made = MadeText(Wanting(Mode::kCleanup, {&family, 1}, {}, ConnLabels{}));
  return WithRules(WithRules(made, "nat", absl::StrSplit(nat, '\n', absl::SkipEmpty())), "filter",
                   absl::StrSplit(filter, '\n', absl::SkipEmpty()));
}

AuditReport AuditOf(const std::string& nat = "", const std::string& filter = "") {
  return Audit(ViewOf(SurveyOf("nft", With(nat, filter), With(nat, filter, Family::kIPv6))),
               AuditOptions());
}

TEST(AuditLabelsTest, WhatThisAgentMakesIsNoFindingNorAComponentWithItsOwnLabel) {
  EXPECT_THAT(Lines(AuditOf()), IsEmpty());
  const std::string own =
      "-A PREROUTING -p tcp -j MINE\n-A MINE -m connlabel --label \"50\" --set\n"
      "-A POSTROUTING -m connlabel --label \"50\" -j MASQUERADE\n";
  EXPECT_THAT(Lines(AuditOf(own)), IsEmpty());
}

struct UserRow {
  std::string name;
  std::string nat;
  std::string line;
  std::string filter = {};
};

TEST(AuditLabelUserTest, IsAFindingOfItsOwnInEachFamily) {
  const UserRow rows[] = {
      {"AJump", "-A MINE -p tcp -j KUBELET-MARK-MASQ\n",
       "warning PrivateChainUser nat/KUBELET-MARK-MASQ"},
      {"AGoto", "-A MINE -p tcp -g KUBELET-MARK-DROP\n",
       "warning PrivateChainUser nat/KUBELET-MARK-DROP"},
      {"FromABaseChain", "-A PREROUTING -p tcp -j KUBELET-MARK-MASQ\n",
       "warning PrivateChainUser nat/KUBELET-MARK-MASQ"},
      {"AnotherJumpToPostrouting", "-A POSTROUTING -o eth0 -j KUBELET-POSTROUTING\n",
       "warning PrivateChainUser nat/KUBELET-POSTROUTING"},
      {"AnotherJumpToTheFirewall", "", "warning PrivateChainUser filter/KUBELET-FIREWALL",
       "-A FORWARD -i eth0 -j KUBELET-FIREWALL\n"},
      {"ARuleInIt", "-A KUBELET-MARK-MASQ -p udp -j RETURN\n",
       "warning ForeignRule nat/KUBELET-MARK-MASQ"},
  };
  for (const UserRow& row : rows) {
    SCOPED_TRACE(row.name);
    const AuditReport report = AuditOf(row.nat, row.filter);
    EXPECT_THAT(Lines(report), ElementsAre(row.line, row.line));
    EXPECT_TRUE(AuditExitNeedsAttention(report));
    for (const AuditFinding& finding : report.findings) {
      ASSERT_THAT(finding.rules, SizeIs(1));
      EXPECT_NE(finding.message, "");
      EXPECT_NE(finding.remedy, "");
    }
  }
}

TEST(AuditLabelsTest, ReportsThemAsPrivateWithAnAlternative) {
  const AuditReport report = AuditOf("-A MINE -p tcp -j KUBELET-MARK-MASQ\n");
  const AuditFinding* finding = FindKind(report, AuditKind::kPrivateChainUser);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->message, "rules in MINE, not this agent's, jump to nat/KUBELET-MARK-MASQ");
  EXPECT_THAT(finding->consequence, StartsWith("nat/KUBELET-MARK-MASQ is private"));
  EXPECT_THAT(finding->consequence, HasSubstr("ConnLabelMarking"));
  EXPECT_THAT(finding->remedy, HasSubstr("a label of your own"));
  const nlohmann::json json = nlohmann::json::parse(AuditJson(report));
  EXPECT_EQ(json["findings"][0]["id"], "PrivateChainUser");
  EXPECT_EQ(json["findings"][0]["rules"][0]["rule"], "-p tcp -j KUBELET-MARK-MASQ");
  EXPECT_EQ(AuditKindFromName("PrivateChainUser"), AuditKind::kPrivateChainUser);
}

TEST(AuditLabelsTest, KubeProxysRulesHaveNoBusinessThereEither) {
  const AuditReport report = AuditOf("-A KUBE-SVC-X -j KUBELET-MARK-MASQ\n");
  ASSERT_NE(FindKind(report, AuditKind::kPrivateChainUser), nullptr);
  EXPECT_EQ(FindKind(report, AuditKind::kPrivateChainUser)->owner, Owner::kKubeProxy);
}

TEST(AuditLabelsTest, ACniConfigurationThatNamesOneIsReported) {
  for (const bool exists : {true, false}) {
    const std::string text = With();
    NodeView view = ViewOf(SurveyOf("nft", exists ? text : "*nat\n:MINE - [0:0]\nCOMMIT\n"));
    view.cni.references = {{"/net.conflist", "portmap", "KUBELET-MARK-MASQ"}};
    const AuditReport report = Audit(view, AuditOptions());
    const AuditFinding* finding = FindKind(report, AuditKind::kCniConfig);
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->severity, exists ? AuditSeverity::kWarning : AuditSeverity::kError);
    EXPECT_THAT(finding->consequence, HasSubstr("is private"));
    EXPECT_EQ(finding->consequence.find("next ADD fails") == std::string::npos, exists);
    EXPECT_THAT(finding->remedy, HasSubstr("externalSetMarkChain"));
  }
}

TEST(AuditLabelsTest, ThePictureHasTheLabelLikeTheMark) {
  const NodeView view = ViewOf(SurveyOf("nft", With("-A MINE -p tcp -j KUBELET-MARK-MASQ\n")));
  EXPECT_THAT(AuditDot(view, Audit(view, AuditOptions())),
              AllOf(HasSubstr("\"nft ip nat/KUBELET-MARK-MASQ\" -> \"nft ip "
                              "nat/KUBELET-POSTROUTING\" [style=dashed, label=\"by the label\"]"),
                    HasSubstr("\"nft ip nat/KUBELET-MARK-DROP\" -> \"nft ip "
                              "filter/KUBELET-FIREWALL\" [style=dashed, label=\"by the label\"]"),
                    HasSubstr("KUBELET-MARK-MASQ\\n1 rule\\nPrivateChainUser"),
                    Not(HasSubstr("by the mark"))));
}

TEST(ExplainLabelsTest, GivesThePurposeOfEachChain) {
  struct Row {
    const char* chain;
    const char* what;
    const char* sentence;
    const char* next;
  };
  const Row rows[] = {
      {"nat/KUBELET-MARK-MASQ", "Labels the packet's connection",
       "every packet gives its connection label 114", "nat/KUBELET-POSTROUTING"},
      {"nat/KUBELET-MARK-DROP", "Labels the packet's connection",
       "every packet gives its connection label 115", "FORWARD and OUTPUT"},
      {"nat/KUBELET-POSTROUTING", "Masquerades connections",
       "a packet of connections with label 114 gets the address", "Out, through the interface"},
      {"filter/KUBELET-FIREWALL", "Drops packets of connections",
       "a packet of connections with label 115 is dropped", ""},
  };
  for (const Row& row : rows) {
    const absl::StatusOr<Explanation> explanation =
        Explain(SurveyOf("nft", With()), Family::kIPv4, row.chain);
    ASSERT_TRUE(explanation.ok()) << row.chain;
    EXPECT_EQ(explanation->owner, Owner::kThisAgent) << row.chain;
    EXPECT_EQ(explanation->maker, "kube-iptables-agent, with its feature gate ConnLabelMarking");
    EXPECT_THAT(explanation->what, StartsWith(row.what));
    ASSERT_THAT(explanation->rules, SizeIs(1));
    EXPECT_THAT(explanation->rules[0].sentence, StartsWith(row.sentence));
    if (*row.next == '\0') {
      EXPECT_THAT(explanation->next, IsEmpty());
    } else {
      EXPECT_THAT(explanation->next, ElementsAre(HasSubstr(row.next)));
    }
  }
}

TEST(ExplainLabelsTest, WhoElseJumpsToAnyOfTheChainsIsAThirdParty) {
  const netlink::Survey survey =
      SurveyOf("nft", With("-A MINE -p tcp -j KUBELET-MARK-DROP\n"
                           "-A MINE -p udp -j KUBELET-MARK-MASQ\n"
                           "-A POSTROUTING -o eth0 -j KUBELET-POSTROUTING\n",
                           "-A FORWARD -i eth0 -j KUBELET-FIREWALL\n"));
  const std::pair<const char*, const char*> rows[] = {
      {"nat/KUBELET-MARK-DROP", "rules of other programs: MINE"},
      {"nat/KUBELET-MARK-MASQ", "rules of other programs: MINE"},
      {"nat/KUBELET-POSTROUTING", "rules of other programs: POSTROUTING"},
      {"filter/KUBELET-FIREWALL", "rules of other programs: FORWARD"}};
  for (const auto& [chain, title] : rows) {
    const auto explanation = Explain(survey, Family::kIPv4, chain);
    ASSERT_TRUE(explanation.ok()) << chain;
    EXPECT_EQ(explanation->purposes.back().id, "ThirdParty") << chain;
    EXPECT_EQ(explanation->purposes.back().title, title);
  }
  const auto firewall = Explain(survey, Family::kIPv4, "filter/KUBELET-FIREWALL");
  ASSERT_THAT(firewall->purposes, SizeIs(3 + 1));
  EXPECT_EQ(firewall->purposes[0].id, "BaseJump");
}

}  // namespace
}  // namespace kipt::agent
