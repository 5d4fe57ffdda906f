// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/round_counts.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "agent/policy/chain_diff.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using ChainAndText = std::pair<netlink::ChainId, std::string>;

ChainAndText Spelled(const netlink::ChainId& chain) { return {chain, ChainText(chain)}; }
ChainAndText Spelled(const netlink::ChainId& chain, const netlink::Rule& rule) {
  return {chain, RuleText(chain, rule)};
}

bool Made(const Change& change, const ChainAndText& wanted) {
  if (const auto* chain = std::get_if<netlink::CreateChain>(&change.operation)) {
    return Spelled(chain->chain) == wanted;
  }
  const auto* added = std::get_if<netlink::AddRule>(&change.operation);
  return added != nullptr && Spelled(added->chain, added->rule) == wanted;
}

bool Stands(const SyncReport& report, const AgentState& state, const ChainAndText& wanted) {
  return std::any_of(state.in_place.begin(), state.in_place.end(),
                     [&wanted](const Standing& one) {
                       return one.chain == wanted.first && one.text == wanted.second;
                     }) ||
         std::any_of(report.applied.begin(), report.applied.end(),
                     [&wanted](const Change& change) { return Made(change, wanted); });
}

}  // namespace

std::set<Drift> EveryDrift() {
  std::set<Drift> all;
  for (const netlink::Family family : netlink::kFamilies) {
    for (const DesiredChain& chain : EveryKubeletChain(family)) {
      all.insert({chain.id, DamageKind::kChainMissing});
      if (chain.rules.empty()) continue;
      for (const DamageKind kind :
           {DamageKind::kRuleMissing, DamageKind::kRuleMisplaced, DamageKind::kRuleUnwanted}) {
        all.insert({chain.id, kind});
      }
    }
    for (const DesiredJump& jump : EveryKubeletJump(family)) {
      all.insert({jump.base_chain, DamageKind::kJumpMissing});
      all.insert({jump.base_chain, DamageKind::kRuleUnwanted});
      all.insert({jump.base_chain, DamageKind::kTableDormant});
    }
  }
  return all;
}

bool HintStands(const SyncReport& report, const AgentState& state, netlink::Family family) {
  return Stands(report, state, Spelled({family, netlink::Table::kMangle, std::string(kHintChain)}));
}

int StaleChains(const AgentState& state, netlink::Family family) {
  return static_cast<int>(
      std::count_if(state.stale.begin(), state.stale.end(), [family](const Standing& one) {
        return one.chain.family == family && one.text == ChainText(one.chain);
      }));
}

int Unmended(const AgentState& state, Condition condition, netlink::Family family) {
  return static_cast<int>(
      std::count_if(state.findings.begin(), state.findings.end(), [&](const Finding& one) {
        return one.chain.family == family && one.condition == condition && !one.mended;
      }));
}

int ShadowedJumps(const AgentState& state, netlink::Family family) {
  return Unmended(state, Condition::kShadowedJump, family);
}

int DuplicatesRemoved(const SyncReport& report) {
  return static_cast<int>(
      std::count_if(report.applied.begin(), report.applied.end(), [](const Change& change) {
        return std::holds_alternative<netlink::DeleteRule>(change.operation) &&
               change.reason == "duplicate";
      }));
}

}  // namespace kipt::agent
