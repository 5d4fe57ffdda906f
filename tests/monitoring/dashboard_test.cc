// SPDX-License-Identifier: Apache-2.0
//
// The dashboards of deploy/grafana as files; what their queries answer is in fleet_audits_test.cc.

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/monitoring/monitoring_files.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

// What Grafana itself puts in.
constexpr absl::string_view kOfGrafana[] = {"__interval", "__range", "__rate_interval"};

class DashboardTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    dashboard_ = nlohmann::json::parse(DeployText(GetParam()), nullptr, false);
    ASSERT_TRUE(dashboard_.is_object());
  }

  bool HasVariable(absl::string_view name) const {
    for (const auto& variable : dashboard_.at("templating").at("list")) {
      if (variable.value("name", "") == name) return true;
    }
    return false;
  }

  nlohmann::json dashboard_;
};

INSTANTIATE_TEST_SUITE_P(EveryFile, DashboardTest, ::testing::ValuesIn(DashboardFiles()),
                         [](const auto& file) {
                           const std::string name = file.param;
                           const size_t start = name.find('/') + 1;
                           return name.substr(start, name.find('.') - start);
                         });

TEST(DashboardFilesTest, AreThoseOfTheOverviewAndOfChangesUnderDifferentNames) {
  EXPECT_THAT(DashboardFiles(), ElementsAre("grafana/changes.json", "grafana/dashboard.json"));
  std::set<std::string> uids;
  std::set<std::string> titles;
  for (const std::string& file : DashboardFiles()) {
    const auto dashboard = nlohmann::json::parse(DeployText(file), nullptr, false);
    EXPECT_TRUE(uids.insert(dashboard.value("uid", "")).second) << file;
    EXPECT_TRUE(titles.insert(dashboard.value("title", "")).second) << file;
  }
}

TEST_P(DashboardTest, CanBeImportedTwiceAndIsThenOne) {
  EXPECT_THAT(dashboard_.value("uid", ""), StartsWith("kube-iptables-agent"));
  EXPECT_FALSE(dashboard_.contains("id")) << "the number that it had in a database";
  EXPECT_FALSE(dashboard_.contains("__inputs")) << "the data source is a variable";
}

TEST_P(DashboardTest, EveryPanelHasADescriptionAndTheChosenDataSource) {
  std::set<int> ids;
  for (const auto& panel : dashboard_.at("panels")) {
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
    ASSERT_FALSE(panel.at("targets").empty());
    for (const auto& target : panel.at("targets")) {
      EXPECT_EQ(target.at("datasource").at("uid"), "${datasource}");
    }
  }
}

// Series of recording rules have colons in their names and know only the job.
TEST_P(DashboardTest, EveryQueryIsOfTheChosenJobNodesAndInstances) {
  const auto queries = DashboardQueries(DeployText(GetParam()));
  ASSERT_THAT(queries, IsOk());
  size_t panels = 0;
  for (const auto& panel : dashboard_.at("panels")) panels += panel.at("type") != "row" ? 1 : 0;
  ASSERT_GE(queries->size(), panels);
  std::string chosen = R"({job="$job")";
  for (const char* name : {"node", "instance"}) {
    if (HasVariable(name)) absl::StrAppend(&chosen, ", ", name, "=~\"$", name, "\"");
  }
  for (const DashboardQuery& query : *queries) {
    if (!query.label.empty()) continue;
    const bool recorded = query.expr.find(':') < query.expr.find('{');
    EXPECT_THAT(query.expr, HasSubstr(recorded ? R"({job="$job")" : chosen)) << query.name;
    EXPECT_THAT(query.expr, Not(HasSubstr("[5m]"))) << "$__rate_interval follows the zoom";
  }
}

TEST_P(DashboardTest, EveryVariableIsUsedAndEveryOneThatIsUsedExists) {
  const auto queries = DashboardQueries(DeployText(GetParam()));
  ASSERT_THAT(queries, IsOk());
  std::set<std::string> used = {"datasource"};
  for (const DashboardQuery& query : *queries) {
    const std::set<std::string> names = VariablesIn(query.expr);
    used.insert(names.begin(), names.end());
  }
  for (const auto& variable : dashboard_.at("templating").at("list")) {
    EXPECT_EQ(used.erase(variable.value("name", "")), 1U) << variable.at("name");
  }
  for (const absl::string_view name : kOfGrafana) used.erase(std::string(name));
  EXPECT_THAT(used, IsEmpty());
}

}  // namespace
}  // namespace kipt::testing
