// SPDX-License-Identifier: Apache-2.0
//
// What a round found, and what of it is kept and shown.
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "agent/loop/control_loop.h"
#include "agent/loop/damping.h"
#include "agent/loop/plan.h"
#include "agent/loop/retirer.h"
#include "agent/loop/round.h"
#include "agent/policy/diff.h"
#include "agent/policy/ownership.h"
#include "netlink/kernel_error.h"

namespace kipt::agent {
namespace {

Item ItemOf(const Finding& finding) {
  return {finding.chain, std::string(ConditionName(finding.condition))};
}

}  // namespace

std::vector<Item> ControlLoop::ForeignItems() const {
  std::vector<Item> items;
  if (!foreign_rules_) return items;
  for (const ForeignRule& rule : foreign_rules_->news()) {
    items.push_back({rule.base_chain, rule.text});
  }
  return items;
}

std::vector<ForeignJump> ControlLoop::LostProxyJumpsIn(const Plan& plan) const {
  std::vector<ForeignJump> lost;
  if (plan.torn) return lost;
  absl::c_set_difference(foreign_jumps_, plan.foreign_jumps, std::back_inserter(lost));
  std::erase_if(lost, [&](const ForeignJump& jump) {
    const auto& [family, table, name] = jump.base_chain;
    // `kube-proxy --cleanup` deletes its chains next.
    return !absl::c_linear_search(plan.families, family) ||
           !absl::c_linear_search(plan.with_services, family) ||
           !IsKubeProxyChain({family, table, jump.target});
  });
  return lost;
}

std::vector<Finding> ControlLoop::NewBlockersIn(const Plan& plan) const {
  std::vector<Finding> found;
  // At the start the writers of existing rules are unknown.
  if (state_.last_success == absl::InfinitePast()) return found;
  absl::c_copy_if(plan.diff.findings, std::back_inserter(found), [&](const Finding& finding) {
    return (finding.condition == Condition::kShadowedJump ||
            finding.condition == Condition::kForeignDropsEverything) &&
           absl::c_none_of(state_.findings, [&](const Finding& earlier) {
             return earlier.condition == finding.condition && earlier.chain == finding.chain;
           });
  });
  return found;
}

std::vector<Item> ControlLoop::ForeignChanges(const Plan& plan) const {
  std::vector<Item> items = ForeignItems();
  for (const ForeignJump& jump : LostProxyJumpsIn(plan)) {
    items.push_back({jump.base_chain, absl::StrCat("-j ", jump.target)});
  }
  for (const Finding& finding : NewBlockersIn(plan)) items.push_back(ItemOf(finding));
  return items;
}

void ControlLoop::NoteBlockers(Round& round) {
  for (Finding& finding : NewBlockersIn(round.report.plan)) {
    const Item item = ItemOf(finding);
    round.new_blockers.push_back({std::move(finding), attribution_.Of({&item, 1})});
  }
}

void ControlLoop::NoteLostProxyJumps(Round& round) const {
  LostProxyJumps lost = {.jumps = LostProxyJumpsIn(round.report.plan)};
  if (lost.jumps.empty()) return;
  std::vector<Item> items;
  for (const ForeignJump& jump : lost.jumps) {
    items.push_back({jump.base_chain, absl::StrCat("-j ", jump.target)});
  }
  lost.by = attribution_.Of(items);
  // It cleans up, or changes its mode.
  if (KubeProxyAmong(lost.by.writers, options_.writers)) return;
  round.lost_proxy_jumps = std::move(lost);
}

void ControlLoop::NoteWriters(const SyncReport& report) {
  const bool damaged = !options_.observe && !report.plan.diff.changes.empty();
  if (!damaged && ForeignChanges(report.plan).empty()) return;
  // The kernel reports a commit a moment after its effect can be read, and before it takes ours.
  writer_watch_.Drain();
  // Some may be later than the check, and once drained they do not trigger one.
  if (writer_watch_.seen().changes > 0) pace_.NoteChange();
  const SeenWriters late = writer_watch_.TakeCommits();
  attribution_.NoteCommits(late.commits, late.others);
  damping_.NoteWriters(attribution_);
}

void ControlLoop::NoteForeignRules(Round& round) {
  state_.foreign_rules.reset();
  if (!foreign_rules_) return;
  state_.foreign_rules = foreign_rules_->present();
  if (!foreign_rules_->counts().empty()) {
    round.foreign_rules = NewForeignRules{.rules = foreign_rules_->news(),
                                          .counts = foreign_rules_->counts(),
                                          .by = attribution_.Of(ForeignItems())};
  }
  foreign_rules_->Take();
  attribution_.ForgetAppeared();
}

void ControlLoop::NoteDamage(Round& round, SteadyTime noticed, SteadyTime ended) {
  const SyncReport& report = round.report;
  std::vector<Change> damage;
  std::vector<Item> items;
  for (const Change& change : WithoutNative(report.applied)) {
    const FamilyRecord& record = RecordOf(netlink::ChainOf(change.operation).family);
    if (!record.settled || IsRefused(record, change)) continue;
    if (IsRefill(change, report.plan)) {
      ++round.refills;
    } else {
      damage.push_back(change);
      items.push_back(ItemOf(change.operation));
    }
  }
  std::vector<ForeignJump> before = foreign_jumps_;
  if (!report.plan.torn) {
    const auto was_read = [&](const ForeignJump& jump) {
      return absl::c_linear_search(report.plan.families, jump.base_chain.family);
    };
    std::erase_if(foreign_jumps_, was_read);
    absl::c_copy_if(report.plan.foreign_jumps, std::back_inserter(foreign_jumps_), was_read);
    absl::c_sort(foreign_jumps_);
  }
  if (damage.empty()) return;
  // The current state of a family that failed may be unknown.
  std::erase_if(before, [&](const ForeignJump& jump) {
    return !report.ResultOf(jump.base_chain.family).status.ok();
  });
  round.incident = Incident{.damage = DamageOf(damage),
                            .by = attribution_.Of(items),
                            .latency = ended - noticed,
                            .applying = report.applying};
  absl::c_set_difference(before, foreign_jumps_, std::back_inserter(round.incident->lost_jumps));
  // The incident reports them.
  round.lost_proxy_jumps.reset();
}

void ControlLoop::NoteState(const Round& round) {
  const absl::Time now = absl::Now();
  const SyncReport& report = round.report;
  state_.heartbeat = now;
  state_.last_check = now;
  state_.checks += static_cast<uint64_t>(report.checks);
  if (report.FirstError().ok()) state_.last_success = now;
  Retirement retired;
  if (const std::optional<RetireReport>& done = round.retirement) {
    if (done->applied) retired.changes = done->plan.changes;
    if (done->status.ok()) state_.claimed = done->plan.kept;
    if (done->status.ok() && done->surveyed) {
      state_.foreign_references = done->dependents.reference_counts;
    }
  }
  retired.kept = state_.claimed;
  // Without families there is no plan: others changed the rules until the patience ended.
  const bool was_read = report.status.ok() && !report.plan.families.empty();
  if (was_read || netlink::IsWriteRefused(report.status)) {
    std::vector<Finding> findings = report.plan.diff.findings;
    // A family that waits was not tried again.
    absl::c_copy_if(state_.findings, std::back_inserter(findings), [&](const Finding& earlier) {
      return earlier.condition == Condition::kWriteRefused &&
             waiting_families_.count(earlier.chain.family) != 0 &&
             !absl::c_linear_search(findings, earlier);
    });
    state_.findings = std::move(findings);
  }
  if (was_read) {
    const Plan& plan = report.plan;
    state_.in_place = WithoutNative(plan.diff.in_place);
    state_.stale = WithClaims(WithoutNative(plan.diff.stale), retired);
    state_.of_kube_proxy = plan.diff.of_kube_proxy;
    const bool was_protected = std::exchange(
        state_.martian_protection, MartianProtectionExists(plan.martians, report.applied));
    state_.martians_dropped += CountedSince(martians_counted_, plan.martians.dropped);
    // One file for each interface, so not after every change.
    const bool full = round.periodic || round.trigger != Trigger::kChange;
    if (options_.route_localnet && full) {
      state_.route_localnet = options_.route_localnet();
    }
    if (full || was_protected) {
      state_.martians_dropped_elsewhere.clear();
      if (!ExposedBecause(state_).empty() && options_.who_drops_martians) {
        state_.martians_dropped_elsewhere = options_.who_drops_martians();
      }
    }
  }
  if (!round.incident) return;
  ++state_.incidents;
}

}  // namespace kipt::agent
