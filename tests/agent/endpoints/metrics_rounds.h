// SPDX-License-Identifier: Apache-2.0
//
// Rounds and states written down by hand, for tests of what is counted.
#ifndef KIPT_TESTS_AGENT_ENDPOINTS_METRICS_ROUNDS_H_
#define KIPT_TESTS_AGENT_ENDPOINTS_METRICS_ROUNDS_H_

#include <string>
#include <utility>
#include <vector>

#include "agent/loop/agent_state.h"
#include "agent/loop/round.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "tests/support/observed.h"

namespace kipt::agent {

// The state after everything of cleanup mode was found in place, in both families.
inline AgentState StateInPlace() {
  const PolicyInput ruleset = Wanting(Mode::kCleanup, netlink::kFamilies, MarkBits{});
  const Diff diff = ComputeDiff(ruleset, Made(ruleset).snapshot());
  AgentState state;
  state.emulated_version = {1, 27};
  state.mode = Mode::kCleanup;
  state.iptables_mode = "nft";
  for (const netlink::Family family : netlink::kFamilies) {
    state.families.push_back({.family = family, .phase = FamilyPhase::kInPlace});
  }
  state.in_place = diff.in_place;
  state.martian_protection = true;
  state.last_success = absl::FromUnixSeconds(1'700'000'000);
  return state;
}

// A round that counts for something everywhere.
inline Round BusyRound() {
  Round round;
  round.external_changes = 3;
  round.lost_events = 2;
  round.duration = absl::Milliseconds(2);
  round.report.families = {{netlink::Family::kIPv4, absl::OkStatus()},
                           {netlink::Family::kIPv6, absl::PermissionDeniedError("no")}};
  round.refills = 4;
  round.fights_begun = {Fight{.chain = Filter("INPUT")}};
  Incident incident;
  incident.damage = {{Filter("INPUT"), DamageKind::kJumpMissing, "-A INPUT -j KUBE-FIREWALL"},
                     {Filter("KUBE-FIREWALL"), DamageKind::kChainMissing, ":KUBE-FIREWALL"}};
  incident.latency = absl::Milliseconds(20);
  round.incident = incident;
  return round;
}

}  // namespace kipt::agent

#endif  // KIPT_TESTS_AGENT_ENDPOINTS_METRICS_ROUNDS_H_
