// SPDX-License-Identifier: Apache-2.0
#include "tests/monitoring/monitoring_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "agent/config/yaml_document.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

using agent::YamlDocument;
using agent::YamlNode;

std::string TextOf(const YamlNode& map, const char* key) {
  const YamlNode* node = map.Find(key);
  return node == nullptr ? "" : node->text;
}

std::map<std::string, std::string> MapOf(const YamlNode& map, const char* key) {
  std::map<std::string, std::string> entries;
  if (const YamlNode* node = map.Find(key)) {
    for (const agent::YamlEntry& entry : node->entries) entries[entry.key.text] = entry.value.text;
  }
  return entries;
}

// "label_values(SERIES, LABEL)": Grafana's own, no PromQL.
absl::StatusOr<DashboardQuery> VariableQuery(const std::string& name, const std::string& text) {
  static const std::regex form(R"(label_values\((.*), *(\w+)\))");
  std::smatch match;
  if (!std::regex_match(text, match, form)) {
    return absl::InvalidArgumentError(absl::StrCat("variable ", name, ": ", text));
  }
  return DashboardQuery{.name = "variable " + name, .expr = match[1], .label = match[2]};
}

void AppendPanel(const nlohmann::json& panel, std::vector<DashboardQuery>& queries) {
  for (const auto& target : panel.value("targets", nlohmann::json::array())) {
    queries.push_back(
        {.name = absl::StrCat(panel.value("title", ""), "/", target.value("refId", "")),
         .expr = target.value("expr", "")});
  }
  // Of a row that is folded.
  for (const auto& inner : panel.value("panels", nlohmann::json::array())) {
    AppendPanel(inner, queries);
  }
}

}  // namespace

std::string DeployPath(const std::string& name) { return absl::StrCat(KIPT_DEPLOY_DIR, "/", name); }

std::string DeployText(const std::string& name) { return FileText(DeployPath(name)); }

std::vector<std::string> DashboardFiles() {
  std::vector<std::string> files;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(DeployPath("grafana"), none)) {
    if (entry.path().extension() == ".json") {
      files.push_back("grafana/" + entry.path().filename().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<std::vector<AlertRule>> AlertRules(const std::string& yaml) {
  const absl::StatusOr<YamlDocument> document = YamlDocument::Parse("alerts.yaml", yaml);
  if (!document.ok()) return document.status();
  std::vector<AlertRule> alerts;
  const YamlNode* groups = document->root().Find("groups");
  if (groups == nullptr) return absl::InvalidArgumentError("no groups");
  for (const YamlNode& group : groups->items) {
    const YamlNode* rules = group.Find("rules");
    if (rules == nullptr) return absl::InvalidArgumentError("a group without rules");
    for (const YamlNode& rule : rules->items) {
      alerts.push_back({.name = TextOf(rule, "alert"),
                        .expr = TextOf(rule, "expr"),
                        .wait = TextOf(rule, "for"),
                        .labels = MapOf(rule, "labels"),
                        .annotations = MapOf(rule, "annotations")});
      if (alerts.back().name.empty() || alerts.back().expr.empty()) {
        return absl::InvalidArgumentError(absl::StrCat("line ", rule.line, ": no alert"));
      }
    }
  }
  return alerts;
}

absl::StatusOr<std::vector<DashboardQuery>> DashboardQueries(const std::string& json) {
  const auto dashboard = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!dashboard.is_object()) return absl::InvalidArgumentError("no JSON object");
  std::vector<DashboardQuery> queries;
  for (const auto& panel : dashboard.value("panels", nlohmann::json::array())) {
    AppendPanel(panel, queries);
  }
  const auto templating = dashboard.value("templating", nlohmann::json::object());
  for (const auto& variable : templating.value("list", nlohmann::json::array())) {
    if (variable.value("type", "") != "query") continue;
    const auto query =
        VariableQuery(variable.value("name", ""), variable["query"].value("query", ""));
    if (!query.ok()) return query.status();
    queries.push_back(*query);
  }
  return queries;
}

std::string Substitute(std::string expr, const std::map<std::string, std::string>& values) {
  // Longer names first: "$node" begins "$node_pool".
  for (auto value = values.rbegin(); value != values.rend(); ++value) {
    absl::StrReplaceAll({{absl::StrCat("${", value->first, "}"), value->second},
                         {absl::StrCat("$", value->first), value->second}},
                        &expr);
  }
  return expr;
}

std::set<std::string> VariablesIn(const std::string& expr) {
  static const std::regex names(R"(\$\{?(\w+)\}?)");
  std::set<std::string> variables;
  for (std::sregex_iterator match(expr.begin(), expr.end(), names), end; match != end; ++match) {
    variables.insert((*match)[1]);
  }
  return variables;
}

std::set<std::string> MetricsIn(const std::string& expr) {
  static const std::regex strings(R"("[^"]*")");
  static const std::regex names(
      R"(([A-Za-z_:][\w:]*)(?=\s*\{)|\b(kube_iptables_agent_\w+|kubernetes_\w+|process_\w+))");
  const std::string bare = std::regex_replace(expr, strings, "\"\"");
  std::set<std::string> metrics;
  for (std::sregex_iterator match(bare.begin(), bare.end(), names), end; match != end; ++match) {
    metrics.insert(match->str());
  }
  return metrics;
}

}  // namespace kipt::testing
