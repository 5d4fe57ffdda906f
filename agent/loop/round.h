// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/round.h
//
// One round of the agent's loop as this program logs and counts it, and what follows from it: what
// was damaged, and what is told of each family. Pure.
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

// The kernel's answers and locks have deadlines of 5 s. This is far above what the rules of 10,000
// services take, on iptables-legacy too: what takes longer waited for a deadline, and is logged.
inline constexpr absl::Duration kSlowRound = absl::Seconds(3);

struct Round : Event {
  // Commits of others that were noticed since the last round, and events that were lost.
  uint64_t external_changes = 0;
  uint64_t lost_events = 0;
  // status is not OK where there is no backend yet, too.
  SyncReport report = {};
  // What was retired, and what is claimed; where that was looked at (report.retired is that of
  // one-shot commands).
  std::optional<RetireReport> retirement = {};
};

// What was wrong, from what repairs it. A chain that is missing is one item, and so is a rule that
// is deleted in one place and added in another.
std::vector<DamagedItem> DamageOf(absl::Span<const Change> changes);

// What `report` says of `family`. `fights` are those that go on. `observe`: nothing was to be done,
// whatever is missing.
FamilyState JudgeFamily(netlink::Family family, const SyncReport& report,
                        absl::Span<const Fight> fights, bool observe = false);

// Takes `judged` over into `state`. True where that is another phase, or another reason for it:
// `since` is `now` then.
bool Update(FamilyState judged, absl::Time now, FamilyState& state);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_ROUND_H_
