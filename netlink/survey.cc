// SPDX-License-Identifier: Apache-2.0
#include "netlink/survey.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace kipt::netlink {

std::string ToString(const TableId& table) { return absl::StrCat(table.family, " ", table.name); }

const SurveyChain* Survey::Find(const TableId& table, const std::string& chain) const {
  const auto chains = tables.find(table);
  if (chains == tables.end()) return nullptr;
  const auto found = chains->second.find(chain);
  return found != chains->second.end() ? &found->second : nullptr;
}

std::string ToString(const TableId& table, const SurveyRule& rule) {
  if (!rule.spelling.empty()) return rule.spelling;
  return ToString(table.family == "ip6" ? Family::kIPv6 : Family::kIPv4, rule);
}

absl::StatusOr<Survey> Sifted(Survey survey, SurveySieve& sieve) {
  for (auto& [table, chains] : survey.tables) {
    for (auto next = chains.begin(); next != chains.end();) {
      const auto at = next++;
      absl::Status status = sieve.Begin(table, at->first, at->second.base);
      if (!status.ok()) return status;
      std::erase_if(at->second.rules, [&](const SurveyRule& rule) { return !sieve.Keep(rule); });
      if (at->second.rules.empty() && !sieve.KeepBare()) chains.erase(at);
    }
  }
  return survey;
}

std::string ToString(const Survey& survey) {
  std::string text;
  for (const auto& [table, chains] : survey.tables) {
    absl::StrAppend(&text, "# ", table.family, "\n*", table.name, "\n");
    for (const auto& [name, chain] : chains) {
      absl::StrAppend(&text, ":", name, " ", chain.policy.empty() ? "-" : chain.policy, " [0:0]\n");
    }
    for (const auto& [name, chain] : chains) {
      for (const SurveyRule& rule : chain.rules) {
        const std::string words = ToString(table, rule);
        absl::StrAppend(&text, "[", rule.counters.packets, ":", rule.counters.bytes, "] -A ", name,
                        words.empty() ? "" : " ", words, "\n");
      }
    }
    text += "COMMIT\n";
  }
  return text;
}

}  // namespace kipt::netlink
