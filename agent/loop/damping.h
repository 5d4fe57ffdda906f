// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/damping.h
//
// Keeps the agent from fighting: what another writer undoes as fast as it is repaired is repaired
// less and less often, and everything else as before. Times are steady; Fight::since is not.
//
//   * A fight is one item undone within a second of its repair, ten times running. From then on it
//     waits before each repair: 100 ms at first, doubling up to kLongestFightWait. A minute without
//     the item being undone ends the fight.
//   * So what a fight leaves missing is repaired within kLongestFightWait of the last check that
//     found it undone. Silence does not prove that the other process has stopped: flushing an empty
//     chain is no commit, so no event reports it.
//   * kube-proxy 1.27 and later (--iptables-localhost-nodeports) empties filter KUBE-FIREWALL of
//     IPv4 on each of its syncs and puts back only its own rule. What else we want there is
//     refilled at once, but at most once a second, and never taken for a fight. Where kube-proxy's
//     own rule is missing too, it was somebody else, and nothing waits.
//   * `kube-proxy --cleanup` deletes the jump to KUBE-POSTROUTING and then that chain, which the
//     kernel refuses while a jump leads there, with all else of that transaction. So while
//     kube-proxy leaves (Plan::in_cleanup) the jump is put back only after kCleanupWait, or as soon
//     as its chains are gone.
#ifndef KIPT_AGENT_LOOP_DAMPING_H_
#define KIPT_AGENT_LOOP_DAMPING_H_

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "agent/loop/clock.h"
#include "agent/loop/events.h"
#include "agent/loop/plan.h"
#include "agent/loop/suspects.h"

namespace kipt::agent {

inline constexpr absl::Duration kLongestFightWait = absl::Seconds(2);
inline constexpr absl::Duration kCleanupWait = absl::Seconds(5);

// Whether `change` puts back what kube-proxy empties on each of its syncs.
bool IsRefill(const Change& change, const Plan& plan);

class Damping {
 public:
  // No wait is longer than `sync_period` either.
  explicit Damping(absl::Duration sync_period)
      : longest_wait_(std::min(sync_period, kLongestFightWait)) {}

  // What of the plan's changes may be done at `now`. All changes of a chain are held back together,
  // and with them what would jump to a chain that is not made.
  std::vector<Change> Allow(const Plan& plan, SteadyTime now);
  // Who undid what the last Allow found undone. Before NoteApplied.
  void NoteSuspects(const Suspects& suspects);
  // These were done.
  void NoteApplied(absl::Span<const Change> applied, SteadyTime now);

  // When something that was held back may be done, or something that was put back in a fight has
  // lasted (Fight::missing); InfiniteFuture where there is neither.
  SteadyTime next() const { return next_; }

  // Fights that go on, those that began and those that ended since they were last asked for.
  // Fight::since is set in those that go on.
  std::vector<Fight> fights(SteadyTime now) const;
  std::vector<Fight> TakeBegun();
  std::vector<Fight> TakeEnded() { return std::exchange(ended_, {}); }

 private:
  // Of one item, and the fight over it, if `fighting`.
  struct Repair {
    SteadyTime repaired = SteadyTime::InfinitePast();
    // When it was found undone; nothing while it stands.
    std::optional<SteadyTime> undone;
    SteadyTime held_until = SteadyTime::InfinitePast();
    // What it was undone by, as far as can be told: see IsRefill.
    bool refill = false;
    bool addition = false;
    bool fighting = false;
    SteadyTime fighting_since;
    // `rounds`: times running that it was undone within a second.
    Fight fight;
  };

  // What was undone, as far as `plan` knows of it: of families that it is not about, nothing is
  // new.
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
