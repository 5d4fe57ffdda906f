// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/round.h
//
// One round of the agent's loop: why it looked, what it found and did. What a host program logs,
// counts or ignores. A value.
#ifndef KIPT_AGENT_LOOP_ROUND_H_
#define KIPT_AGENT_LOOP_ROUND_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "agent/loop/agent_state.h"
#include "agent/loop/incident.h"
#include "agent/loop/reconciler.h"

namespace kipt::agent {

enum class Trigger : uint8_t {
  kStart,   // the first attempt
  kChange,  // somebody committed, or may have
  kTimer,   // --iptables-sync-period
  kRetry,   // an attempt failed, or a repair was held back
  kConfig,  // what is wanted has changed
};
absl::string_view TriggerName(Trigger trigger);  // "start", "change", ...

// The kernel's answers and locks have deadlines of 5 s. This is far above what the rules of 10,000
// services take, on iptables-legacy too: what takes longer waited for a deadline, and is logged.
inline constexpr absl::Duration kSlowRound = absl::Seconds(3);

struct Round {
  Trigger trigger = Trigger::kStart;
  // Commits of others that were noticed since the last round, and events that were lost.
  uint64_t external_changes = 0;
  uint64_t lost_events = 0;
  // From the start of the look to its end, or the end of the repair.
  absl::Duration duration = absl::ZeroDuration();
  // status is not OK where there is no backend yet, too.
  SyncReport report = {};
  // What was retired, and what somebody claims; where that was looked at (round.report.retired
  // is that of one-shot commands).
  std::optional<RetireReport> retirement = {};
  // What was in place at the last round, is wanted as it was then, and had to be repaired. Not what
  // kube-proxy empties on each of its syncs: see refills.
  std::optional<Incident> incident = {};
  // Rules of ours put back into KUBE-FIREWALL, which kube-proxy 1.27 and later empties on each
  // sync.
  int refills = 0;
  // Fights that began with this round, and chains whose fight ended.
  std::vector<Fight> fights_begun = {};
  std::vector<Fight> fights_ended = {};
  // Families whose phase or reason changed, as they are now.
  std::vector<FamilyState> changed_families = {};
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_ROUND_H_
