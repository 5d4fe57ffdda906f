// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/events.h
//
// What the agent tells: at the end of each round an Event, and at any time its AgentState. Values
// for logs, metrics, health endpoints and the service manager.
#ifndef KIPT_AGENT_LOOP_EVENTS_H_
#define KIPT_AGENT_LOOP_EVENTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "agent/policy/retirement.h"
#include "featuregates/version.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// A process that committed to the ruleset. Everything that came from its own memory (comm,
// arguments) is escaped (C escapes, one line, valid UTF-8) and cut: it is a stranger's text in our
// log.
struct Writer {
  // In the initial PID namespace; 0 where not known.
  uint32_t pid = 0;
  // comm, as the kernel reported it with the commit: "iptables-nft-re". Never empty; "unknown"
  // where the kernel said nothing.
  std::string command = "unknown";
  // All below are empty or 0 where the process was gone already, or its ID reused, or ours is not
  // the initial PID namespace.
  //
  // The arguments, separated by spaces, quoted where they contain any; at most 256 bytes, "..." at
  // the end of what was cut.
  std::string command_line = {};
  // Of cgroups(7), the innermost that tells something: "firewalld.service",
  // "container 0123456789ab of pod 12345678-1234-...", "container 0123456789ab", "session-3.scope".
  std::string unit = {};
  uint32_t parent_pid = 0;
  // The parent's comm. Where a firewall manager runs iptables-restore, this is what names it.
  std::string parent_command = {};

  bool operator==(const Writer&) const = default;
};
// `nft (PID 4242: "nft flush ruleset"; in session-3.scope; started by bash, PID 4200)`, what is not
// known left out.
std::string ToString(const Writer& writer);

// Who may have done something: nobody is named where nobody was seen (found by the timer,
// --watch=poll, iptables-legacy).
struct Suspected {
  // Each once, oldest first, at most twelve. Where there are several, any of them may have done it.
  std::vector<Writer> writers = {};
  // A process that is not among them may have done it, too.
  bool others = true;

  bool operator==(const Suspected&) const = default;
};
// "A", "one of A, B", "A, or another process that was not seen", "somebody who was not seen".
std::string ToString(const Suspected& suspected);

enum class DamageKind : uint8_t {
  kChainMissing,   // the chain, whatever rules it had
  kJumpMissing,    // our jump in a base chain
  kRuleMissing,    // a rule in a chain of ours
  kRuleMisplaced,  // it stands where it cannot do its work
  kRuleUnwanted,   // a duplicate of ours, or a form of it that is not wanted
  kTableDormant,   // no packet comes to any rule of the table
};
// As in the label `kind` of drift_detected_total: "chain_missing", ...
absl::string_view DamageKindName(DamageKind kind);

struct DamagedItem {
  netlink::ChainId chain;
  DamageKind kind = DamageKind::kRuleMissing;
  // "-A INPUT -j KUBE-FIREWALL"; ":KUBE-FIREWALL" for a chain; "*filter" for a table.
  std::string text;

  bool operator==(const DamagedItem&) const = default;
};

// A rule of somebody else's in a base chain that sends packets to a user chain which is none of
// kubelet's: "CNI-HOSTPORT-DNAT", "cali-INPUT".
struct ForeignJump {
  netlink::ChainId base_chain;
  std::string target;

  auto operator<=>(const ForeignJump&) const = default;
};

// Damage to rules that were in place, and its repair.
struct Incident {
  std::vector<DamagedItem> damage = {};
  Suspected by = {.writers = {}, .others = false};
  // Other people's jumps that were in the base chains at the last check and no longer are: what
  // stays broken until its owner repairs it.
  std::vector<ForeignJump> lost_jumps = {};
  // From the event, or the start of the check that found it, until the repair was committed.
  absl::Duration latency = absl::ZeroDuration();
  // The part of it spent inside Backend::Apply.
  absl::Duration applying = absl::ZeroDuration();

  bool operator==(const Incident&) const = default;
};
// One line.
std::string ToString(const Incident& incident);

// Without the writers' arguments, which /proc may hide from other users (hidepid) and which may
// hold secrets.
Suspected WithoutCommandLines(Suspected suspected);

// One item that another writer undoes as often as we repair it.
struct Fight {
  netlink::ChainId chain;
  // "-A INPUT -j KUBE-FIREWALL"
  std::string item = {};
  int rounds = 0;
  absl::Time since = absl::InfinitePast();
  // The wait before the next repair.
  absl::Duration wait = absl::ZeroDuration();
  // The last time that a process was seen.
  Suspected by = {.writers = {}, .others = false};
  // A rule or chain is missing, or was put back less than a second ago. Not where the fight is over
  // something that we delete.
  bool missing = false;

  bool operator==(const Fight&) const = default;
};

enum class FamilyPhase : uint8_t {
  kPending,   // no attempt has ended yet
  kInPlace,   // the desired state is in place
  kDegraded,  // it is in place, except for findings, or a fight over it
  kObserved,  // it is not, and is not to be put in place (--observe)
  kFailed,    // it is not, or nothing is known; in a fight over what is missing, too
};
absl::string_view FamilyPhaseName(FamilyPhase phase);  // "pending", "in place", ...

struct FamilyState {
  netlink::Family family = netlink::Family::kIPv4;
  FamilyPhase phase = FamilyPhase::kPending;
  // When it came into this phase, for this reason.
  absl::Time since = absl::InfinitePast();
  // Empty where in place.
  std::string reason = {};
  // Tells one reason from another: the words may differ from one attempt to the next (a process ID,
  // a count) where the reason is the same.
  std::string key = {};
  // What the last check found missing and what was not done: observing, or in a fight.
  int pending_changes = 0;

  bool operator==(const FamilyState&) const = default;
};

enum class Trigger : uint8_t {
  kStart,   // the first attempt
  kChange,  // another process committed, or may have
  kTimer,   // --iptables-sync-period
  kRetry,   // an attempt failed, or a repair was held back
  kConfig,  // something else is desired
};
absl::string_view TriggerName(Trigger trigger);  // "start", "change", ...

// The end of a round: why the agent checked, what it found and did.
struct Event {
  Trigger trigger = Trigger::kStart;
  // From the start of the check to its end, or the end of the repair.
  absl::Duration duration = absl::ZeroDuration();
  // What was in place at the last round, is desired as it was then, and had to be repaired. Not
  // what kube-proxy empties on each of its syncs: see refills.
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
  // Of the last check; the native table is not among them.
  std::vector<Finding> findings;
  std::vector<Standing> in_place;
  std::vector<Standing> stale;
  std::vector<Fight> fights;
  // What of `stale` is used, and by whom; of the last time that all rules were read, which only
  // --stale-chains=retire does.
  std::vector<Claimed> claimed;
  // The same: how many rules of others, kube-proxy aside, jump to each chain of kubelet's.
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
  // Why the running configuration is not the one on disk; empty where it is. For the program that
  // reads files to fill in.
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

#endif  // KIPT_AGENT_LOOP_EVENTS_H_
