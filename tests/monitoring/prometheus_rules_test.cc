// SPDX-License-Identifier: Apache-2.0
//
// deploy/prometheus by promtool: the alerts, their tests, and whether those tests would notice.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/monitoring/monitoring_files.h"
#include "tests/support/matchers.h"
#include "tests/support/run_program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

constexpr char kAlerts[] = "prometheus/alerts.yaml";
constexpr char kAlertsTest[] = "prometheus/alerts_test.yaml";

std::vector<AlertRule> OurAlerts() {
  const auto alerts = AlertRules(DeployText(kAlerts));
  EXPECT_THAT(alerts, IsOk());
  return alerts.ok() ? *alerts : std::vector<AlertRule>();
}

// The rule file with another expression in every alert and without `for`; the tests unchanged.
ProgramResult TestWith(const std::string& expr) {
  std::vector<std::string> lines = absl::StrSplit(DeployText(kAlerts), '\n');
  std::string changed;
  bool inside = false;
  for (const std::string& line : lines) {
    if (absl::StartsWith(line, "        expr:")) {
      inside = true;
      absl::StrAppend(&changed, "        expr: ", expr, "\n");
    } else if (absl::StartsWith(line, "        for:") ||
               (inside && absl::StartsWith(line, "          "))) {
      continue;
    } else {
      inside = false;
      absl::StrAppend(&changed, line, "\n");
    }
  }
  const TemporaryTree tree;
  tree.Write("alerts.yaml", changed);
  tree.Write("alerts_test.yaml", DeployText(kAlertsTest));
  EXPECT_EQ(RunProgram({"promtool", "check", "rules", tree.Path("alerts.yaml")}).exit_code, 0);
  return RunProgram({"promtool", "test", "rules", tree.Path("alerts_test.yaml")});
}

// The alerts of which a check failed that expected some alert to fire, or none.
std::set<std::string> FailedAlerts(const ProgramResult& result, bool expected_to_fire) {
  std::set<std::string> alerts;
  for (const absl::string_view block :
       absl::StrSplit(absl::StrCat(result.out, result.err), "alertname: ")) {
    const std::string name(block.substr(0, block.find(',')));
    if (!absl::StrContains(block, "exp:")) continue;
    if (absl::StrContains(block, "exp:[]") != expected_to_fire) alerts.insert(name);
  }
  return alerts;
}

TEST(PrometheusRulesTest, ArePassedByPromtool) {
  for (const auto& [what, file] : std::vector<std::pair<std::string, std::string>>{
           {"check", kAlerts},
           {"check", "prometheus/recording_rules.yaml"},
           {"test", kAlertsTest},
           {"test", "prometheus/recording_rules_test.yaml"}}) {
    const ProgramResult result = RunProgram({"promtool", what, "rules", DeployPath(file)});
    EXPECT_EQ(result.exit_code, 0) << result;
    EXPECT_THAT(result.out, HasSubstr("SUCCESS"));
  }
}

TEST(PrometheusRulesTest, HaveWhatAnOperatorNeeds) {
  const std::string runbook = DeployText("troubleshooting.md");
  std::set<std::string> headings;
  for (const absl::string_view line : absl::StrSplit(runbook, '\n')) {
    if (!absl::StartsWith(line, "#")) continue;
    headings.insert(absl::AsciiStrToLower(line.substr(line.find_first_not_of("# "))));
  }
  std::set<std::string> names;
  for (AlertRule& alert : OurAlerts()) {
    SCOPED_TRACE(alert.name);
    EXPECT_TRUE(names.insert(alert.name).second) << "twice";
    EXPECT_NE(alert.wait, "");
    EXPECT_THAT(alert.labels["severity"], AnyOf("critical", "warning", "info"));
    EXPECT_THAT(alert.annotations["summary"], Not(HasSubstr("{{"))) << "one text for all series";
    EXPECT_NE(alert.annotations["summary"], "");
    EXPECT_NE(alert.annotations["description"], "");
    const std::string anchor = absl::AsciiStrToLower(alert.name);
    EXPECT_EQ(alert.annotations["runbook_url"],
              "file:///usr/share/doc/kube-iptables-agent/deploy/troubleshooting.md#" + anchor);
    EXPECT_TRUE(headings.contains(anchor)) << "no such heading in deploy/troubleshooting.md";
  }
  EXPECT_GE(names.size(), 15u);
}

TEST(PrometheusRulesTest, AreTestedForFiringAndForNotFiring) {
  std::set<std::string> names;
  for (const AlertRule& alert : OurAlerts()) names.insert(alert.name);
  const ProgramResult silent = TestWith("vector(1) > 2");
  EXPECT_NE(silent.exit_code, 0);
  EXPECT_EQ(FailedAlerts(silent, /*expected_to_fire=*/true), names);
  const ProgramResult loud = TestWith("vector(1)");
  EXPECT_NE(loud.exit_code, 0);
  EXPECT_EQ(FailedAlerts(loud, /*expected_to_fire=*/false), names);
}

}  // namespace
}  // namespace kipt::testing
