// SPDX-License-Identifier: Apache-2.0
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
#include "agent/loop/reconciler.h"
#include "agent/loop/retirer.h"

namespace kipt::agent {

// A round that takes this long waited for a deadline (5 s for the kernel's answers and locks), and
// is logged. 10,000 services take far less, on iptables-legacy too.
inline constexpr absl::Duration kSlowRound = absl::Seconds(3);

// An Event with what this program logs and counts.
struct Round : Event {
  // It checks what no event reports: modules, the node's settings, leftovers. Once in a sync
  // period, however often other programs change rules or a write is refused.
  bool periodic = false;
  // Since the last round: commits of other processes that were noticed, and events that were lost.
  uint64_t external_changes = 0;
  uint64_t lost_events = 0;
  // status is not OK where there is no backend yet, too.
  SyncReport report = {};
  // What was retired, and what is claimed; where that was checked.
  std::optional<RetireReport> retirement = {};
};

// What `changes` repair. A missing chain is one item, and so is a rule that moves.
std::vector<DamagedItem> DamageOf(absl::Span<const Change> changes);

// The state of `family` after `report`, with the `fights` that go on.
FamilyState JudgeFamily(netlink::Family family, const SyncReport& report,
                        absl::Span<const Fight> fights, bool observe = false);

// Replaces `state` by `judged`. Returns whether the phase or its reason has changed, at `now`.
bool Update(FamilyState judged, absl::Time now, FamilyState& state);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_ROUND_H_
