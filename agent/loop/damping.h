// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/damping.h
//
// Keeps the agent from fighting: what another writer undoes as fast as it is repaired is repaired
// less and less often, and everything else as before. Pure; times are of a steady clock.
//
//   * A fight is one item undone within a second of its repair, ten times running. From then on it
//     waits before each repair, 100 ms at first, doubling up to `longest_wait`. A minute without
//     the item being undone ends the fight.
//   * kube-proxy 1.27 and later (--iptables-localhost-nodeports) empties filter KUBE-FIREWALL of
//     IPv4 on each of its syncs and puts back only its own rule. What else we want there is
//     refilled at once, but at most once a second, and never taken for a fight. Where kube-proxy's
//     own rule is missing too, it was somebody else, and nothing waits.
#ifndef KIPT_AGENT_LOOP_DAMPING_H_
#define KIPT_AGENT_LOOP_DAMPING_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "agent/loop/agent_state.h"
#include "agent/loop/reconciler.h"

namespace kipt::agent {

// Whether `change` puts back what kube-proxy empties on each of its syncs.
bool IsRefill(const Change& change, const Plan& plan);

class Damping {
 public:
  explicit Damping(absl::Duration longest_wait) : longest_wait_(longest_wait) {}

  // What of the plan's changes may be done at `now`. All changes of a chain are held back together,
  // and with them what would jump to a chain that is not made. `writers` are those who committed
  // since the last look.
  std::vector<Change> Allow(const Plan& plan, absl::Span<const Writer> writers, absl::Time now);
  // These were done.
  void NoteApplied(absl::Span<const Change> applied, absl::Time now);

  // When something that was held back at the last Allow may be done; InfiniteFuture where nothing
  // was.
  absl::Time next() const { return next_; }
  // Where changes were held back at the last Allow, by a fight.
  const std::vector<netlink::ChainId>& held() const { return held_; }

  // Fights that go on, those that began and those that ended since they were last asked for.
  // Fight::since is in the clock of `now`.
  std::vector<Fight> fights() const;
  std::vector<Fight> TakeBegun() { return std::exchange(begun_, {}); }
  std::vector<Fight> TakeEnded() { return std::exchange(ended_, {}); }

 private:
  using Key = std::pair<netlink::ChainId, std::string>;
  struct Item {
    absl::Time repaired = absl::InfinitePast();
    // When it was found undone; InfinitePast while it stands.
    absl::Time undone = absl::InfinitePast();
    absl::Time held_until = absl::InfinitePast();
    // What it was undone by, as far as can be told: see IsRefill.
    bool refill = false;
    // Times running that it was undone within a second.
    int rounds = 0;
    bool fighting = false;
    Fight fight;
  };

  void NoteUndone(const Change& change, const Plan& plan, absl::Span<const Writer> writers,
                  absl::Time now);
  void Forget(absl::Time now);

  absl::Duration longest_wait_;
  std::map<Key, Item> items_;
  absl::Time next_ = absl::InfiniteFuture();
  std::vector<netlink::ChainId> held_;
  std::vector<Fight> begun_;
  std::vector<Fight> ended_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_DAMPING_H_
