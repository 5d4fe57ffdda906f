// SPDX-License-Identifier: Apache-2.0
//
// What a process that keeps running keeps of its audits: series, texts, news.
#include "agent/audit/node_audit.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/matchers.h"

namespace kipt::agent {
namespace {

constexpr absl::Time kTime = absl::FromUnixSeconds(1'700'000'000);

AuditFinding Finding(AuditSeverity severity, const std::string& chain) {
  return {.kind = AuditKind::kChainUser,
          .severity = severity,
          .iptables_mode = "nft",
          .family = "ip",
          .chain = chain,
          .owner = Owner::kPortmap,
          .message = "rules jump to it"};
}

NodeAudit Of(std::vector<AuditFinding> findings,
             NodeChange change = NodeChange::kOwnershipCleanup) {
  AuditReport report{.change = change};
  report.findings = std::move(findings);
  return MakeNodeAudit({report}, kTime);
}

TEST(NodeAuditTest, CountsErrorsAndWarningsThatAreNotAllowed) {
  AuditFinding allowed = Finding(AuditSeverity::kError, "nat/KUBE-MARK-DROP");
  allowed.allowed = "the old VPN";
  const NodeAudit audit = Of({Finding(AuditSeverity::kError, "nat/KUBE-MARK-MASQ"),
                              Finding(AuditSeverity::kInfo, "nat/KUBE-POSTROUTING"), allowed});
  EXPECT_THAT(
      audit.series,
      ElementsAre(Pair(UnorderedElementsAre(Pair("change", "ownership-cleanup"),
                                            Pair("kind", "ChainUser"), Pair("severity", "error"),
                                            Pair("backend", "nft"), Pair("family", "ip"),
                                            Pair("table", "nat"), Pair("chain", "KUBE-MARK-MASQ"),
                                            Pair("owner", "the CNI plugin portmap")),
                       1)));
}

TEST(NodeAuditTest, HasTwelveSeriesWhateverIsFoundErrorsFirst) {
  std::vector<AuditFinding> findings;
  for (int i = 0; i < 500; ++i) {
    findings.push_back(Finding(AuditSeverity::kWarning, absl::StrCat("nat/W", 1000 + i)));
  }
  for (int i = 0; i < 4; ++i) {
    findings.push_back(Finding(AuditSeverity::kError, absl::StrCat("nat/E", i)));
  }
  const NodeAudit audit = Of(findings);
  EXPECT_THAT(audit.series, SizeIs(NodeAudit::kMostSeries));
  double sum = 0;
  size_t errors = 0;
  for (const auto& [labels, count] : audit.series) {
    sum += count;
    errors += labels.at("severity") == "error" && labels.at("kind") == "ChainUser" ? 1 : 0;
    if (labels.at("kind") != "Other") continue;
    EXPECT_EQ(labels.at("severity"), "warning");
    EXPECT_EQ(labels.at("change"), "ownership-cleanup");
    EXPECT_EQ(labels.at("chain"), "");
    EXPECT_EQ(count, 500 - 7);
  }
  EXPECT_EQ(sum, 504);
  EXPECT_EQ(errors, 4U);
}

TEST(NodeAuditTest, CountsWhatHasNoPlaceByEachChangeAndSeverity) {
  std::vector<AuditReport> reports;
  for (int change = 0; change < 4; ++change) {
    AuditReport report{.change = static_cast<NodeChange>(change)};
    for (int i = 0; i < 50; ++i) {
      report.findings.push_back(Finding(AuditSeverity::kError, absl::StrCat("nat/E", i)));
      report.findings.push_back(Finding(AuditSeverity::kWarning, absl::StrCat("nat/W", i)));
    }
    reports.push_back(report);
  }
  std::map<std::string, double> sums;
  for (const auto& [labels, count] : MakeNodeAudit(reports, kTime).series) {
    sums[labels.at("change") + " " + labels.at("severity")] += count;
  }
  EXPECT_THAT(sums, SizeIs(8));
  EXPECT_THAT(sums, Each(Pair(::testing::_, 50)));
}

TEST(NodeAuditTest, NamesChainsOfServicesOnceAndEscapesForeignBytes) {
  const NodeAudit audit = Of({Finding(AuditSeverity::kError, "nat/KUBE-SVC-A\x1b[31m"),
                              Finding(AuditSeverity::kError, "nat/KUBE-SVC-B"),
                              Finding(AuditSeverity::kError, "nat/\x1b[2J\n{\"")});
  std::vector<std::string> chains;
  for (const auto& [labels, count] : audit.series) chains.push_back(labels.at("chain"));
  EXPECT_THAT(chains, ElementsAre("KUBE-SVC-*", "\\x1b[2J\\n{\""));
}

TEST(NodeAuditTest, ShowsAHundredFindingsAndHowManyMore) {
  std::vector<AuditFinding> findings;
  for (int i = 0; i < 250; ++i) {
    findings.push_back(Finding(AuditSeverity::kError, absl::StrCat("nat/E", i)));
  }
  const NodeAudit audit = Of(findings);
  EXPECT_THAT(audit.reports[0].findings, SizeIs(100));
  EXPECT_THAT(NodeAuditText(audit), HasSubstr("... and 150 findings more"));
  const auto json = nlohmann::json::parse(NodeAuditJson(audit));
  EXPECT_EQ(json["time"], "2023-11-14T22:13:20+00:00");
  EXPECT_EQ(json["audits"][0]["before"], "ownership-cleanup");
  EXPECT_EQ(json["audits"][0]["more"], 150);
}

TEST(NodeAuditTest, ReportsThatThereIsNoneYet) {
  EXPECT_THAT(NodeAuditText({}), HasSubstr("none has ended yet"));
  EXPECT_TRUE(nlohmann::json::parse(NodeAuditJson({}))["time"].is_null());
}

TEST(NodeAuditTest, LeavesLinesOfFilesOut) {
  const NodeAudit audit = Of({{.kind = AuditKind::kSavedRules,
                               .severity = AuditSeverity::kWarning,
                               .message = "saved",
                               .details = {"/etc/iptables/rules.v4:12: -A X -s 192.0.2.1 -j Y"}}});
  EXPECT_THAT(audit.reports[0].findings[0].details, ElementsAre("/etc/iptables/rules.v4:12"));
}

TEST(NodeAuditTest, ReportsNewAndGoneFindingsOnce) {
  const AuditFinding masq = Finding(AuditSeverity::kError, "nat/KUBE-MARK-MASQ");
  const AuditFinding drop = Finding(AuditSeverity::kWarning, "nat/KUBE-MARK-DROP");
  const AuditFinding info = Finding(AuditSeverity::kInfo, "nat/KUBE-POSTROUTING");
  const std::string text =
      "error ChainUser nft ip nat/KUBE-MARK-MASQ, before ownership-cleanup: rules jump to it";
  EXPECT_THAT(NewsOf({}, Of({masq, info})),
              ElementsAre(FindingNews{false, AuditSeverity::kError, text}));
  EXPECT_THAT(NewsOf(Of({masq}), Of({masq})), IsEmpty());
  EXPECT_THAT(NewsOf(Of({masq, drop}), Of({drop})),
              ElementsAre(FindingNews{true, AuditSeverity::kError, text}));
  // More rules of the same, or packets, are no news.
  AuditFinding more = masq;
  more.count = 7;
  EXPECT_THAT(NewsOf(Of({masq}), Of({more})), IsEmpty());
}

TEST(NodeAuditTest, ReportsOneFindingBeforeSeveralChangesOnce) {
  const AuditFinding masq = Finding(AuditSeverity::kError, "nat/KUBE-MARK-MASQ");
  AuditReport first{.change = NodeChange::kOwnershipCleanup};
  AuditReport second{.change = NodeChange::kKubeProxyNftables};
  first.findings = second.findings = {masq};
  const auto news = NewsOf({}, MakeNodeAudit({first, second}, kTime));
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_THAT(news[0].text, HasSubstr("before ownership-cleanup, kube-proxy-nftables: "));
}

}  // namespace
}  // namespace kipt::agent
