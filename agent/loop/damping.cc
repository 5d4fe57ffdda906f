// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/damping.h"

#include <algorithm>
#include <set>
#include <variant>

#include "agent/policy/kubelet_forms.h"
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

void Damping::NoteUndone(const Change& change, const Plan& plan, absl::Span<const Writer> writers,
                         absl::Time now) {
  const ChainId& chain = netlink::ChainOf(change.operation);
  const auto found = items_.find({chain, netlink::ToString(change.operation)});
  if (found == items_.end()) return;
  Item& item = found->second;
  const bool refill = IsRefill(change, plan);
  // More is gone by now than kube-proxy takes: all of the chain would wait with this.
  if (std::exchange(item.refill, refill) && !refill) item.held_until = absl::InfinitePast();
  if (item.undone != absl::InfinitePast()) return;
  item.undone = now;
  if (refill) {
    item.held_until = item.repaired + kBetweenRefills;
    return;
  }
  const bool soon = now - item.repaired <= kSoon;
  if (soon) ++item.rounds;
  if (!soon && !item.fighting) item.rounds = 0;
  if (item.rounds < kRoundsOfAFight) return;
  if (!item.fighting) {
    item.fight = {.chain = chain, .item = found->first.second, .since = now, .wait = kFirstWait};
  } else if (soon) {
    item.fight.wait = std::min(2 * item.fight.wait, longest_wait_);
  }
  item.fight.rounds = item.rounds;
  if (!writers.empty()) item.fight.writers.assign(writers.begin(), writers.end());
  item.held_until = now + item.fight.wait;
  if (!std::exchange(item.fighting, true)) begun_.push_back(item.fight);
}

void Damping::Forget(absl::Time now) {
  for (auto item = items_.begin(); item != items_.end();) {
    const Item& it = item->second;
    const bool stands = it.undone == absl::InfinitePast();
    if (!stands || now - it.repaired < kQuiet) {
      ++item;
      continue;
    }
    if (it.fighting) ended_.push_back(it.fight);
    item = items_.erase(item);
  }
}

std::vector<Change> Damping::Allow(const Plan& plan, absl::Span<const Writer> writers,
                                   absl::Time now) {
  Forget(now);
  const std::vector<Change>& changes = plan.diff.changes;
  std::set<Key> undone;
  for (const Change& change : changes) {
    undone.insert({netlink::ChainOf(change.operation), netlink::ToString(change.operation)});
    NoteUndone(change, plan, writers, now);
  }
  for (auto& [key, item] : items_) {
    // It stands, or somebody else has put it back.
    if (undone.count(key) == 0) item.undone = absl::InfinitePast();
  }

  next_ = absl::InfiniteFuture();
  held_.clear();
  std::set<ChainId> waiting;
  for (const auto& [key, item] : items_) {
    if (item.undone == absl::InfinitePast() || item.held_until <= now) continue;
    waiting.insert(key.first);
    if (item.fighting) held_.push_back(key.first);
    next_ = std::min(next_, item.held_until);
  }
  waiting = WithDependents(std::move(waiting), changes);
  std::vector<Change> allowed;
  for (const Change& change : changes) {
    if (waiting.count(netlink::ChainOf(change.operation)) == 0) allowed.push_back(change);
  }
  return allowed;
}

void Damping::NoteApplied(absl::Span<const Change> applied, absl::Time now) {
  for (const Change& change : applied) {
    const Key key = {netlink::ChainOf(change.operation), netlink::ToString(change.operation)};
    if (items_.size() >= kMaxItems && items_.count(key) == 0) continue;
    Item& item = items_[key];
    item.repaired = now;
    item.undone = absl::InfinitePast();
  }
}

std::vector<Fight> Damping::fights() const {
  std::vector<Fight> fights;
  for (const auto& [key, item] : items_) {
    if (item.fighting) fights.push_back(item.fight);
  }
  return fights;
}

}  // namespace kipt::agent
