// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/round.h
//
// One round of the agent's loop, and what follows from it: what was damaged, and the state of each
// family. Pure.
#ifndef KIPT_AGENT_LOOP_ROUND_H_
#define KIPT_AGENT_LOOP_ROUND_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "agent/loop/events.h"
#include "agent/loop/plan.h"
#include "agent/loop/reconciler.h"

namespace kipt::agent {

// Far longer than the rules of 10,000 services take, on iptables-legacy too. A round that takes
// this long waited for a deadline (5 s for the kernel's answers and locks), and is logged.
inline constexpr absl::Duration kSlowRound = absl::Seconds(3);

// An Event with what this program logs and counts.
struct Round : Event {
  // Since the last round: commits of other processes that were noticed, and events that were lost.
  uint64_t external_changes = 0;
  uint64_t lost_events = 0;
  // status is not OK where there is no backend yet, too.
  SyncReport report = {};
  // What was retired, and what is claimed; where that was checked.
  std::optional<RetireReport> retirement = {};
};

// What was wrong, derived from what repairs it. A missing chain is one item, and so is a rule that
// is deleted in one place and added in another.
std::vector<DamagedItem> DamageOf(absl::Span<const Change> changes);

// The state of `family` after `report`, with the `fights` that go on.
FamilyState JudgeFamily(netlink::Family family, const SyncReport& report,
                        absl::Span<const Fight> fights, bool observe = false);

// Replaces `state` by `judged`. True: the phase or its reason has changed, at `now`.
bool Update(FamilyState judged, absl::Time now, FamilyState& state);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_ROUND_H_
