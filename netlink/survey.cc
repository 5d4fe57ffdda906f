// SPDX-License-Identifier: Apache-2.0
#include "netlink/survey.h"

#include "absl/strings/str_cat.h"

namespace kipt::netlink {
namespace {

void AppendChain(const std::string& name, const SurveyChain& chain, std::string& text) {
  for (const SurveyRule& rule : chain.rules) {
    absl::StrAppend(&text, "[", rule.counters.packets, ":", rule.counters.bytes, "] -A ", name,
                    rule.text.empty() ? "" : " ", rule.text, "\n");
  }
}

}  // namespace

std::string ToString(const TableId& table) { return absl::StrCat(table.family, " ", table.name); }

const SurveyChain* Survey::Find(const TableId& table, const std::string& chain) const {
  const auto chains = tables.find(table);
  if (chains == tables.end()) return nullptr;
  const auto found = chains->second.find(chain);
  return found != chains->second.end() ? &found->second : nullptr;
}

SurveyRule ToSurveyRule(Family family, const ObservedRule& rule) {
  SurveyRule result;
  result.text = ToString(family, rule);
  result.marks_tested = MarksTested(rule);
  result.marks_set = MarksSet(rule);
  result.labels_set = LabelsSet(rule);
  result.counters = rule.counters;
  if (const std::string* jump = JumpTarget(rule)) result.jump = *jump;
  if (const OpaqueRule* opaque = rule.opaque()) {
    result.unconditional = opaque->unconditional;
    result.terminal = opaque->terminal;
  } else {
    result.unconditional = IsUnconditional(*rule.rule());
    result.terminal = IsTerminal(rule.rule()->target);
  }
  return result;
}

std::string ToString(const Survey& survey) {
  std::string text;
  for (const auto& [table, chains] : survey.tables) {
    absl::StrAppend(&text, "# ", table.family, "\n*", table.name, "\n");
    for (const auto& [name, chain] : chains) {
      absl::StrAppend(&text, ":", name, " ", chain.policy.empty() ? "-" : chain.policy, " [0:0]\n");
    }
    for (const auto& [name, chain] : chains) AppendChain(name, chain, text);
    text += "COMMIT\n";
  }
  return text;
}

}  // namespace kipt::netlink
