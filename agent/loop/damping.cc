// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/damping.h"

#include <algorithm>
#include <set>
#include <variant>

#include "absl/time/clock.h"
#include "agent/policy/ownership.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;

// A repair that is undone this soon was undone on purpose, or by a loop.
constexpr absl::Duration kSoon = absl::Seconds(1);
constexpr int kRoundsOfAFight = 10;
constexpr absl::Duration kFirstWait = absl::Milliseconds(100);
constexpr absl::Duration kQuiet = absl::Seconds(60);
constexpr absl::Duration kBetweenRefills = absl::Seconds(1);
// Far more than there are rules of ours: a bound against texts that a hostile writer makes up
// (duplicates of ours with counters differ in nothing, but forms with other bits do).
constexpr size_t kMaxItems = 256;

const netlink::Jump* JumpOf(const netlink::Operation& operation) {
  const auto* add = std::get_if<netlink::AddRule>(&operation);
  return add != nullptr ? std::get_if<netlink::Jump>(&add->rule.target) : nullptr;
}

// Whether it makes the chain, or adds to it what kube-proxy puts there itself.
bool KubeProxyWouldHaveLeftIt(const Change& change, const ChainId& chain) {
  if (change.operation == netlink::Operation(netlink::CreateChain{chain})) return true;
  const auto* add = std::get_if<netlink::AddRule>(&change.operation);
  if (add == nullptr || add->chain != chain) return false;
  const std::optional<KubeletForm> form = RecognizeKubeletForm(chain, add->rule);
  return form && form->shared_with_kube_proxy;
}

// `held` and the chains whose changes cannot be done without those of `held`.
std::set<ChainId> WithDependents(std::set<ChainId> held, absl::Span<const Change> changes) {
  std::set<ChainId> not_made;
  for (const Change& change : changes) {
    if (!std::holds_alternative<netlink::CreateChain>(change.operation)) continue;
    const ChainId& chain = netlink::ChainOf(change.operation);
    if (held.count(chain) != 0) not_made.insert(chain);
  }
  for (const Change& change : changes) {
    const netlink::Jump* jump = JumpOf(change.operation);
    const ChainId& chain = netlink::ChainOf(change.operation);
    if (jump != nullptr && not_made.count({chain.family, chain.table, jump->chain}) != 0) {
      held.insert(chain);
    }
  }
  return held;
}

}  // namespace

bool IsRefill(const Change& change, const Plan& plan) {
  const auto* add = std::get_if<netlink::AddRule>(&change.operation);
  if (add == nullptr || add->chain.name != kFirewallChain ||
      add->chain.table != netlink::Table::kFilter) {
    return false;
  }
  const auto& claimed = plan.claimed_by_kube_proxy;
  if (std::find(claimed.begin(), claimed.end(), add->chain.family) == claimed.end()) return false;
  const std::optional<KubeletForm> form = RecognizeKubeletForm(add->chain, add->rule);
  const bool somebody_else_did_it =
      std::any_of(plan.diff.changes.begin(), plan.diff.changes.end(),
                  [&](const Change& other) { return KubeProxyWouldHaveLeftIt(other, add->chain); });
  return form && !form->shared_with_kube_proxy && !somebody_else_did_it;
}

void Damping::NoteUndone(const Change& change, const Plan& plan, SteadyTime now) {
  const auto found = repairs_.find(ItemOf(change.operation));
  if (found == repairs_.end()) return;
  const Item& item = found->first;
  Repair& repair = found->second;
  const bool refill = IsRefill(change, plan);
  // More is gone by now than kube-proxy takes: all of the chain would wait with this.
  if (std::exchange(repair.refill, refill) && !refill)
    repair.held_until = SteadyTime::InfinitePast();
  if (repair.undone != SteadyTime::InfinitePast()) return;
  repair.undone = now;
  if (refill) {
    repair.held_until = repair.repaired + kBetweenRefills;
    return;
  }
  const bool soon = now - repair.repaired <= kSoon;
  if (soon) ++repair.rounds;
  if (!soon && !repair.fighting) repair.rounds = 0;
  if (repair.rounds < kRoundsOfAFight) return;
  if (!repair.fighting) {
    repair.fight = {.chain = item.chain, .item = item.text, .wait = kFirstWait};
    repair.fighting_since = now;
  } else if (soon) {
    repair.fight.wait = std::min(2 * repair.fight.wait, longest_wait_);
  }
  repair.fight.rounds = repair.rounds;
  repair.held_until = now + repair.fight.wait;
  if (!std::exchange(repair.fighting, true)) begun_.push_back(item);
}

void Damping::Forget(SteadyTime now) {
  for (auto it = repairs_.begin(); it != repairs_.end();) {
    const Repair& repair = it->second;
    const bool stands = repair.undone == SteadyTime::InfinitePast();
    if (!stands || now - repair.repaired < kQuiet) {
      ++it;
      continue;
    }
    if (repair.fighting) ended_.push_back(repair.fight);
    it = repairs_.erase(it);
  }
}

// What was undone, as far as `plan` knows of it: of families that it is not about, nothing is new.
void Damping::NoteUndone(const Plan& plan, SteadyTime now) {
  std::set<Item> undone;
  for (const Change& change : plan.diff.changes) {
    undone.insert(ItemOf(change.operation));
    NoteUndone(change, plan, now);
  }
  for (auto& [item, repair] : repairs_) {
    const auto& families = plan.families;
    if (std::find(families.begin(), families.end(), item.chain.family) == families.end()) continue;
    // It stands, or somebody else has put it back.
    if (undone.count(item) == 0) repair.undone = SteadyTime::InfinitePast();
  }
}

std::vector<Change> Damping::Allow(const Plan& plan, SteadyTime now) {
  Forget(now);
  NoteUndone(plan, now);
  next_ = SteadyTime::InfiniteFuture();
  held_.clear();
  std::set<ChainId> waiting;
  for (auto& [item, repair] : repairs_) {
    const bool stands = repair.undone == SteadyTime::InfinitePast();
    const bool lasted = now - repair.repaired >= kSoon;
    repair.fight.missing = repair.fighting && repair.addition && !(stands && lasted);
    if (stands) {
      if (repair.fight.missing) next_ = std::min(next_, repair.repaired + kSoon);
      continue;
    }
    if (repair.held_until <= now) continue;
    waiting.insert(item.chain);
    if (repair.fighting) held_.push_back(item.chain);
    next_ = std::min(next_, repair.held_until);
  }
  waiting = WithDependents(std::move(waiting), plan.diff.changes);
  std::vector<Change> allowed;
  for (const Change& change : plan.diff.changes) {
    if (waiting.count(netlink::ChainOf(change.operation)) == 0) allowed.push_back(change);
  }
  return allowed;
}

void Damping::NoteSuspects(const Suspects& suspects) {
  for (auto& [item, repair] : repairs_) {
    if (!repair.fighting || repair.undone == SteadyTime::InfinitePast()) continue;
    Suspected suspected = suspects.Of({&item, 1});
    // Who fought before still is the best guess.
    if (suspected.writers.empty()) continue;
    repair.fight.writers = std::move(suspected.writers);
    repair.fight.others = suspected.others;
  }
}

void Damping::NoteApplied(absl::Span<const Change> applied, SteadyTime now) {
  for (const Change& change : applied) {
    const Item item = ItemOf(change.operation);
    if (repairs_.size() >= kMaxItems && repairs_.count(item) == 0) continue;
    Repair& repair = repairs_[item];
    repair.repaired = now;
    repair.undone = SteadyTime::InfinitePast();
    repair.addition = IsAddition(change);
    if (repair.fight.missing) next_ = std::min(next_, now + kSoon);
  }
}

std::vector<Fight> Damping::TakeBegun() {
  std::vector<Fight> begun;
  for (const Item& item : std::exchange(begun_, {})) {
    const auto repair = repairs_.find(item);
    if (repair != repairs_.end()) begun.push_back(repair->second.fight);
  }
  return begun;
}

std::vector<Fight> Damping::fights(SteadyTime now) const {
  std::vector<Fight> fights;
  for (const auto& [item, repair] : repairs_) {
    if (!repair.fighting) continue;
    fights.push_back(repair.fight);
    fights.back().since = absl::Now() - (now - repair.fighting_since);
  }
  return fights;
}

}  // namespace kipt::agent
