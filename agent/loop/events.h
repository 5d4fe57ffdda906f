// SPDX-License-Identifier: Apache-2.0
//
// What the agent reports: an Event at the end of each round, and its AgentState at any time.
#ifndef KIPT_AGENT_LOOP_EVENTS_H_
#define KIPT_AGENT_LOOP_EVENTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/log_severity.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "agent/policy/retirement.h"
#include "featuregates/feature.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// A process that committed to the ruleset. Texts from its memory (comm, arguments) are not trusted,
// so they are escaped (GoQuote) and cut.
struct Writer {
  // In the initial PID namespace; 0 where not known.
  uint32_t pid = 0;
  // comm, as the kernel reported it with the commit: "iptables-nft-re". Never empty.
  std::string command = "unknown";
  // The rest is empty or 0 where the process had ended, its ID was reused, or our PID namespace is
  // not the initial one. The arguments, separated by spaces, quoted where they contain any; "..."
  // after 256 bytes.
  std::string command_line = {};
  // The innermost unit, container or pod among its cgroups(7): "firewalld.service",
  // "container 0123456789ab of pod 12345678-1234-...", "container 0123456789ab", "session-3.scope".
  std::string unit = {};
  uint32_t parent_pid = 0;
  // The parent's comm: names the firewall manager that runs iptables-restore.
  std::string parent_command = {};

  // The same process, however much is known of it.
  bool IsSame(const Writer& other) const { return pid == other.pid && command == other.command; }
  bool operator==(const Writer&) const = default;
};
// `nft (PID 4242: "nft flush ruleset"; in session-3.scope; started by bash, PID 4200)`, where
// known.
std::string ToString(const Writer& writer);

// Which processes may have done something. --watch=poll and iptables-legacy report no commits.
struct Suspected {
  // Each once, oldest first, at most twelve.
  std::vector<Writer> writers = {};
  // Another process may have done it, too.
  bool others = true;

  bool operator==(const Suspected&) const = default;
};
std::string ToString(const Suspected& suspected);

enum class DamageKind : uint8_t {
  kChainMissing,   // the chain, whatever rules it had
  kJumpMissing,    // our jump in a base chain
  kRuleMissing,    // a rule in a chain of ours
  kRuleMisplaced,  // it is in a place where it has no effect
  kRuleUnwanted,   // a duplicate of ours, or another form of it
  kTableDormant,   // no packet reaches any rule of the table
};
// "chain_missing", ...: the label `kind` of drift_detected_total.
absl::string_view DamageKindName(DamageKind kind);

struct DamagedItem {
  netlink::ChainId chain;
  DamageKind kind = DamageKind::kRuleMissing;
  // "-A INPUT -j KUBE-FIREWALL"; ":KUBE-FIREWALL" for a chain; "*filter" for a table.
  std::string text;

  bool operator==(const DamagedItem&) const = default;
};

// A rule of another program in a base chain that jumps to a chain which is not kubelet's:
// "CNI-HOSTPORT-DNAT", "cali-INPUT".
struct ForeignJump {
  netlink::ChainId base_chain;
  std::string target;

  auto operator<=>(const ForeignJump&) const = default;
};

// What a rule of another program in a base chain does.
enum class ForeignRuleKind : uint8_t {
  kDrop,
  kReject,
  kDnat,
  kMark,      // sets all bits of the packet mark
  kRedirect,  // REDIRECT, TPROXY, NETMAP
};
absl::string_view ForeignRuleKindName(ForeignRuleKind kind);  // "drop", ...

struct ForeignRule {
  netlink::ChainId base_chain;
  ForeignRuleKind kind = ForeignRuleKind::kDrop;
  // "-s 10.0.0.0/8 -j DROP"; "..." after 512 bytes.
  std::string text;

  auto operator<=>(const ForeignRule&) const = default;
};
using ForeignRuleCounts = std::map<std::pair<netlink::ChainId, ForeignRuleKind>, uint64_t>;

// New rules of other programs that one round noticed.
struct NewForeignRules {
  // At most 128 of a chain.
  std::vector<ForeignRule> rules = {};
  // Of all, and of others.
  ForeignRuleCounts counts = {};
  Suspected by = {.writers = {}, .others = false};
};
std::string ToString(const NewForeignRules& news);

// A rule of another program that ends what ours do (ShadowedJump, ForeignDropsEverything), and who
// wrote it.
struct Blocker {
  Finding finding = {};
  Suspected by = {.writers = {}, .others = false};
};
std::string ToString(const Blocker& blocker);

// Jumps of kube-proxy's that another program deleted, while its services are still there and
// nothing of kubelet's is damaged. Only kube-proxy can repair them.
struct LostProxyJumps {
  std::vector<ForeignJump> jumps = {};
  Suspected by = {.writers = {}, .others = false};
};
std::string ToString(const LostProxyJumps& lost);

// Damage to rules that were in place, and its repair.
struct Incident {
  std::vector<DamagedItem> damage = {};
  Suspected by = {.writers = {}, .others = false};
  // Jumps of other programs that disappeared from the base chains since the last check. Only their
  // owners can repair them.
  std::vector<ForeignJump> lost_jumps = {};
  // From the event, or the start of the check that found it, until the repair was committed.
  absl::Duration latency = absl::ZeroDuration();
  // The part of it spent inside Backend::Apply.
  absl::Duration applying = absl::ZeroDuration();

  bool operator==(const Incident&) const = default;
};
std::string ToString(const Incident& incident);

// Without the writers' arguments, which may hold secrets and which /proc may hide (hidepid).
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
  Suspected by = {.writers = {}, .others = false};
  // A rule or chain is missing, or was put back less than a second ago. False where we delete it.
  bool missing = false;

  bool operator==(const Fight&) const = default;
};

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
  // Whose phase or reason changed.
  std::vector<FamilyState> changed_families = {};
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
  // In the order of the configuration; never empty.
  std::vector<FamilyState> families;
  // Of the last check, without the native table.
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
  absl::Time last_look = absl::InfinitePast();
  absl::Time last_success = absl::InfinitePast();
  // When the event loop last turned.
  absl::Time heartbeat = absl::InfinitePast();
  uint64_t checks = 0;
  uint64_t incidents = 0;
  // The last ten, newest first, one line each, with the time, without the writers' arguments.
  std::vector<std::string> recent_incidents;
  // Rules of other programs that drop, reject or redirect packets or set the whole mark, in the
  // base chains that are read, without the expected ones; nothing: these are not reported. And the
  // last ten new ones, as the incidents.
  std::optional<uint64_t> foreign_rules;
  std::vector<std::string> recent_foreign_rules;
  // The last ten Blockers, as the incidents.
  std::vector<std::string> recent_blockers;
  // Why the running configuration is not the one on disk, and why an address is not served. The
  // program fills these in.
  std::string config_problem;
  std::string listen_problem;
  // Who held the entries of connection tracking when it was last nearly full, with the time. The
  // program fills it in.
  std::string conntrack_report;
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

// "in place" or "ip degraded: ...; ip6 failed: ...": for the service manager, one line.
std::string StatusLine(const AgentState& state);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_EVENTS_H_
