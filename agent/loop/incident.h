// SPDX-License-Identifier: Apache-2.0
//
// What other programs did to the rules, which ones, and how it was repaired.
#ifndef KIPT_AGENT_LOOP_INCIDENT_H_
#define KIPT_AGENT_LOOP_INCIDENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "agent/policy/diff.h"
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
  // How many new ones there are in each chain, those beyond `rules` included.
  ForeignRuleCounts counts = {};
  Suspected by = {.writers = {}, .others = false};
};
std::string ToString(const NewForeignRules& news);

// A rule of another program that ends what ours do (ShadowedJump, ForeignDropsEverything), and its
// writer.
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

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_INCIDENT_H_
