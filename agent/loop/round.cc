// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/round.h"

#include <string>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/loop/damping.h"
#include "agent/policy/chain_diff.h"
#include "agent/policy/rule_forms.h"
#include "agent/text/printable.h"
#include "netlink/kernel_error.h"
#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

using netlink::AddRule;
using netlink::ChainId;
using netlink::CreateChain;
using netlink::DeleteRule;

constexpr size_t kMostFightsTold = 3;

std::string Place(const ChainId& chain) {
  return absl::StrCat(netlink::TableName(chain.table), "/", chain.name);
}

}  // namespace

std::vector<DamagedItem> DamageOf(absl::Span<const Change> changes) {
  std::vector<DamagedItem> damage;
  std::set<ChainId> missing;
  for (const Change& change : changes) {
    const auto* creation = std::get_if<CreateChain>(&change.operation);
    // A base chain is created for the first jump in it, which is the damage.
    if (creation == nullptr || IsBaseChain(creation->chain)) continue;
    missing.insert(creation->chain);
    damage.push_back(
        {creation->chain, DamageKind::kChainMissing, absl::StrCat(":", creation->chain.name)});
  }
  for (const Change& change : changes) {
    const ChainId& chain = netlink::ChainOf(change.operation);
    if (std::holds_alternative<netlink::WakeTable>(change.operation)) {
      damage.push_back(
          {chain, DamageKind::kTableDormant, absl::StrCat("*", netlink::TableName(chain.table))});
    }
    if (missing.count(chain) != 0) continue;
    const auto* deletion = std::get_if<DeleteRule>(&change.operation);
    if (const auto* addition = std::get_if<AddRule>(&change.operation); addition != nullptr) {
      const netlink::Rule& rule = addition->rule;
      const DamageKind kind = ChangesRule<DeleteRule>(changes, chain, rule)
                                  ? DamageKind::kRuleMisplaced
                              : IsBaseChain(chain) ? DamageKind::kJumpMissing
                                                   : DamageKind::kRuleMissing;
      damage.push_back({chain, kind, RuleText(chain, rule)});
    } else if (deletion != nullptr && !ChangesRule<AddRule>(changes, chain, deletion->rule)) {
      damage.push_back({chain, DamageKind::kRuleUnwanted, RuleText(chain, deletion->rule)});
    }
  }
  return damage;
}

FamilyState JudgeFamily(netlink::Family family, const SyncReport& report,
                        absl::Span<const Fight> fights, bool observe) {
  if (const absl::Status status = report.ResultOf(family).status; !status.ok()) {
    const bool refused = netlink::IsWriteRefused(status);
    const std::string key = refused ? std::string(ConditionName(Condition::kWriteRefused))
                                    : absl::StatusCodeToString(status.code());
    return {.family = family,
            .phase = FamilyPhase::kFailed,
            .reason = absl::StrCat(refused ? key + ": " : "", status.message()),
            .key = key};
  }
  std::vector<std::string> reasons, keys;
  const std::vector<Change> changes = report.PendingOf(family);
  const int pending = static_cast<int>(changes.size());
  const bool observed = observe && pending > 0;
  bool broken = false;
  bool missing = !observe && absl::c_any_of(changes, [&](const Change& change) {
    return IsAddition(change) && !IsRefill(change, report.plan);
  });
  if (observed) {
    reasons.push_back(absl::StrCat(pending, pending == 1 ? " change is" : " changes are",
                                   " needed, and not made (observe)"));
    for (const Change& change : changes) keys.push_back(ItemOf(change.operation).text);
  }
  size_t fought = 0;
  for (const Fight& fight : fights) {
    if (fight.chain.family != family) continue;
    missing |= fight.missing;
    keys.push_back(absl::StrCat("fight ", Place(fight.chain)));
    if (++fought > kMostFightsTold) continue;
    reasons.push_back(absl::StrCat("OwnershipFight over ", GoQuote(fight.item), " in ",
                                   Place(fight.chain), fight.missing ? ", which is missing" : "",
                                   ", repaired less and less often"));
  }
  if (fought > kMostFightsTold) {
    reasons.push_back(absl::StrCat("and ", fought - kMostFightsTold, " more fights"));
  }
  for (const Finding& finding : report.plan.diff.findings) {
    if (finding.chain.family != family || !NeedsAttention(finding)) continue;
    broken |= IsCritical(finding);
    reasons.push_back(absl::StrCat(ConditionName(finding.condition), " in ", Place(finding.chain),
                                   ": ", finding.message));
    keys.push_back(absl::StrCat(ConditionName(finding.condition), " ", Place(finding.chain)));
  }
  if (missing && reasons.empty())
    reasons.emplace_back("the missing rules or chains are not made yet");
  return {.family = family,
          .phase = missing || broken ? FamilyPhase::kFailed
                   : observed        ? FamilyPhase::kObserved
                   : reasons.empty() ? FamilyPhase::kInPlace
                                     : FamilyPhase::kDegraded,
          .reason = absl::StrJoin(reasons, "; "),
          .key = absl::StrJoin(keys, ","),
          .pending_changes = pending};
}

bool Update(FamilyState judged, absl::Time now, FamilyState& state) {
  const bool changed = judged.phase != state.phase || judged.key != state.key;
  judged.since = changed ? now : state.since;
  state = std::move(judged);
  return changed;
}

}  // namespace kipt::agent
