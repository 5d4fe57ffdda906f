// SPDX-License-Identifier: Apache-2.0
//
// Rounds, states and configurations for tests of metrics, and what Metrics reports for them.
#ifndef KIPT_TESTS_AGENT_ENDPOINTS_METRICS_ROUNDS_H_
#define KIPT_TESTS_AGENT_ENDPOINTS_METRICS_ROUNDS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/config/load_config.h"
#include "agent/endpoints/metrics.h"
#include "agent/loop/agent_state.h"
#include "agent/loop/round.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

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

inline std::vector<std::string> Lines(const Metrics& metrics) {
  return absl::StrSplit(metrics.Serialize(), '\n', absl::SkipEmpty());
}

// The value of `series`, with all of its labels, which is not negative; -1 where there is none.
inline double Value(const Metrics& metrics, const std::string& series) {
  for (const std::string& line : Lines(metrics)) {
    double value = 0;
    if (absl::StartsWith(line, series + " ") &&
        absl::SimpleAtod(line.substr(series.size() + 1), &value)) {
      return value;
    }
  }
  return -1;
}

inline std::string Ours(const std::string& name) {
  return absl::StrCat("kube_iptables_agent_", name);
}

inline Config MakeConfig(const std::string& emulated, std::vector<std::string> gates = {}) {
  Flags flags;
  flags.emulated_version = emulated;
  flags.ip_families = "ipv4";
  flags.feature_gates = std::move(gates);
  if (emulated < std::string("1.31")) flags.iptables_drop_bit = 15;
  absl::StatusOr<Config> config =
      LoadConfig(flags, {.default_config_path = "/nonexistent/config.yaml"});
  EXPECT_THAT(config, IsOk());
  return *std::move(config);
}

}  // namespace kipt::agent

#endif  // KIPT_TESTS_AGENT_ENDPOINTS_METRICS_ROUNDS_H_
