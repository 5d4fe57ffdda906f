// SPDX-License-Identifier: Apache-2.0
//
// An audit of what the sieve keeps reports what an audit of everything reports, in bounded memory.
#include "agent/audit/audit_sieve.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/audit.h"
#include "agent/audit/explain.h"
#include "agent/audit/explain_sieve.h"
#include "agent/audit/finding.h"
#include "agent/audit/kube_proxy_facts.h"
#include "agent/audit/mark_map.h"
#include "agent/audit/node_view.h"
#include "tests/agent/audit/audited.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/surveyed.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

using netlink::Family;
using netlink::Survey;

constexpr NodeChange kChanges[] = {NodeChange::kOwnershipCleanup, NodeChange::kKubeProxyNftables,
                                   NodeChange::kKubeProxyIpvsRemoval, NodeChange::kIptablesNft};

uint32_t EveryMark() { return AuditOptions{.change = NodeChange::kKubeProxyNftables}.OurMarks(); }

// A view of what is kept, as SiftedNodeView makes it.
NodeView Sifted(const Survey& survey, uint32_t marks = EveryMark()) {
  const SiftOptions options = {.marks = marks};
  AuditSieve sieve(options);
  absl::StatusOr<Survey> kept = netlink::Sifted(survey, sieve);
  EXPECT_THAT(kept, IsOk());
  NodeView view = ViewOf(*std::move(kept));
  view.left_out[survey.mode] = sieve.left_out();
  return view;
}

size_t RulesIn(const Survey& survey) {
  size_t count = 0;
  for (const auto& [table, chains] : survey.tables) {
    for (const auto& [name, chain] : chains) count += chain.rules.size();
  }
  return count;
}

size_t ChainsIn(const Survey& survey) {
  size_t count = 0;
  for (const auto& [table, chains] : survey.tables) count += chains.size();
  return count;
}

// Of testdata, each with its family.
std::vector<std::pair<Family, std::string>> Rulesets() {
  std::vector<std::pair<Family, std::string>> texts;
  for (const char* room : {"rulesets", "audited"}) {
    for (const auto& file :
         std::filesystem::directory_iterator(absl::StrCat(KIPT_TESTDATA_DIR, "/", room))) {
      if (file.path().extension() != ".save") continue;
      const bool v6 = absl::StrContains(file.path().filename().string(), "-v6");
      texts.emplace_back(v6 ? Family::kIPv6 : Family::kIPv4, FileText(file.path()));
    }
  }
  EXPECT_GT(texts.size(), 30U);
  return texts;
}

TEST(AuditSieveTest, AnAuditOfWhatIsKeptIsEqual) {
  for (const auto& [family, text] : Rulesets()) {
    const std::string mode = family == Family::kIPv6 ? "legacy" : "nft";
    const Survey whole = SurveyOfText(mode, family, text);
    ASSERT_NE(RulesIn(whole), 0U);
    NodeView view = ViewOf(whole);
    NodeView sifted = Sifted(whole);
    view.facts.kernel = sifted.facts.kernel = "4.19.0";
    view.route_localnet = sifted.route_localnet = {.interfaces = {"all"}};
    for (const NodeChange change : kChanges) {
      const AuditOptions options = {.change = change, .families = {Family::kIPv4, Family::kIPv6}};
      EXPECT_EQ(AuditText(Audit(sifted, options)), AuditText(Audit(view, options)))
          << ChangeName(change);
    }
    EXPECT_EQ(MarkMapJson(MapMarks(Sifted(whole, netlink::kAllMarks), {})),
              MarkMapJson(MapMarks(ViewOf(whole), {})));
  }
}

std::string TextOf(const absl::StatusOr<Explanation>& explanation) {
  return explanation.ok() ? ExplainText(*explanation) : std::string(explanation.status().message());
}

// What `explain` prints of a node's rules.
std::string ExplainSifted(const Survey& whole, const std::string& chain, Family family) {
  ExplainSieve sieve(chain);
  const absl::StatusOr<Survey> kept = netlink::Sifted(whole, sieve);
  return kept.ok() ? TextOf(Explain(*kept, sieve, family)) : std::string(kept.status().message());
}

TEST(AuditSieveTest, AnExplanationOfWhatIsKeptIsEqual) {
  for (const auto& [family, text] : Rulesets()) {
    const Survey whole = SurveyOfText("nft", family, text);
    std::vector<std::string> chains = {"nat/KUBE-MARK-NONE", "KUBE-SEP-AAAA", "POSTROUTING"};
    for (const auto& [table, of_table] : whole.tables) {
      for (const auto& [name, unused] : of_table) {
        chains.push_back(absl::StrCat(table.name, "/", name));
      }
    }
    for (const std::string& chain : chains) {
      EXPECT_EQ(ExplainSifted(whole, chain, family), TextOf(Explain(whole, family, chain)));
    }
  }
}

// 100 services of two endpoints, and what others may do to them.
Survey ManyServices(int services) {
  Survey survey =
      WithKubeProxy({}, {"-A OWN -s 10.1.0.0/16 -j ACCEPT", "-A OWN -s 10.2.0.0/16 -j ACCEPT",
                         "-A OWN -s 10.3.0.0/16 -j ACCEPT", "-A OWN -s 10.4.0.0/16 -j RETURN",
                         "-A OWN -j ACCEPT", "-A FORWARD -j OWN", "-A FORWARD -j DROP"});
  auto& nat = survey.tables[{"ip", "nat"}];
  for (int i = 0; i < services; ++i) {
    const std::string service = absl::StrCat("KUBE-SVC-", 1000 + i);
    const std::string endpoint = absl::StrCat("KUBE-SEP-", 1000 + i);
    nat["KUBE-SERVICES"].rules.insert(
        nat["KUBE-SERVICES"].rules.begin(),
        Surveyed(absl::StrCat("-d 10.0.0.1/32 -j ", service), service));
    nat[service].rules = {Surveyed(absl::StrCat("-j ", endpoint), endpoint)};
    nat[endpoint].rules = {Surveyed("-s 10.1.0.1/32 -j KUBE-MARK-MASQ", "KUBE-MARK-MASQ")};
    nat[endpoint].rules[0].counters = {.packets = 3, .bytes = 180};
  }
  return survey;
}

TEST(AuditSieveManyTest, KeepsAFewServicesAndCountsTheOthers) {
  const Survey whole = ManyServices(2000);
  const NodeView sifted = Sifted(whole);
  EXPECT_LT(RulesIn(sifted.surveys[0]), 200U);
  EXPECT_LT(ChainsIn(sifted.surveys[0]), 200U);
  EXPECT_EQ(sifted.left_out.at("nft").too_many, 0U);
  for (const NodeChange change : kChanges) {
    EXPECT_EQ(AuditText(Audit(sifted, {.change = change})),
              AuditText(Audit(ViewOf(whole), {.change = change})))
        << ChangeName(change);
  }
}

TEST(ExplainSieveTest, KeepsAFewOfTheRulesThatLeadToTheChainAndCountsAll) {
  const Survey whole = ManyServices(2000);
  for (const std::string chain : {"nat/KUBE-MARK-MASQ", "nat/KUBE-SERVICES"}) {
    ExplainSieve sieve(chain);
    const absl::StatusOr<Survey> kept = netlink::Sifted(whole, sieve);
    ASSERT_THAT(kept, IsOk());
    EXPECT_LT(RulesIn(*kept), 250U);
    EXPECT_LT(ChainsIn(*kept), 250U);
    const absl::StatusOr<Explanation> explanation = Explain(*kept, sieve, Family::kIPv4);
    EXPECT_EQ(TextOf(explanation), TextOf(Explain(whole, Family::kIPv4, chain)));
    if (sieve.chain() == "KUBE-SERVICES") {
      EXPECT_GT(explanation->rule_count, 2000U);
    } else {
      EXPECT_GT(explanation->users, 2000U);
      EXPECT_THAT(TextOf(explanation), HasSubstr("6000 packets"));
    }
  }
}

TEST(ExplainSieveTest, KeepsEmptyChainsOfOthersForTheirNames) {
  const Survey whole = SurveyOf("nft", NatText({"OFFICE-EAST"}, {}));
  EXPECT_THAT(ExplainSifted(whole, "nat/OFFICE-EAST", Family::kIPv4), HasSubstr("No rule jumps"));
  EXPECT_THAT(ExplainSifted(whole, "nat/OFFICE-WEST", Family::kIPv4),
              HasSubstr("there is nat/OFFICE-EAST"));
}

TEST(AuditSieveManyTest, FindsWhatIsForeignAmongThem) {
  Survey whole = ManyServices(2000);
  auto& nat = whole.tables[{"ip", "nat"}];
  nat["KUBE-SEP-2999"].rules.push_back(Surveyed("-j KUBELET-MARK-MASQ", "KUBELET-MARK-MASQ"));
  nat["KUBELET-MARK-MASQ"];
  nat["VPN"].rules.push_back(Surveyed("-j KUBE-SVC-2998", "KUBE-SVC-2998"));
  const NodeView sifted = Sifted(whole);
  const AuditReport now = Audit(sifted, {});
  ASSERT_NE(FindKind(now, AuditKind::kPrivateChainUser), nullptr);
  const AuditReport later = Audit(sifted, {.change = NodeChange::kKubeProxyNftables});
  const AuditFinding* const blocked = FindKind(later, AuditKind::kCleanupBlocked);
  ASSERT_NE(blocked, nullptr);
  EXPECT_EQ(blocked->chain, "nat/KUBE-SVC-2998");
}

struct FloodRow {
  const char* name;
  Survey whole;
  const char* table;
  int chains;
  const char* rule;  // of each
  size_t most_rules;
  size_t most_chains;
  size_t too_many = 0;
};

TEST(AuditSieveManyTest, KeepsALittleOfAFloodAndCountsTheRest) {
  const Survey masq = SurveyOf("nft", NatText({"KUBE-MARK-MASQ"}, {}));
  const FloodRow rows[] = {
      {"chains that do not concern kubelet", masq, "nat", 100000, "-s 192.0.2.1/32 -j RETURN", 10,
       20},
      {"rules that matter", masq, "nat", 100000, "-j KUBE-MARK-MASQ", AuditSieve::kMostNeeded,
       AuditSieve::kMostNeeded + 20, 100000 - AuditSieve::kMostNeeded},
      {"chains of a proxy's own table", masq, "kube-proxy", 10000, "-j RETURN", 40, 40},
  };
  for (const FloodRow& row : rows) {
    SCOPED_TRACE(row.name);
    Survey whole = row.whole;
    for (int i = 0; i < row.chains; ++i) {
      whole.tables[{"ip", row.table}][absl::StrCat("FLOOD-", i)].rules = {
          Surveyed(row.rule, "KUBE-MARK-MASQ")};
    }
    const NodeView sifted = Sifted(whole);
    EXPECT_LE(RulesIn(sifted.surveys[0]), row.most_rules);
    EXPECT_LE(ChainsIn(sifted.surveys[0]), row.most_chains);
    EXPECT_EQ(sifted.left_out.at("nft").too_many, row.too_many);
  }
}

// Chains are read by their names, so a flood comes before KUBE-MARK-MASQ.
TEST(AuditSieveManyTest, AFloodPushesOutNoRuleThatMattersForAnotherReason) {
  Survey whole = SurveyOf("nft", NatText({"KUBE-MARK-MASQ", "CNI"},
                                         {"-A CNI -j KUBE-MARK-MASQ",
                                          "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000"}));
  auto& nat = whole.tables[{"ip", "nat"}];
  for (int i = 0; i < 2000; ++i) {
    nat["A-FLOOD"].rules.push_back(Surveyed("-j MARK --set-xmark 0x4000/0xffffffff"));
  }
  const NodeView sifted = Sifted(whole);
  EXPECT_EQ(sifted.left_out.at("nft").too_many, 2000U - AuditSieve::kMostNeeded);
  const AuditReport report = Audit(sifted, {});
  EXPECT_EQ(FindKind(report, AuditKind::kMarkMasqEmpty), nullptr) << "it has a rule";
  EXPECT_THAT(AuditText(report), HasSubstr("rules in CNI"));
}

TEST(AuditSieveManyTest, AFloodOfRulesThatClearAMarkPushesOutNoneThatSetsIt) {
  Survey whole = SurveyOf("nft", NatText({"Z"}, {"-A Z -j MARK --set-xmark 0x4000/0x4000"}));
  auto& rules = whole.tables[{"ip", "nat"}]["A-FLOOD"].rules;
  for (int i = 0; i < 2000; ++i) {
    rules.push_back(Surveyed("-j MARK --set-xmark 0x1/0xffffffff"));
  }
  const NodeView sifted = Sifted(whole);
  EXPECT_EQ(sifted.left_out.at("nft").too_many, 2000U - AuditSieve::kMostNeeded);
  EXPECT_EQ(RulesIn(sifted.surveys[0]), AuditSieve::kMostNeeded + 1);
}

TEST(AuditSieveManyTest, KeepsEveryRuleThatActsOnAMarkForTheMap) {
  std::string text = "*mangle\n:PREROUTING ACCEPT [0:0]\n:VPN - [0:0]\n";
  for (int bit = 0; bit < 32; ++bit) {
    const std::string mark = absl::StrCat("0x", absl::Hex(uint32_t{1} << bit));
    absl::StrAppend(&text, "-A VPN -s 10.0.0.", bit, "/32 -j MARK --set-xmark ", mark, "/", mark,
                    "\n", "-A PREROUTING -p ", bit + 1, " -m mark --mark ", mark, "/", mark,
                    " -j ACCEPT\n");
  }
  const Survey whole = SurveyOf("nft", absl::StrCat(text, "COMMIT\n"));
  ASSERT_EQ(RulesIn(whole), 64U);
  EXPECT_EQ(MarkMapJson(MapMarks(Sifted(whole, netlink::kAllMarks), {})),
            MarkMapJson(MapMarks(ViewOf(whole), {})));
}

TEST(AuditSieveManyTest, AProxysChainWithRulesOfEveryKindIsBounded) {
  Survey whole = ManyServices(1);
  auto& services = whole.tables[{"ip", "nat"}]["KUBE-SERVICES"].rules;
  for (int i = 0; i < 100000; ++i) {
    const std::string chain = absl::StrCat("X", i);
    services.push_back(Surveyed(absl::StrCat("-j ", chain), chain));
  }
  EXPECT_LT(RulesIn(Sifted(whole).surveys[0]), 2000U);
}

TEST(AuditSieveManyTest, EndsWithThePausesError) {
  const SiftOptions options = {.pause = [] { return absl::CancelledError("enough"); }};
  AuditSieve sieve(options);
  EXPECT_THAT(netlink::Sifted(ManyServices(1), sieve), StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace kipt::agent
