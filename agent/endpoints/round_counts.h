// SPDX-License-Identifier: Apache-2.0
//
// File: agent/endpoints/round_counts.h
//
// What a round and the state after it come to, in numbers: the arithmetic behind metrics.h, without
// a metrics library. Pure.
#ifndef KIPT_AGENT_ENDPOINTS_ROUND_COUNTS_H_
#define KIPT_AGENT_ENDPOINTS_ROUND_COUNTS_H_

#include <set>

#include "agent/loop/agent_state.h"
#include "agent/loop/incident.h"
#include "agent/loop/reconciler.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// One series of drift_detected_total.
struct Drift {
  netlink::ChainId chain;
  DamageKind kind = DamageKind::kRuleMissing;

  auto operator<=>(const Drift&) const = default;
};

// Everything that can be damaged, in both families: every chain that some kubelet makes, rules in
// those that have any, and the jumps from base chains. A closed set, by the KEP alone.
std::set<Drift> EveryDrift();

// Whether mangle/KUBE-IPTABLES-HINT stands after the round that ended with `report`: found, or just
// made.
bool HintStands(const SyncReport& report, const AgentState& state, netlink::Family family);

// Chains alone: the rules in them and jumps to them are not counted.
int StaleChains(const AgentState& state, netlink::Family family);
// Findings of one kind that the agent does not mend by itself.
int Unmended(const AgentState& state, Condition condition, netlink::Family family);
int ShadowedJumps(const AgentState& state, netlink::Family family);
// Second copies of rules and jumps of ours that `report` removed.
int DuplicatesRemoved(const SyncReport& report);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_ROUND_COUNTS_H_
