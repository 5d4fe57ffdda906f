// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/damping.h
//
// Which processes may have done the damage that a check finds (Suspects), and how often damage that
// recurs is repaired (Damping). Both are pure.
#ifndef KIPT_AGENT_LOOP_DAMPING_H_
#define KIPT_AGENT_LOOP_DAMPING_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "agent/loop/clock.h"
#include "agent/loop/events.h"
#include "agent/loop/lookout.h"
#include "agent/loop/plan.h"

namespace kipt::agent {

inline constexpr absl::Duration kLongestFightWait = absl::Seconds(2);
inline constexpr absl::Duration kCleanupWait = absl::Seconds(5);

// What is damaged, repaired and fought over: one rule, wherever in its chain, or one chain.
struct Item {
  netlink::ChainId chain;
  // "-A INPUT -j KUBE-FIREWALL", "-D INPUT ..." for a rule that is to be deleted, ":KUBE-FIREWALL
  // - [0:0]" for a chain.
  std::string text;

  auto operator<=>(const Item&) const = default;
};
Item ItemOf(const netlink::Operation& operation);

// Whether a rule or chain is missing, or no packet comes to it, until `change` is made.
bool IsAddition(const Change& change);

// Whether `change` puts back what kube-proxy empties on each of its syncs.
bool IsRefill(const Change& change, const Plan& plan);

// Names the processes that committed between the last check that found an item in place and the
// first that found it damaged. They stay the suspects however late it is repaired.
class Suspects {
 public:
  // These were reported. `others`: and some by unknown writers.
  void NoteCommits(absl::Span<const Commits> commits, bool others);
  // A check found `plan`.
  void NoteCheck(const Plan& plan);
  // These were made: what is missing from now on was damaged anew.
  void NoteApplied(absl::Span<const Change> applied);
  // The desired state has changed: what is missing now was not damaged.
  void Forget();

  // Who may have damaged `items`. Anybody, where they were not missing at the last check.
  Suspected Of(absl::Span<const Item> items) const;

 private:
  // Between two checks: the generations after `after`, up to `until`.
  struct Window {
    uint32_t after = 0;
    uint32_t until = 0;
    std::vector<Writer> writers = {};
    bool others = false;

    // Adds their writer, if some of them are of these generations.
    void Ascribe(const Commits& commits);
  };

  // Whether all commits of `window` have been reported: the kernel is a moment late.
  bool IsComplete(const Window& window) const;

  std::map<Item, std::shared_ptr<Window>> missing_;
  // Commits that the next check may be about.
  std::vector<Commits> recent_;
  // There were some by unknown writers.
  bool recent_others_ = false;
  // Generations: of each family's last check, and the latest that was reported.
  std::map<netlink::Family, uint32_t> checked_;
  std::optional<uint32_t> reported_;
};

// Repairs less and less often what another writer undoes as fast as it is repaired, and everything
// else at once. Times are steady, except Fight::since.
//
//   * A fight is one item undone within a second of its repair, ten times running. From then on it
//     waits before each repair: 100 ms at first, doubling up to kLongestFightWait. A minute without
//     the item being undone ends the fight. Until then it is repaired even if nothing happens:
//     flushing an empty chain is no commit, so no event reports that the other process goes on.
//   * kube-proxy 1.27 and later (--iptables-localhost-nodeports) empties filter KUBE-FIREWALL of
//     IPv4 on each of its syncs and puts back only its own rule. Our other rules there are refilled
//     at once, but at most once a second, and that is never a fight. Where kube-proxy's own rule is
//     missing too, another process emptied the chain, and nothing waits.
//   * `kube-proxy --cleanup` deletes the jump to KUBE-POSTROUTING and then that chain. The kernel
//     refuses that and the rest of the transaction while a jump leads there. So in a cleanup
//     (Plan::in_cleanup) the jump is put back after kCleanupWait, or once the chains are gone.
class Damping {
 public:
  // No wait is longer than `sync_period` either.
  explicit Damping(absl::Duration sync_period)
      : longest_wait_(std::min(sync_period, kLongestFightWait)) {}

  // The plan's changes that may be made at `now`. All changes of a chain are held back together,
  // with the jumps to a chain that is not created.
  std::vector<Change> Allow(const Plan& plan, SteadyTime now);
  // Who undid what the last Allow found undone. Before NoteApplied.
  void NoteSuspects(const Suspects& suspects);
  // These were made.
  void NoteApplied(absl::Span<const Change> applied, SteadyTime now);

  // When something that was held back may be done, or something that was put back in a fight has
  // lasted (Fight::missing); InfiniteFuture where there is neither.
  SteadyTime next() const { return next_; }

  // Fights that go on, with Fight::since; those that began or ended since the last call.
  std::vector<Fight> fights(SteadyTime now) const;
  std::vector<Fight> TakeBegun();
  std::vector<Fight> TakeEnded() { return std::exchange(ended_, {}); }

 private:
  // Of one item, and the fight over it, if `fighting`.
  struct Repair {
    SteadyTime repaired = SteadyTime::InfinitePast();
    // When it was found undone; nothing while it is in place.
    std::optional<SteadyTime> undone;
    SteadyTime held_until = SteadyTime::InfinitePast();
    // IsRefill, when it was last undone.
    bool refill = false;
    bool addition = false;
    bool fighting = false;
    SteadyTime fighting_since;
    // `rounds`: times running that it was undone within a second.
    Fight fight;
  };

  // Of `plan`'s families; of the others nothing is known.
  void NoteUndone(const Plan& plan, SteadyTime now);
  void NoteUndone(bool refill, SteadyTime now, const Item& item, Repair& repair);
  void Forget(SteadyTime now);
  // The chains whose changes wait for `kube-proxy --cleanup`.
  std::set<netlink::ChainId> NoteCleanups(const Plan& plan, SteadyTime now);

  absl::Duration longest_wait_;
  std::map<Item, Repair> repairs_;
  // When a cleanup was first seen, while it goes on.
  std::map<netlink::Family, SteadyTime> cleanups_;
  SteadyTime next_ = SteadyTime::InfiniteFuture();
  std::vector<Item> begun_;
  std::vector<Fight> ended_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_DAMPING_H_
