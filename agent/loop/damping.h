// SPDX-License-Identifier: Apache-2.0
//
// How often what another writer undoes is repaired. Pure.
#ifndef KIPT_AGENT_LOOP_DAMPING_H_
#define KIPT_AGENT_LOOP_DAMPING_H_

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "agent/loop/attribution.h"
#include "agent/loop/clock.h"
#include "agent/loop/incident.h"
#include "agent/loop/plan.h"
#include "agent/policy/diff.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

inline constexpr absl::Duration kLongestFightWait = absl::Seconds(2);
// All waits for `kube-proxy --cleanup` that begin within such a minute.
inline constexpr absl::Duration kCleanupWait = absl::Seconds(5);
inline constexpr absl::Duration kCleanupMinute = absl::Minutes(1);

// Whether kube-proxy removed `jump` (by one of its programs), and whether that process still runs.
// Nothing: another process did, or it is not known which.
using KubeProxyLives = std::function<std::optional<bool>(const Item& jump)>;

// Whether `change` puts back what kube-proxy empties on each of its syncs.
bool IsRefill(const Change& change, const Plan& plan);

// Repairs less and less often what another writer undoes as fast as it is repaired, and everything
// else at once. Times are steady, except Fight::since.
//
//   * A fight is one item undone within a second of its repair, ten times running. From then on
//     each repair waits: 100 ms at first, doubling up to kLongestFightWait. A minute without the
//     item being undone ends the fight. Repairs do not wait for events, because flushing an empty
//     chain is no commit.
//   * kube-proxy 1.27 and later (--iptables-localhost-nodeports) empties filter KUBE-FIREWALL of
//     IPv4 on each sync and puts back only its own rule. Our other rules there are refilled at
//     once, but at most once a second, and that is never a fight. If kube-proxy's own rule is
//     missing too, another process emptied the chain, and nothing waits.
//   * `kube-proxy --cleanup` deletes the jump to KUBE-POSTROUTING and then that chain, which the
//     kernel refuses while a jump leads there; up to 1.33 it deletes the chain twice. So in a
//     cleanup (Plan::in_cleanup) of services that existed at this check or the one before, or by a
//     process named kube-proxy, the chain and the jump wait until that process has ended, for
//     kCleanupWait at most. All else is repaired meanwhile.
class Damping {
 public:
  // No wait is longer than `sync_period` either.
  explicit Damping(absl::Duration sync_period)
      : longest_wait_(std::min(sync_period, kLongestFightWait)) {}

  // The plan's changes that may be made at `now`. All changes of a chain are held back together,
  // with the jumps to a chain that is not created.
  std::vector<Change> Allow(
      const Plan& plan, SteadyTime now,
      const KubeProxyLives& lives = [](const Item&) { return std::nullopt; });
  // The writers that undid what the last Allow found undone. Before NoteApplied.
  void NoteWriters(const WriterAttribution& attribution);
  void NoteApplied(absl::Span<const Change> applied, SteadyTime now);

  // When something held back may be done, or something put back in a fight has lasted
  // (Fight::missing); else InfiniteFuture.
  SteadyTime next() const { return next_; }

  // Fights that go on, with Fight::since; those that began or ended since the last call.
  std::vector<Fight> fights(SteadyTime now) const;
  std::vector<Fight> TakeBegun();
  std::vector<Fight> TakeEnded() { return std::exchange(ended_, {}); }

 private:
  // The repairs of one item, and the fight over it, if `fighting`.
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

  // Considers `plan`'s families only; nothing is known of the others.
  void NoteUndone(const Plan& plan, SteadyTime now);
  void NoteUndone(bool refill, SteadyTime now, const Item& item, Repair& repair);
  void Forget(SteadyTime now);
  struct Cleanup {
    // The wait of this minute, as of the last check.
    SteadyTime minute = SteadyTime::InfinitePast();
    SteadyTime seen;
    absl::Duration waited;
    bool waiting = false;
    SteadyTime next;  // while waiting
    // Plan::with_services of the last check.
    bool services = false;
  };
  void NoteCleanups(const Plan& plan, SteadyTime now, const KubeProxyLives& lives);

  absl::Duration longest_wait_;
  std::map<Item, Repair> repairs_;
  std::map<netlink::Family, Cleanup> cleanups_;
  SteadyTime next_ = SteadyTime::InfiniteFuture();
  std::vector<Item> begun_;
  std::vector<Fight> ended_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_DAMPING_H_
