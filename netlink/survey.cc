// SPDX-License-Identifier: Apache-2.0
#include "netlink/survey.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace kipt::netlink {

std::string ToString(const TableId& table) { return absl::StrCat(table.family, " ", table.name); }

bool IsIptablesTable(const TableId& table) {
  // Each of the five has it.
  return (table.family == "ip" || table.family == "ip6") && HookOfIptables(table.name, "OUTPUT");
}

std::optional<ChainHook> HookOfIptables(absl::string_view table, absl::string_view chain) {
  // The base chains of the two tables that hold nothing of ours.
  struct Row {
    absl::string_view table;
    absl::string_view chain;
    ChainHook hook;
  };
  static constexpr Row kRows[] = {
      {"raw", "PREROUTING", {.hook = NF_INET_PRE_ROUTING, .priority = -300}},
      {"raw", "OUTPUT", {.hook = NF_INET_LOCAL_OUT, .priority = -300}},
      {"security", "INPUT", {.hook = NF_INET_LOCAL_IN, .priority = 50}},
      {"security", "FORWARD", {.hook = NF_INET_FORWARD, .priority = 50}},
      {"security", "OUTPUT", {.hook = NF_INET_LOCAL_OUT, .priority = 50}},
  };
  for (const Row& row : kRows) {
    if (row.table == table && row.chain == chain) return row.hook;
  }
  const std::optional<Table> known = FindTable(table);
  const BaseChain* base = known ? FindBaseChain(*known, chain) : nullptr;
  if (base == nullptr) return std::nullopt;
  return ChainHook{.hook = base->hook,
                   .priority = base->priority,
                   .nat = absl::string_view(base->type) == "nat"};
}

std::optional<ChainHook> HookOf(const TableId& table, const std::string& name,
                                const SurveyChain& chain) {
  if (!chain.base) return std::nullopt;
  return chain.hook ? chain.hook : HookOfIptables(table.name, name);
}

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
