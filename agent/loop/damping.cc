// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/damping.h"

#include <algorithm>
#include <set>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/time/clock.h"
#include "agent/policy/chain_diff.h"
#include "agent/policy/ownership.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;

// A repair that is undone this soon was undone on purpose, or by a loop.
constexpr absl::Duration kSoon = absl::Seconds(1);
constexpr int kRoundsOfAFight = 10;
constexpr absl::Duration kFirstFightWait = absl::Milliseconds(100);
constexpr absl::Duration kQuiet = absl::Seconds(60);
constexpr absl::Duration kBetweenRefills = absl::Seconds(1);
// Far more than our rules: a bound against forms with other bits that a hostile writer makes up.
constexpr size_t kMaxItems = 256;
// Enough for a log line.
constexpr size_t kMaxWriters = 12;
// Between two checks. Far more than a Lookout notes.
constexpr size_t kMaxRecent = 64;

// Generations start again after 2^32.
bool IsAfter(uint32_t generation, uint32_t other) {
  return static_cast<int32_t>(generation - other) > 0;
}

// False where there is no room for it.
bool Add(const Writer& writer, std::vector<Writer>& writers) {
  if (absl::c_any_of(writers, [&](const Writer& known) { return known.IsSame(writer); })) {
    return true;
  }
  if (writers.size() >= kMaxWriters) return false;
  writers.push_back(writer);
  return true;
}

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

Item ItemOf(const netlink::Operation& operation) {
  const netlink::ChainId& chain = netlink::ChainOf(operation);
  const auto* add = std::get_if<netlink::AddRule>(&operation);
  return {chain, add != nullptr ? RuleText(chain, add->rule) : netlink::ToString(operation)};
}

bool IsAddition(const Change& change) {
  return std::holds_alternative<netlink::AddRule>(change.operation) ||
         std::holds_alternative<netlink::CreateChain>(change.operation) ||
         std::holds_alternative<netlink::WakeTable>(change.operation);
}

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

void Suspects::Window::Ascribe(const Commits& commits) {
  if (IsAfter(commits.first, until) || !IsAfter(commits.last, after)) return;
  if (!Add(commits.writer, writers)) others = true;
}

bool Suspects::IsComplete(const Window& window) const {
  return reported_ && !IsAfter(window.until, *reported_);
}

void Suspects::NoteCommits(absl::Span<const Commits> commits, bool others) {
  std::set<Window*> windows;
  for (const auto& [item, window] : missing_) windows.insert(window.get());
  for (Window* window : windows) {
    if (!IsComplete(*window)) window->others |= others;
    for (const Commits& one : commits) window->Ascribe(one);
  }
  recent_others_ |= others;
  for (const Commits& one : commits) {
    if (!reported_ || IsAfter(one.last, *reported_)) reported_ = one.last;
    const bool fits = recent_.size() < kMaxRecent;
    if (fits) recent_.push_back(one);
    recent_others_ |= !fits;
  }
}

void Suspects::NoteCheck(const Plan& plan) {
  std::map<netlink::Family, std::shared_ptr<Window>> windows;
  for (const netlink::Family family : plan.families) {
    const auto [checked, first] = checked_.try_emplace(family, plan.generation);
    const auto window = windows[family] =
        std::make_shared<Window>(Window{.after = std::exchange(checked->second, plan.generation),
                                        .until = plan.generation,
                                        .others = recent_others_ || first});
    for (const Commits& one : recent_) window->Ascribe(one);
  }
  const auto before = std::exchange(missing_, {});
  for (const auto& [item, window] : before) {
    if (windows.count(item.chain.family) == 0) missing_[item] = window;
  }
  for (const Change& change : plan.diff.changes) {
    Item item = ItemOf(change.operation);
    const auto known = before.find(item);
    missing_[std::move(item)] =
        known != before.end() ? known->second : windows[netlink::ChainOf(change.operation).family];
  }
  std::erase_if(recent_, [this](const Commits& one) {
    return absl::c_none_of(
        checked_, [&one](const auto& checked) { return IsAfter(one.last, checked.second); });
  });
  if (windows.size() == checked_.size()) recent_others_ = false;
}

void Suspects::NoteApplied(absl::Span<const Change> applied) {
  for (const Change& change : applied) missing_.erase(ItemOf(change.operation));
}

void Suspects::Forget() {
  missing_.clear();
  checked_.clear();
}

Suspected Suspects::Of(absl::Span<const Item> items) const {
  Suspected result = {.writers = {}, .others = false};
  for (const Item& item : items) {
    const auto found = missing_.find(item);
    if (found == missing_.end()) {
      result.others = true;
      continue;
    }
    const Window& window = *found->second;
    result.others |= window.others || !IsComplete(window);
    for (const Writer& writer : window.writers) result.others |= !Add(writer, result.writers);
  }
  return result;
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
  waiting = WithDependents(waiting, plan.diff.changes);
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
