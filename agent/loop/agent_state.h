// SPDX-License-Identifier: Apache-2.0
//
// The state of an agent at any time: each family's, and what its last check found.
#ifndef KIPT_AGENT_LOOP_AGENT_STATE_H_
#define KIPT_AGENT_LOOP_AGENT_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/log_severity.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "agent/loop/incident.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "agent/policy/retirement.h"
#include "featuregates/feature.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

enum class FamilyPhase : uint8_t {
  kPending,   // no attempt has ended yet
  kInPlace,   // the desired state is in place
  kDegraded,  // it is in place, with warnings or a fight
  kObserved,  // it is not in place, and is not to be (--observe)
  kFailed,    // it is not in place, has no effect (IsCritical), or that is not known
};

// What a phase means: the same for readiness, the log, and the exit code of `check`.
struct PhaseRow {
  FamilyPhase phase;
  absl::string_view name;  // "in place"
  absl::string_view id;    // "inPlace"
  bool ready;
  absl::LogSeverity severity;
};
const PhaseRow& RowOf(FamilyPhase phase);
inline absl::string_view FamilyPhaseName(FamilyPhase phase) { return RowOf(phase).name; }

struct FamilyState {
  netlink::Family family = netlink::Family::kIPv4;
  FamilyPhase phase = FamilyPhase::kPending;
  // When this phase began, for this reason.
  absl::Time since = absl::InfinitePast();
  // Empty where in place.
  std::string reason = {};
  // Identifies the reason, whose text may vary between attempts (a process ID, a count).
  std::string key = {};
  // Changes that the last check planned and did not make: in observe mode, or in a fight.
  int pending_changes = 0;

  bool operator==(const FamilyState&) const = default;
};

struct AgentState {
  absl::Time started = absl::InfinitePast();
  featuregates::Version emulated_version;
  Mode mode = Mode::kOff;
  // --observe.
  bool observing = false;
  // "nft" or "legacy"; empty until it is known.
  std::string iptables_mode;
  // How changes are noticed: "kernel events", "poll", "timer only: REASON".
  std::string watching;
  // IPv4 first; never empty.
  std::vector<FamilyState> families;
  // As the last check found them, without the native table.
  std::vector<Finding> findings;
  std::vector<ExistingItem> in_place;
  std::vector<ExistingItem> stale;
  std::vector<ExistingItem> of_kube_proxy;
  std::vector<Fight> fights;
  // When --stale-chains=retire last read all rules: what of `stale` is used, and by whom; and how
  // many rules, other than kube-proxy's, jump to each chain of kubelet's.
  std::vector<Claimed> claimed;
  std::map<netlink::ChainId, uint64_t> foreign_references;
  // Interfaces from whose neighbours the kernel accepts packets for 127.0.0.0/8; "all": every one.
  RouteLocalnet route_localnet;
  // A rule drops such packets; the chain that drops them where kubelet's rule does not
  // (WhoDropsMartians), as of the last change of that or the last timer; and how many kubelet's
  // rule dropped since this process started.
  bool martian_protection = false;
  std::string martians_dropped_elsewhere;
  uint64_t martians_dropped = 0;
  absl::Time last_check = absl::InfinitePast();
  absl::Time last_success = absl::InfinitePast();
  // When the event loop last turned.
  absl::Time heartbeat = absl::InfinitePast();
  uint64_t checks = 0;
  uint64_t incidents = 0;
  // Rules of other programs that drop, reject or redirect packets or set the whole mark, in the
  // base chains that are read, without the expected ones; nothing: these are not reported.
  std::optional<uint64_t> foreign_rules;
  // Why the agent must be restarted, or empty.
  std::string must_restart;

  bool operator==(const AgentState&) const = default;
};

// Why neighbours reach 127.0.0.1; empty where they do not.
std::string ExposedBecause(const AgentState& state);

// Every family is ready (PhaseRow); not exposed; and no restart due.
bool IsReady(const AgentState& state);
// Why `family` keeps the agent from being ready; empty where it does not.
std::string NotReadyBecause(const FamilyState& family);

// "in place" or "ip degraded: ...; ip6 failed: ...; PROBLEM": for the service manager, one line.
std::string StatusLine(const AgentState& state, absl::Span<const std::string> problems = {});

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_AGENT_STATE_H_
