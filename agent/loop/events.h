// SPDX-License-Identifier: Apache-2.0
//
// What the agent reports at the end of each round.
#ifndef KIPT_AGENT_LOOP_EVENTS_H_
#define KIPT_AGENT_LOOP_EVENTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "agent/loop/agent_state.h"
#include "agent/loop/incident.h"

namespace kipt::agent {

enum class Trigger : uint8_t {
  kStart,   // the first attempt
  kChange,  // another process committed, or may have
  kTimer,   // --iptables-sync-period
  kRetry,   // an attempt failed, or a repair was held back
  kConfig,  // the desired state has changed
};
absl::string_view TriggerName(Trigger trigger);  // "start", "change", ...

// A round: why the agent checked, what it found and did.
struct Event {
  Trigger trigger = Trigger::kStart;
  // From the start of the check to its end, or the end of the repair.
  absl::Duration duration = absl::ZeroDuration();
  std::optional<Incident> incident = {};
  std::optional<LostProxyJumps> lost_proxy_jumps = {};
  // Rules of ours put back into KUBE-FIREWALL, which kube-proxy 1.27 and later empties on each
  // sync.
  int refills = 0;
  std::vector<Fight> fights_begun = {};
  std::vector<Fight> fights_ended = {};
  std::optional<NewForeignRules> foreign_rules = {};
  // Findings about rules of other programs that the round before did not have.
  std::vector<Blocker> new_blockers = {};
  // Whose phase or reason changed.
  std::vector<FamilyState> changed_families = {};
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_EVENTS_H_
