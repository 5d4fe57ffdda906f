// SPDX-License-Identifier: Apache-2.0
//
// deploy/grafana/dashboard.json as a file; what its queries answer is in live_monitoring_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "tests/monitoring/monitoring_files.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::json Dashboard() {
  auto dashboard = nlohmann::json::parse(DeployText("grafana/dashboard.json"), nullptr, false);
  EXPECT_TRUE(dashboard.is_object());
  return dashboard;
}

TEST(DashboardTest, CanBeImportedTwiceAndIsThenOne) {
  const nlohmann::json dashboard = Dashboard();
  EXPECT_EQ(dashboard.value("uid", ""), "kube-iptables-agent");
  EXPECT_FALSE(dashboard.contains("id")) << "the number it had in somebody's database";
  EXPECT_FALSE(dashboard.contains("__inputs")) << "the data source is a variable";
}

TEST(DashboardTest, EveryPanelSaysWhatItShowsAndTakesTheChosenDataSource) {
  const nlohmann::json dashboard = Dashboard();
  std::set<int> ids;
  for (const auto& panel : dashboard.at("panels")) {
    SCOPED_TRACE(panel.value("title", "no title"));
    EXPECT_TRUE(ids.insert(panel.at("id").get<int>()).second);
    if (panel.at("type") == "row") continue;
    EXPECT_NE(panel.value("title", ""), "");
    EXPECT_NE(panel.value("description", ""), "");
    EXPECT_NE(panel.at("fieldConfig")
                  .at("defaults")
                  .value("unit", panel.at("type") == "heatmap" ? "of the axis" : ""),
              "");
    EXPECT_EQ(panel.at("datasource").at("uid"), "${datasource}");
    for (const auto& target : panel.at("targets")) {
      EXPECT_EQ(target.at("datasource").at("uid"), "${datasource}");
    }
  }
}

TEST(DashboardTest, NoTwoPanelsLieOnEachOther) {
  const nlohmann::json dashboard = Dashboard();
  std::set<std::pair<int, int>> taken;
  for (const auto& panel : dashboard.at("panels")) {
    const auto at = panel.at("gridPos");
    const int left = at.at("x");
    const int top = at.at("y");
    EXPECT_LE(left + at.at("w").get<int>(), 24) << panel.at("title");
    for (int x = left; x < left + at.at("w").get<int>(); ++x) {
      for (int y = top; y < top + at.at("h").get<int>(); ++y) {
        EXPECT_TRUE(taken.insert({x, y}).second) << panel.at("title");
      }
    }
  }
}

TEST(DashboardTest, EveryQueryIsOfTheChosenJobNodesAndInstances) {
  const auto queries = DashboardQueries(DeployText("grafana/dashboard.json"));
  ASSERT_THAT(queries, IsOk());
  EXPECT_GE(queries->size(), 50u);
  for (const DashboardQuery& query : *queries) {
    if (!query.label.empty()) continue;
    EXPECT_THAT(query.expr, HasSubstr(R"({job="$job", node=~"$node", instance=~"$instance")"))
        << query.name;
    EXPECT_THAT(query.expr, Not(HasSubstr("[5m]"))) << "$__rate_interval follows the zoom";
  }
}

TEST(MonitoringFilesTest, FindMetricsAndVariables) {
  EXPECT_EQ(MetricsIn(R"(sum by (le) (rate(a_bucket{x="b{c}"}[5m])) unless on (job)
                         kube_iptables_agent_observing == 1)"),
            (std::set<std::string>{"a_bucket", "kube_iptables_agent_observing"}));
  EXPECT_EQ(
      Substitute("a{n=\"$node\"}[${span}] $nodes", {{"node", "x"}, {"nodes", "y"}, {"span", "1s"}}),
      "a{n=\"x\"}[1s] y");
}

}  // namespace
}  // namespace kipt::testing
