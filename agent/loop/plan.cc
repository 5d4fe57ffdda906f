// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/plan.h"

#include <cstddef>
#include <set>
#include <variant>

#include "absl/algorithm/container.h"
#include "agent/policy/chain_diff.h"
#include "agent/policy/ownership.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::ObservedRule;
using netlink::Table;

// In table nat of `family`: the jump to KUBE-POSTROUTING, and else only that chain or
// KUBE-MARK-MASQ. A flush of the table also empties KUBE-MARK-DROP.
bool LacksWhatACleanupDeletes(const Diff& diff, Family family) {
  bool jump = false;
  for (const Change& change : diff.changes) {
    const ChainId& chain = netlink::ChainOf(change.operation);
    if (chain.family != family || chain.table != Table::kNat) continue;
    if (std::holds_alternative<netlink::DeleteRule>(change.operation)) return false;
    jump |= IsPostroutingJump(change, family);
    if (!IsOfPostrouting(change, family) && chain.name != kMarkMasqChain) return false;
  }
  return jump;
}

std::vector<ForeignJump> ForeignJumps(const netlink::Snapshot& snapshot) {
  std::set<ForeignJump> jumps;
  for (const auto& [id, chain] : snapshot.chains) {
    if (!netlink::IsBaseChain(id)) continue;
    for (const ObservedRule& rule : chain.rules) {
      const std::string* target = netlink::JumpTarget(rule);
      if (target != nullptr && !IsKubeletChain({id.family, id.table, *target})) {
        jumps.insert({id, *target});
      }
    }
  }
  return {jumps.begin(), jumps.end()};
}

// Copies of more would take memory.
constexpr size_t kMostKeptRules = 1000;

size_t RulesIn(const netlink::Snapshot& snapshot) {
  return absl::c_accumulate(snapshot.chains, size_t{0}, [](size_t sum, const auto& chain) {
    return sum + chain.second.rules.size();
  });
}

// Also how rules are written, which their own comparison leaves out.
bool SameRules(const netlink::Snapshot& a, const netlink::Snapshot& b) {
  const auto same_rule = [](const ObservedRule& rule, const ObservedRule& other) {
    return rule == other && rule.xt == other.xt && rule.unlistable == other.unlistable;
  };
  return a.dormant == b.dormant && a.native == b.native &&
         absl::c_equal(a.chains, b.chains, [&](const auto& chain, const auto& other) {
           return chain.first == other.first && chain.second.hooked == other.second.hooked &&
                  absl::c_equal(chain.second.rules, other.second.rules, same_rule);
         });
}

}  // namespace

bool IsPostroutingJump(const Change& change, Family family) {
  const auto* add = std::get_if<netlink::AddRule>(&change.operation);
  const auto* jump = add == nullptr ? nullptr : std::get_if<netlink::Jump>(&add->rule.target);
  return jump != nullptr && jump->chain == kPostroutingChain && add->chain.family == family;
}

bool IsOfPostrouting(const Change& change, Family family) {
  const ChainId& chain = netlink::ChainOf(change.operation);
  return IsPostroutingJump(change, family) ||
         (chain.family == family && chain.table == Table::kNat && chain.name == kPostroutingChain);
}

Item ItemOf(const netlink::Operation& operation) {
  const netlink::ChainId& chain = netlink::ChainOf(operation);
  const auto* add = std::get_if<netlink::AddRule>(&operation);
  return {chain, add != nullptr ? RuleText(chain, add->rule) : netlink::ToString(operation)};
}

Plan Compare(const PolicyInput& input, const RuleSupport& support,
             const netlink::Snapshot& observed) {
  Plan plan{.generation = observed.generation,
            .families = input.families,
            .diff = ComputeDiff(input, observed, support),
            .claimed_by_kube_proxy = {},
            .with_services = {},
            .in_cleanup = {},
            .foreign_jumps = ForeignJumps(observed),
            .martians = FindMartianProtection(observed)};
  for (const Family family : netlink::kFamilies) {
    if (IsClaimedByKubeProxy(observed, family)) plan.claimed_by_kube_proxy.push_back(family);
    const bool services = observed.Find({family, Table::kNat, "KUBE-SERVICES"}) != nullptr;
    if (services) plan.with_services.push_back(family);
    if ((!services || KubeProxyLeaves(observed, family)) &&
        LacksWhatACleanupDeletes(plan.diff, family)) {
      plan.in_cleanup.push_back(family);
    }
  }
  return plan;
}

Plan LastComparison::Compare(const PolicyInput& input, const RuleSupport& support,
                             const netlink::Snapshot& observed) {
  if (plan_ && input == input_ && support == support_ && SameRules(observed, observed_)) {
    plan_->generation = observed.generation;
    plan_->martians = FindMartianProtection(observed);
    return *plan_;
  }
  plan_.reset();
  if (RulesIn(observed) > kMostKeptRules) return agent::Compare(input, support, observed);
  input_ = input;
  support_ = support;
  observed_ = observed;
  return plan_.emplace(agent::Compare(input, support, observed));
}

}  // namespace kipt::agent
