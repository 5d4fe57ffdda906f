// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/agent_state.h
//
// What the agent knows about itself at one moment, as values: for health endpoints, the service
// manager, logs.
#ifndef KIPT_AGENT_LOOP_AGENT_STATE_H_
#define KIPT_AGENT_LOOP_AGENT_STATE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "agent/loop/writer.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "agent/policy/retirement.h"
#include "featuregates/version.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

enum class FamilyPhase : uint8_t {
  kPending,   // no attempt has ended yet
  kInPlace,   // what is wanted stands
  kDegraded,  // what is wanted stands, but for findings, or a fight over it
  kObserved,  // it does not, and is not to be put in place (--observe)
  kFailed,    // it does not, or nothing is known; in a fight over what is missing, too
};
absl::string_view FamilyPhaseName(FamilyPhase phase);  // "pending", "in place", ...

struct FamilyState {
  netlink::Family family = netlink::Family::kIPv4;
  FamilyPhase phase = FamilyPhase::kPending;
  // When it came into this phase, for this reason.
  absl::Time since = absl::InfinitePast();
  // Empty where in place.
  std::string reason = {};
  // What the last look found wanting and what was not done: observing, or in a fight.
  int pending_changes = 0;

  bool operator==(const FamilyState&) const = default;
};

// One item that another writer undoes as often as we repair it.
struct Fight {
  netlink::ChainId chain;
  // "-A INPUT -j KUBE-FIREWALL"
  std::string item = {};
  int rounds = 0;
  absl::Time since = absl::InfinitePast();
  // The wait before the next repair.
  absl::Duration wait = absl::ZeroDuration();
  // As Suspected, in suspects.h: of the last time that somebody was seen.
  std::vector<Writer> writers = {};
  bool others = false;
  // A rule or chain is missing, or was put back less than a second ago. Not where the fight is over
  // something that we delete.
  bool missing = false;

  bool operator==(const Fight&) const = default;
};

struct AgentState {
  absl::Time started = absl::InfinitePast();
  featuregates::Version emulated_version;
  // The gates' mode, and the families.
  Mode mode = Mode::kOff;
  // --observe.
  bool observing = false;
  // "nft" or "legacy"; empty until it is known.
  std::string iptables_mode;
  // How changes are noticed, for people: "kernel events", "poll", "timer only: REASON".
  std::string watching;
  // In the order of the configuration; never empty.
  std::vector<FamilyState> families;
  // Of the last look; the native table is not among them.
  std::vector<Finding> findings;
  std::vector<Standing> in_place;
  std::vector<Standing> stale;
  std::vector<Fight> fights;
  // What of `stale` somebody uses, and who; of the last look at all rules, which only
  // --stale-chains=retire takes.
  std::vector<Claimed> claimed;
  // The same look: how many rules of others, kube-proxy aside, jump to each chain of kubelet's.
  std::map<netlink::ChainId, uint64_t> foreign_references;
  // Interfaces from whose neighbours the kernel takes packets for 127.0.0.0/8; "all" is every one.
  std::vector<std::string> route_localnet;
  // A rule stands against such packets, and they come to it.
  bool martian_protection = false;
  // By that rule, while this process has looked.
  uint64_t martians_dropped = 0;
  absl::Time last_look = absl::InfinitePast();
  absl::Time last_success = absl::InfinitePast();
  // When the event loop last turned.
  absl::Time heartbeat = absl::InfinitePast();
  uint64_t looks = 0;
  uint64_t incidents = 0;
  // The last ten, newest first, with the time and without the writers' arguments: one line each.
  std::vector<std::string> recent_incidents;
  // Why the running configuration is not the one on disk; empty where it is. For who reads files to
  // fill in.
  std::string config_problem;
  // Why an address is not answered on; empty where all are. For the program that listens to fill
  // in.
  std::string listen_problem;
  // The process is about to end so that a supervisor starts it anew; empty else.
  std::string must_restart;

  bool operator==(const AgentState&) const = default;
};

// Why neighbours reach 127.0.0.1: route_localnet is set, and no rule stands. Empty where they do
// not.
std::string ExposedBecause(const AgentState& state);

// Every family in place, or degraded by nothing critical; not exposed; and no restart due.
bool IsReady(const AgentState& state);
// Why `family` keeps the agent from being ready; empty where it does not.
std::string NotReadyBecause(const AgentState& state, const FamilyState& family);

// "in place" or "ip degraded: ...; ip6 failed: ...": for the service manager, one line.
std::string StatusLine(const AgentState& state);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_AGENT_STATE_H_
