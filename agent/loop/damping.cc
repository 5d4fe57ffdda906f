// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/damping.h"

#include <set>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/time/clock.h"
#include "agent/policy/ownership.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::AddRule;
using netlink::ChainId;

// A repair that is undone this soon was undone on purpose, or by a loop.
constexpr absl::Duration kSoon = absl::Seconds(1);
constexpr int kRoundsOfAFight = 10;
constexpr absl::Duration kFirstFightWait = absl::Milliseconds(100);
constexpr absl::Duration kQuiet = absl::Seconds(60);
constexpr absl::Duration kBetweenRefills = absl::Seconds(1);
// No event reports that a process has ended.
constexpr absl::Duration kCleanupPoll = absl::Milliseconds(100);
// Far more than our rules: a bound against forms with other bits that a hostile writer makes up.
constexpr size_t kMaxItems = 256;
bool Creates(const Change& change, const ChainId& chain) {
  return change.operation == netlink::Operation(netlink::CreateChain{chain});
}

// Whether it creates the chain, or adds to it what kube-proxy puts there itself.
bool KubeProxyWouldHaveLeftIt(const Change& change, const ChainId& chain) {
  if (Creates(change, chain)) return true;
  const auto* add = std::get_if<netlink::AddRule>(&change.operation);
  if (add == nullptr || add->chain != chain) return false;
  const std::optional<KubeletForm> form = RecognizeKubeletForm(chain, add->rule);
  return form && form->shared_with_kube_proxy;
}

// `held` and the chains with a new jump to one that `held` does not create.
std::set<ChainId> WithDependents(const std::set<ChainId>& held, absl::Span<const Change> changes) {
  std::set<ChainId> all = held;
  for (const Change& change : changes) {
    const auto* add = std::get_if<netlink::AddRule>(&change.operation);
    const auto* jump = add == nullptr ? nullptr : std::get_if<netlink::Jump>(&add->rule.target);
    if (jump == nullptr) continue;
    const ChainId target = {add->chain.family, add->chain.table, jump->chain};
    const bool creates =
        absl::c_any_of(changes, [&](const Change& other) { return Creates(other, target); });
    if (creates && held.count(target) != 0) all.insert(add->chain);
  }
  return all;
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
    // It is in place, or another process has put it back.
    if (undone.count(item) == 0) repair.undone.reset();
  }
}

void Damping::NoteUndone(bool refill, SteadyTime now, const Item& item, Repair& repair) {
  // More is missing by now than kube-proxy removes: all of the chain would wait with this.
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
    fight = {
        .chain = item.chain, .item = item.text, .rounds = fight.rounds, .wait = kFirstFightWait};
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

void Damping::NoteCleanups(const Plan& plan, SteadyTime now, const KubeProxyLives& lives) {
  for (const netlink::Family family : plan.families) {
    Cleanup& cleanup = cleanups_[family];
    const bool services = absl::c_linear_search(plan.with_services, family);
    const bool had_services = std::exchange(cleanup.services, services) || services;
    const bool goes_on = std::exchange(cleanup.waiting, false);
    if (goes_on) cleanup.waited += now - cleanup.seen;
    if (!absl::c_linear_search(plan.in_cleanup, family)) continue;
    const auto jump = absl::c_find_if(plan.diff.changes, [family](const Change& change) {
      return IsPostroutingJump(change, family);
    });
    const std::optional<bool> kube_proxy = lives(ItemOf(jump->operation));
    if (!(goes_on || had_services || kube_proxy) || !kube_proxy.value_or(true)) continue;
    if (!goes_on && now - cleanup.minute >= kCleanupMinute) {
      cleanup.minute = now;
      cleanup.waited = absl::ZeroDuration();
    }
    cleanup.seen = now;
    cleanup.waiting = cleanup.waited < kCleanupWait;
    if (!cleanup.waiting) continue;
    cleanup.next = now + (kCleanupWait - cleanup.waited);
    if (kube_proxy) cleanup.next = std::min(cleanup.next, now + kCleanupPoll);
  }
  // Those of a family that this check did not read, too.
  for (const auto& [family, cleanup] : cleanups_) {
    if (cleanup.waiting && cleanup.next > now) next_ = std::min(next_, cleanup.next);
  }
}

std::vector<Change> Damping::Allow(const Plan& plan, SteadyTime now, const KubeProxyLives& lives) {
  Forget(now);
  NoteUndone(plan, now);
  next_ = SteadyTime::InfiniteFuture();
  NoteCleanups(plan, now, lives);
  std::set<ChainId> waiting;
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
  waiting = WithDependents(waiting, plan.diff.changes);
  std::vector<Change> allowed = plan.diff.changes;
  std::erase_if(allowed, [&](const Change& change) {
    const ChainId& chain = netlink::ChainOf(change.operation);
    const auto cleanup = cleanups_.find(chain.family);
    return waiting.count(chain) != 0 || (cleanup != cleanups_.end() && cleanup->second.waiting &&
                                         IsOfPostrouting(change, chain.family));
  });
  return allowed;
}

void Damping::NoteWriters(const WriterAttribution& attribution) {
  for (auto& [item, repair] : repairs_) {
    Suspected suspected = attribution.Of({item});
    // Otherwise the last known one is the best guess.
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
    begun.push_back(repairs_[item].fight);
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
