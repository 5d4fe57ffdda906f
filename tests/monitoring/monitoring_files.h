// SPDX-License-Identifier: Apache-2.0
//
// What deploy/prometheus and deploy/grafana ask Prometheus, as values.
#ifndef KIPT_TESTS_MONITORING_MONITORING_FILES_H_
#define KIPT_TESTS_MONITORING_MONITORING_FILES_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kipt::testing {

struct AlertRule {
  std::string name;
  std::string expr;
  std::string wait;  // `for`
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
};

// One target of a panel, or the values of a variable.
struct DashboardQuery {
  // "Repair latency/A", "variable node"
  std::string name;
  // PromQL; of a variable the series with the label that it lists.
  std::string expr;
  // Of a variable.
  std::string label = {};
};

// deploy/NAME, and its text; empty where there is none.
std::string DeployPath(const std::string& name);
std::string DeployText(const std::string& name);

// The dashboards of deploy, sorted, as DeployText takes them: "grafana/dashboard.json".
std::vector<std::string> DashboardFiles();

// The alerting rules of a rule file. Any other kind of rule is an error.
absl::StatusOr<std::vector<AlertRule>> AlertRules(const std::string& yaml);
// All targets of all panels, and all variables that are queries.
absl::StatusOr<std::vector<DashboardQuery>> DashboardQueries(const std::string& json);

// `expr` with "$NAME" and "${NAME}" as `values` has them. A variable that `values` does not have
// stays, and Prometheus refuses it.
std::string Substitute(std::string expr, const std::map<std::string, std::string>& values);

// The variables that `expr` has, without "$" and "${}".
std::set<std::string> VariablesIn(const std::string& expr);

// The metrics that `expr` names: whatever has a selector, or the prefix of one of the agent's.
std::set<std::string> MetricsIn(const std::string& expr);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_MONITORING_MONITORING_FILES_H_
