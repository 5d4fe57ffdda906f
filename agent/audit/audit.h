// SPDX-License-Identifier: Apache-2.0
//
// Who on a node depends on kubelet's chains, on the mark bits that they use, or on kube-proxy to
// keep them; and what becomes of it once IPTablesOwnershipCleanup (KEP-3178) is on. Only gathering
// reads the node.
//
// The severity of a dependence follows from who keeps the chain afterwards. kube-proxy's iptables
// and IPVS modes write nat/KUBE-MARK-MASQ and nat/KUBE-POSTROUTING themselves: there, rules that
// use them keep working, without a promise (warning). Elsewhere they break (error).
//
// The same for other changes (NodeChange): what breaks on this node, why, and what to do.
#ifndef KIPT_AGENT_AUDIT_AUDIT_H_
#define KIPT_AGENT_AUDIT_AUDIT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/audit/chain_owner.h"
#include "agent/audit/node_view.h"
#include "agent/policy/policy.h"
#include "netlink/survey.h"

namespace kipt::agent {

// ---- kube-proxy ----

enum class KubeProxyMode : uint8_t {
  kNone,
  kIptables,
  kIpvs,
  kNftables,  // since 1.29, in a table of its own
  // The retired proxy kpng, by its nft tables. Its iptables backend looks like kube-proxy's.
  kKpng,
  // kube-proxy's chains without its canary or its services, and no packet comes there: `kube-proxy
  // --cleanup` or another mode left them.
  kLeftOver,
};
absl::string_view KubeProxyModeName(KubeProxyMode mode);  // "none", "iptables", ..., "left over"

// Which kube-proxy writes to a node, by its rules: its mode, and the releases that write such
// rules.
struct KubeProxyFacts {
  std::string iptables_mode;
  netlink::Family family = netlink::Family::kIPv4;
  KubeProxyMode mode = KubeProxyMode::kNone;
  // Minors of Kubernetes 1.x, inclusive; 0: open on that side.
  int oldest = 0;
  int newest = 0;
  std::vector<std::string> evidence = {};  // strongest first
  // Another mode's table is in use, and chains of the iptables or IPVS mode are present.
  bool leftovers = false;
  // Jumps that kube-proxy makes once, and that are missing: "PREROUTING to nat/KUBE-SERVICES".
  std::vector<std::string> lost_jumps = {};
  // KUBE-PROXY-CANARY is missing, which kube-proxy's iptables mode has since 1.17 and kpng never
  // had.
  bool may_be_kpng = false;

  // It rewrites nat KUBE-MARK-MASQ and KUBE-POSTROUTING on each sync.
  bool KeepsMarkMasq() const {
    return mode == KubeProxyMode::kIptables || mode == KubeProxyMode::kIpvs;
  }
  // It may jump to nat KUBE-MARK-DROP, which only kubelet fills (up to 1.24).
  bool MayUseMarkDrop() const { return KeepsMarkMasq() && oldest < 25; }
  // It keeps filter KUBE-FIREWALL with its jumps (iptables mode since 1.27).
  bool KeepsFirewall() const { return mode == KubeProxyMode::kIptables && oldest >= 27; }
};

// "1.23", "1.25 to 1.26", "1.27 or later", "1.17 or older", "of unknown release".
std::string GenerationText(const KubeProxyFacts& facts);

// One for each family, IPv4 first. One process writes both: where the modes agree, evidence of one
// family counts for the other.
std::vector<KubeProxyFacts> FindKubeProxy(const netlink::Survey& survey);

// ---- findings ----

// The names are an interface for programs and allow lists.
enum class AuditKind : uint8_t {
  kChainUser,              // another program's rule jumps to a chain of kubelet's
  kPrivateChainUser,       // ... to a chain of this agent's
  kForeignRule,            // another program's rule is in one of these chains
  kCniConfig,              // a CNI configuration names one
  kCniConfigUnreadable,    // ... or may
  kMarkBitSet,             // another program's rule sets our mark bits
  kMarkBitTested,          // ... or tests them
  kMarkBitCleared,         // ... or clears them before they are acted on
  kIpRuleFwmark,           // a routing rule tests them
  kDeviceMark,             // a WireGuard interface or tc filter sets or tests them
  kMarkMasqEmpty,          // nat/KUBE-MARK-MASQ marks nothing
  kMarkMasqUnheard,        // it marks, and nothing masquerades
  kMarkDropEmpty,          // nat/KUBE-MARK-DROP marks nothing
  kMarkDropUnheard,        // it marks, and nothing drops
  kKubeProxyUsesMarkDrop,  // kube-proxy up to 1.24
  kKubeProxyUsesMarkMasq,
  kKubeProxy,  // mode and release
  kKubeProxyLeftOver,
  kKubeProxyJumpLost,  // no packet comes to its chains from a base chain
  kKpng,
  kRouteLocalnetExposed,  // CVE-2020-8558
  kBothModesInUse,        // FindModeMeetings
  kShadowedByOtherMode,
  kSameChainInBothModes,
  kTwoHints,
  kModeUnknown,         // the agent writes nothing: kubelet's iptables is not the host's
  kIptablesProbeFails,  // kubelet 1.33 and later will skip a family
  kFamilySkipped,       // it has
  kTableIncompatible,   // iptables cannot list a table
  // Of changes.
  kCleanupBlocked,       // a foreign jump keeps kube-proxy's chains
  kMasqueradeBit,        // another than nftables mode's default
  kLocalhostNodePorts,   // used over 127.0.0.1
  kNodePortAddresses,    // on every address
  kFirewallBypassed,     // kube-proxy accepts what a firewall drops
  kConntrackWorkaround,  // INVALID packets that are dropped
  kSavedRules,
  kKernelTooOld,
  kKernelLacksModules,
  kNftTooOld,
  kIpvsInUse,
  kIpvsScheduler,
  kIpvsOfOthers,
  kIpsetUser,
  kLegacyRulesStay,
  kNotInNft,
  kNotSeen,  // something could not be read
  kAllowEntryUnused,
};
absl::string_view AuditKindName(AuditKind kind);  // "ChainUser", ...
std::optional<AuditKind> AuditKindFromName(absl::string_view name);

enum class AuditSeverity : uint8_t {
  kInfo,
  kWarning,  // works, and rests on something that is not promised
  kError,    // broken, or broken once IPTablesOwnershipCleanup is on
};
absl::string_view AuditSeverityName(AuditSeverity severity);  // "info", "warning", "error"

struct AuditedRule {
  std::string chain;  // that has it: "CNI-DN-0123"
  std::string text;   // as iptables-save spells it
  uint64_t packets = 0;
  // In an explanation: "default/web: a packet from 10.244.2.162 goes to KUBE-MARK-MASQ".
  std::string sentence = {};
};

struct AuditFinding {
  AuditKind kind = AuditKind::kNotSeen;
  AuditSeverity severity = AuditSeverity::kInfo;
  std::string netns = {};          // NodeView::name
  std::string iptables_mode = {};  // "nft", "legacy"; empty for neither or both, as `family`
  std::string family = {};         // TableId::family
  std::string chain = {};          // depended on: "nat/KUBE-MARK-MASQ"; may be empty
  Owner owner = Owner::kUnknown;
  std::string message = {};  // one sentence
  // At most kMostExamples of the `count` rules that it is about.
  std::vector<AuditedRule> rules = {};
  // Files, routing rules, evidence: at most kMostDetails of them.
  std::vector<std::string> details = {};
  size_t count = 0;  // of rules or details
  // Of all `count` rules together; none where the survey has no counters, or it is about no rule.
  std::optional<uint64_t> packets = {};
  // What becomes of it with the change (or because the gate is on already). May be empty.
  std::string consequence = {};
  // What an operator can do. May be empty.
  std::string remedy = {};
  // "KEP-6032, #132955" of kubernetes/kubernetes: where it is known from. May be empty.
  absl::string_view source = {};
  // Where an allow list has it: the entry's reason, or its text where it gives none.
  std::optional<std::string> allowed = {};
  // Of our mark bits, those that it is about.
  uint32_t mark_bits = 0;
};

struct AuditReport {
  // Worst first; then in the order of the view.
  std::vector<AuditFinding> findings = {};
  NodeChange change = NodeChange::kOwnershipCleanup;
  // Of the first view (the node's own namespace).
  std::vector<KubeProxyFacts> kube_proxy = {};
  // How many of each severity are not allowed.
  size_t errors = 0;
  size_t warnings = 0;
  size_t infos = 0;
  size_t allowed = 0;
  // Findings that are counted above and are not in `findings`, where only so many are kept.
  size_t more = 0;
};

// A warning or an error is not allowed.
inline bool AuditExitNeedsAttention(const AuditReport& report) {
  return report.errors != 0 || report.warnings != 0;
}

// ---- the allow list ----

// Findings that an operator accepts: --allow=FILE. One a line:
//
//   KIND [nft|legacy] TABLE/CHAIN [TEXT] [# REASON]
//
//   # until the pools are rebuilt without externalSetMarkChain
//   ChainUser nat/KUBE-MARK-MASQ -A CNI-DN-  # portmap
//   ChainUser legacy *  -s 10.9.0.0/16       # the old VPN gateway
//   IpRuleFwmark *
//
// KIND is a finding's id, TABLE/CHAIN the chain that it is about; "*" is any. The finding's rule,
// printed as "-A CHAIN RULE", must contain TEXT (a CNI configuration: its path; a routing rule: its
// text). TEXT extends to the end of the line, or to the last " # ". Empty lines and lines that
// begin with "#" are ignored.
struct AllowEntry {
  size_t line = 0;            // in the file, from 1
  std::string kind;           // or "*"
  std::string iptables_mode;  // empty: any
  std::string chain;          // "nat/KUBE-MARK-MASQ", or "*"
  std::string text;           // empty: any
  std::string reason;

  bool Covers(absl::string_view kind, absl::string_view iptables_mode, absl::string_view chain,
              absl::string_view text) const;
  bool operator==(const AllowEntry&) const = default;
};
using AllowList = std::vector<AllowEntry>;

// "line 3: ChainUser nat/KUBE-MARK-MASQ -A CNI-DN-".
std::string ToString(const AllowEntry& entry);

// InvalidArgument, with the line's number: an unknown kind, no chain where one is required, an
// entry twice.
absl::StatusOr<AllowList> ParseAllowList(absl::string_view text);

// ---- the audit ----

// kube-proxy's nftables mode masquerades by it (nftables.masqueradeBit, by default 14).
inline constexpr uint32_t kNftablesMasquerade = uint32_t{1} << 14;

struct AuditOptions {
  MarkBits bits = {};
  // In force on the node now. In cleanup mode the gate is on already.
  Mode mode = Mode::kLegacy;
  AllowList allow = {};
  NodeChange change = NodeChange::kOwnershipCleanup;
  // Those of the node. Without both, a family without kubelet's chains is no finding.
  std::vector<netlink::Family> families = {};
  // ModeContradiction of the node.
  std::string mode_unknown = {};

  // Of kubelet, and of kube-proxy after `change`.
  uint32_t MasqueradeMarks() const {
    const bool nftables = change == NodeChange::kKubeProxyNftables;
    return (uint32_t{1} << bits.masquerade) | (nftables ? kNftablesMasquerade : 0);
  }
  uint32_t OurMarks() const { return MasqueradeMarks() | (uint32_t{1} << bits.drop); }
};

// How many rules a finding or a purpose shows, and how many details a finding.
inline constexpr size_t kMostExamples = 3;
inline constexpr size_t kMostDetails = 20;

// The first view is the node's own namespace. An entry of the allow list is unused where it covers
// nothing in any view.
AuditReport Audit(absl::Span<const NodeView> views, const AuditOptions& options);

std::string AuditText(const AuditReport& report);
// One object: {"findings": [...], "kubeProxy": [...], "errors": n, ...}.
std::string AuditJson(const AuditReport& report);
// Kubelet's chains and those around them, for graphviz: the jumps between them, coloured by owner,
// findings highlighted. Chains that a program makes one of per service are one node.
std::string AuditDot(const NodeView& view, const AuditReport& report);

// ---- explaining a chain ----

// Rules that lead to the chain for one reason.
struct PurposeGroup {
  absl::string_view id = {};  // "OutsidePodRange", "Hairpin", ...
  std::string title = {};
  absl::string_view reason = {};  // may be empty
  Owner owner = Owner::kUnknown;
  size_t count = 0;
  std::optional<uint64_t> packets = {};  // as AuditFinding::packets
  std::vector<AuditedRule> examples = {};
};

struct Explanation {
  std::string iptables_mode = {};
  std::string family = {};  // "ip", "ip6"
  std::string chain = {};   // "nat/KUBE-MARK-MASQ"
  Owner owner = Owner::kUnknown;
  std::string what = {};                   // what the chain is, in a sentence or two
  std::string maker = {};                  // who put it here
  std::vector<std::string> in_short = {};  // the answer, point by point
  size_t users = 0;                        // rules that lead to it
  std::vector<PurposeGroup> purposes = {};
  size_t rule_count = 0;
  std::vector<AuditedRule> rules = {};  // its own, in order: the first ten
  std::vector<std::string> next = {};   // where packets go from here
};

// `chain` is TABLE/CHAIN, or a name that only one table has. `surveys` are all of the network
// namespace, whose rules may act on a mark; empty: `survey` alone.
//
// NotFound: no such chain; the message names similar chains. InvalidArgument: several tables have
// the name. FailedPrecondition: the survey is of a text that lacks the table.
absl::StatusOr<Explanation> Explain(const netlink::Survey& survey, netlink::Family family,
                                    absl::string_view chain,
                                    absl::Span<const netlink::Survey> surveys = {});

// "There is no chain nat/KUBE-MARK-DROP here: kubelet makes none since 1.27, ...": for a chain that
// Explain did not find. Empty where programs of today make it, or none ever did.
std::string NoLongerMade(absl::string_view chain);

std::string ExplainText(const Explanation& explanation);
std::string ExplainJson(const Explanation& explanation);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_AUDIT_H_
