// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/family_phase.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/loop/damping.h"

namespace kipt::agent {
namespace {

constexpr size_t kMostFightsTold = 3;

FamilyVerdict Failed(const absl::Status& status) {
  return {.phase = FamilyPhase::kFailed,
          .reason = std::string(status.message()),
          .key = absl::StatusCodeToString(status.code())};
}

std::string Place(const netlink::ChainId& chain) {
  return absl::StrCat(netlink::TableName(chain.table), "/", chain.name);
}

}  // namespace

FamilyVerdict JudgeFamily(netlink::Family family, const SyncReport& report,
                          absl::Span<const Fight> fights, bool observe) {
  if (const absl::Status status = report.StatusOf(family); !status.ok()) return Failed(status);
  std::vector<std::string> reasons;
  std::vector<std::string> keys;
  const std::vector<Change> changes = report.PendingOf(family);
  const int pending = static_cast<int>(changes.size());
  const bool observed = observe && pending > 0;
  bool missing = !observe && std::any_of(changes.begin(), changes.end(), [&](const Change& change) {
    return IsAddition(change) && !IsRefill(change, report.plan);
  });
  if (observed) {
    reasons.push_back(absl::StrCat(pending, pending == 1 ? " change is" : " changes are",
                                   " wanted, and not made (observe)"));
    keys.push_back(absl::StrCat("observe ", pending));
    for (const Change& change : changes) {
      keys.push_back(ItemOf(change.operation).text);
    }
  }
  size_t fought = 0;
  for (const Fight& fight : fights) {
    if (fight.chain.family != family) continue;
    missing |= fight.missing;
    keys.push_back(absl::StrCat("fight ", Place(fight.chain)));
    if (++fought > kMostFightsTold) continue;
    reasons.push_back(absl::StrCat("OwnershipFight over \"", fight.item, "\" in ",
                                   Place(fight.chain), fight.missing ? ", which is missing" : "",
                                   ", repaired less and less often"));
  }
  if (fought > kMostFightsTold) {
    reasons.push_back(absl::StrCat("and ", fought - kMostFightsTold, " more fights"));
  }
  for (const Finding& finding : report.plan.diff.findings) {
    if (finding.chain.family != family || !NeedsAttention(finding)) continue;
    reasons.push_back(absl::StrCat(ConditionName(finding.condition), " in ", Place(finding.chain),
                                   ": ", finding.message));
    keys.push_back(absl::StrCat(ConditionName(finding.condition), " ", Place(finding.chain)));
  }
  if (missing && reasons.empty()) reasons.emplace_back("what is missing was not made yet");
  const FamilyPhase phase = observed          ? FamilyPhase::kObserved
                            : missing         ? FamilyPhase::kFailed
                            : reasons.empty() ? FamilyPhase::kInPlace
                                              : FamilyPhase::kDegraded;
  return {.phase = phase,
          .reason = absl::StrJoin(reasons, "; "),
          .key = absl::StrJoin(keys, ","),
          .pending_changes = pending};
}

bool Update(const FamilyVerdict& verdict, absl::Time now, FamilyState& state, std::string& key) {
  const bool changed = verdict.phase != state.phase || verdict.key != key;
  if (changed) state.since = now;
  state.phase = verdict.phase;
  state.reason = verdict.reason;
  state.pending_changes = verdict.pending_changes;
  key = verdict.key;
  return changed;
}

}  // namespace kipt::agent
