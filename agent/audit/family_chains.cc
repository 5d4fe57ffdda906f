// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/family_chains.h"

#include <algorithm>

#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

const FamilyChains::Chains& NoChains() {
  static const FamilyChains::Chains* const kNone = new FamilyChains::Chains();
  return *kNone;
}

}  // namespace

absl::string_view JumpOf(const netlink::SurveyRule& rule) {
  const std::string* jump = JumpTarget(rule);
  return jump == nullptr ? absl::string_view() : *jump;
}

FamilyChains::FamilyChains(const netlink::Survey& survey, netlink::Family family)
    : survey_(survey), family_(family), name_(netlink::FamilyName(family)) {}

netlink::TableId FamilyChains::Id(absl::string_view table) const {
  return {.family = name_, .name = std::string(table)};
}

const FamilyChains::Chains& FamilyChains::In(absl::string_view table) const {
  const auto found = survey_.tables.find(Id(table));
  return found == survey_.tables.end() ? NoChains() : found->second;
}

const netlink::SurveyChain* FamilyChains::Find(absl::string_view table,
                                               absl::string_view chain) const {
  return survey_.Find(Id(table), std::string(chain));
}

bool FamilyChains::HangsOnBase(absl::string_view table, absl::string_view chain,
                               absl::string_view from) const {
  const auto& chains = In(table);
  return std::any_of(chains.begin(), chains.end(), [&](const auto& entry) {
    if (!entry.second.base || (!from.empty() && entry.first != std::string(from))) return false;
    const auto& rules = entry.second.rules;
    return std::any_of(rules.begin(), rules.end(),
                       [&](const netlink::SurveyRule& rule) { return JumpOf(rule) == chain; });
  });
}

bool FamilyChains::HasAnywhere(absl::string_view chain) const {
  return Has("mangle", chain) || Has("nat", chain) || Has("filter", chain);
}

}  // namespace kipt::agent
