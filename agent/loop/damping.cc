// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/damping.h"

#include <algorithm>
#include <set>
#include <variant>

#include "absl/algorithm/container.h"
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
    const auto* add = std::get_if<netlink::AddRule>(&change.operation);
    if (add == nullptr) continue;
    const auto* jump = std::get_if<netlink::Jump>(&add->rule.target);
    const ChainId& chain = add->chain;
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
  if (!absl::c_linear_search(plan.claimed_by_kube_proxy, add->chain.family)) return false;
  const std::optional<KubeletForm> form = RecognizeKubeletForm(add->chain, add->rule);
  return form && !form->shared_with_kube_proxy &&
         absl::c_none_of(plan.diff.changes, [&](const Change& other) {
           return KubeProxyWouldHaveLeftIt(other, add->chain);
         });
}

void Damping::NoteUndone(const Plan& plan, SteadyTime now) {
  std::set<Item> undone;
  for (const Change& change : plan.diff.changes) {
    const Item item = ItemOf(change.operation);
    const auto repair = repairs_.find(item);
    if (repair != repairs_.end()) NoteUndone(IsRefill(change, plan), now, item, repair->second);
    undone.insert(item);
  }
  for (auto& [item, repair] : repairs_) {
    if (!absl::c_linear_search(plan.families, item.chain.family)) continue;
    // It stands, or another process has put it back.
    if (undone.count(item) == 0) repair.undone.reset();
  }
}

void Damping::NoteUndone(bool refill, SteadyTime now, const Item& item, Repair& repair) {
  // More is gone by now than kube-proxy takes: all of the chain would wait with this.
  if (std::exchange(repair.refill, refill) && !refill) {
    repair.held_until = SteadyTime::InfinitePast();
  }
  if (repair.undone) return;
  repair.undone = now;
  if (refill) {
    repair.held_until = repair.repaired + kBetweenRefills;
    return;
  }
  Fight& fight = repair.fight;
  const bool soon = now - repair.repaired <= kSoon;
  if (soon) ++fight.rounds;
  if (!soon && !repair.fighting) fight.rounds = 0;
  if (fight.rounds < kRoundsOfAFight) return;
  if (!std::exchange(repair.fighting, true)) {
    fight = {.chain = item.chain, .item = item.text, .rounds = fight.rounds, .wait = kFirstWait};
    repair.fighting_since = now;
    begun_.push_back(item);
  } else if (soon) {
    fight.wait = std::min(2 * fight.wait, longest_wait_);
  }
  repair.held_until = now + fight.wait;
}

void Damping::Forget(SteadyTime now) {
  std::erase_if(repairs_, [&](const auto& entry) {
    const Repair& repair = entry.second;
    if (repair.undone || now - repair.repaired < kQuiet) return false;
    if (repair.fighting) ended_.push_back(repair.fight);
    return true;
  });
}

std::set<ChainId> Damping::NoteCleanups(const Plan& plan, SteadyTime now) {
  std::set<ChainId> waiting;
  for (const netlink::Family family : plan.families) {
    if (!absl::c_linear_search(plan.in_cleanup, family)) {
      cleanups_.erase(family);
      continue;
    }
    const SteadyTime until = cleanups_.try_emplace(family, now).first->second + kCleanupWait;
    if (until <= now) continue;
    waiting.insert({family, netlink::Table::kNat, "POSTROUTING"});
    next_ = std::min(next_, until);
  }
  return waiting;
}

std::vector<Change> Damping::Allow(const Plan& plan, SteadyTime now) {
  Forget(now);
  NoteUndone(plan, now);
  next_ = SteadyTime::InfiniteFuture();
  std::set<ChainId> waiting = NoteCleanups(plan, now);
  for (auto& [item, repair] : repairs_) {
    const bool lasted = !repair.undone && now - repair.repaired >= kSoon;
    repair.fight.missing = repair.fighting && repair.addition && !lasted;
    if (!repair.undone) {
      if (repair.fight.missing) next_ = std::min(next_, repair.repaired + kSoon);
      continue;
    }
    if (repair.held_until <= now) continue;
    waiting.insert(item.chain);
    next_ = std::min(next_, repair.held_until);
  }
  waiting = WithDependents(std::move(waiting), plan.diff.changes);
  std::vector<Change> allowed = plan.diff.changes;
  std::erase_if(allowed, [&](const Change& change) {
    return waiting.count(netlink::ChainOf(change.operation)) != 0;
  });
  return allowed;
}

void Damping::NoteSuspects(const Suspects& suspects) {
  for (auto& [item, repair] : repairs_) {
    if (!repair.fighting || !repair.undone) continue;
    Suspected suspected = suspects.Of({&item, 1});
    // The one that fought before is still the best guess.
    if (!suspected.writers.empty()) repair.fight.by = std::move(suspected);
  }
}

void Damping::NoteApplied(absl::Span<const Change> applied, SteadyTime now) {
  for (const Change& change : applied) {
    const Item item = ItemOf(change.operation);
    if (repairs_.size() >= kMaxItems && repairs_.count(item) == 0) continue;
    Repair& repair = repairs_[item];
    repair.repaired = now;
    repair.undone.reset();
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
