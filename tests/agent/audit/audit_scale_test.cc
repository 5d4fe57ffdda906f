// SPDX-License-Identifier: Apache-2.0
//
// An audit and an explanation of a node with 10,000 services of five endpoints each: 170,000 rules
// in 60,000 chains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/audit.h"
#include "agent/audit/explain.h"
#include "agent/audit/finding.h"
#include "tests/agent/audit/audited.h"
#include "tests/support/process_cost.h"
#include "tests/support/surveyed.h"

namespace kipt::agent {
namespace {

using ::testing::SizeIs;

constexpr int kServices = 10000;
constexpr int kEndpoints = 5;

netlink::SurveyRule Rule(const std::string& text, const std::string& jump) {
  return testing::Surveyed(text, jump);
}

std::string Address(int network, int host) {
  return absl::StrCat("10.", network, ".", host / 250, ".", host % 250 + 1);
}

void AddService(int number, FamilyChains::Chains& nat) {
  const std::string name = absl::StrCat("namespace-", number % 50, "/service-", number, ":http");
  const std::string service = absl::StrCat("KUBE-SVC-", 1000000000000000 + number);
  const std::string to =
      absl::StrCat("-d ", Address(96, number), "/32 -p tcp -m comment --comment \"", name,
                   " cluster IP\" -m tcp --dport 80 -j ");
  nat["KUBE-SERVICES"].rules.push_back(Rule(to + service, service));
  auto& rules = nat[service].rules;
  rules.push_back(Rule("! -s 10.180.0.0/16 " + to + "KUBE-MARK-MASQ", "KUBE-MARK-MASQ"));
  for (int i = 0; i < kEndpoints; ++i) {
    const int pod = number * kEndpoints + i;
    const std::string endpoint = absl::StrCat("KUBE-SEP-", 1000000000000000 + pod);
    const std::string address = Address(180, pod % 60000);
    rules.push_back(Rule(absl::StrCat("-m comment --comment \"", name, " -> ", address,
                                      ":8080\" -m statistic --mode random --probability "
                                      "0.33333333349 -j ",
                                      endpoint),
                         endpoint));
    nat[endpoint].rules = {
        Rule(absl::StrCat("-s ", address, "/32 -m comment --comment \"", name,
                          "\" -j KUBE-MARK-MASQ"),
             "KUBE-MARK-MASQ"),
        Rule(absl::StrCat("-p tcp -m comment --comment \"", name,
                          "\" -m tcp -j DNAT --to-destination ", address, ":8080"),
             "")};
  }
}

netlink::Survey LargeNode() {
  netlink::Survey survey = SurveyOf("nft", ReadTestdata("rulesets/kube-proxy-1.28-A-v4.save"));
  auto& nat = survey.tables[{"ip", "nat"}];
  nat["KUBE-SERVICES"].rules.clear();
  for (int number = 0; number < kServices; ++number) AddService(number, nat);
  nat["OFFICE"].rules.push_back(Rule("-s 192.168.7.0/24 -j KUBE-MARK-MASQ", "KUBE-MARK-MASQ"));
  return survey;
}

// Of this process, from now on; the most that it had, in MiB.
void ForgetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }
int PeakMebibytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!absl::StartsWith(line, "VmHWM:")) continue;
    int kibibytes = 0;
    const size_t digits = line.find_first_of("0123456789");
    EXPECT_TRUE(absl::SimpleAtoi(line.substr(digits, line.find(' ', digits) - digits), &kibibytes));
    return kibibytes / 1024;
  }
  return 0;
}

TEST(AuditScaleTest, TenThousandServicesAreOneLineOfAnAudit) {
  ForgetPeak();
  const NodeView view = ViewOf(LargeNode());
  const absl::Duration begin = testing::CpuOfThisThread();
  const AuditReport report = Audit(view, AuditOptions());
  const double seconds = absl::ToDoubleSeconds(testing::CpuOfThisThread() - begin);
  RecordProperty("audit_ms", static_cast<int>(seconds * 1000));
  EXPECT_LT(seconds, 2.0);
  ASSERT_THAT(report.findings, SizeIs(3));
  const AuditFinding* own = FindKind(report, AuditKind::kKubeProxyUsesMarkMasq);
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(own->count, static_cast<size_t>(kServices * (1 + kEndpoints) + 9));
  EXPECT_EQ(report.warnings, 1U);
  EXPECT_LT(AuditText(report).size(), 4000U);
  EXPECT_LT(AuditDot(view, report).size(), 10000U);
  RecordProperty("peak_mib", PeakMebibytes());
  EXPECT_LT(PeakMebibytes(), 200);
}

TEST(AuditScaleTest, TenThousandServicesAreAFewLinesBeforeEachChange) {
  NodeView view = ViewOf(LargeNode());
  for (const NodeChange change : {NodeChange::kKubeProxyNftables, NodeChange::kKubeProxyIpvsRemoval,
                                  NodeChange::kIptablesNft}) {
    view.surveys[0].mode = change == NodeChange::kIptablesNft ? "legacy" : "nft";
    ForgetPeak();
    const absl::Duration begin = testing::CpuOfThisThread();
    const AuditReport report = Audit(view, {.change = change});
    const double seconds = absl::ToDoubleSeconds(testing::CpuOfThisThread() - begin);
    const std::string name(ChangeName(change));
    RecordProperty(name + "_ms", static_cast<int>(seconds * 1000));
    RecordProperty(name + "_peak_mib", PeakMebibytes());
    EXPECT_LT(seconds, 2.0) << name;
    EXPECT_LT(AuditText(report).size(), 6000U) << name;
    EXPECT_LT(PeakMebibytes(), 200) << name;
  }
}

TEST(AuditScaleTest, TenThousandServicesAreExplainedByPurpose) {
  const netlink::Survey survey = LargeNode();
  ForgetPeak();
  const absl::Duration begin = testing::CpuOfThisThread();
  const absl::StatusOr<Explanation> explanation =
      Explain(survey, netlink::Family::kIPv4, "nat/KUBE-MARK-MASQ");
  const double seconds = absl::ToDoubleSeconds(testing::CpuOfThisThread() - begin);
  RecordProperty("explain_ms", static_cast<int>(seconds * 1000));
  EXPECT_LT(seconds, 2.0);
  ASSERT_TRUE(explanation.ok());
  EXPECT_EQ(explanation->purposes[0].count, static_cast<size_t>(kServices + 3));
  EXPECT_EQ(explanation->purposes[1].count, static_cast<size_t>(kServices * kEndpoints + 4));
  EXPECT_LT(ExplainText(*explanation).size(), 10000U);
  EXPECT_LT(PeakMebibytes(), 200);
}

}  // namespace
}  // namespace kipt::agent
