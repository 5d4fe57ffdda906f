// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/audit.h
//
// Who on a node depends on kubelet's chains, on the mark bits that they use, or on kube-proxy to
// keep them; and what becomes of it once IPTablesOwnershipCleanup (KEP-3178) is on. Pure, but for
// gathering.
//
// How bad a dependence is follows from who keeps the chain afterwards: kube-proxy's iptables and
// IPVS modes go on writing nat/KUBE-MARK-MASQ and nat/KUBE-POSTROUTING themselves, so what uses
// them beside such a kube-proxy works on, on a promise that nobody made (warning); beside its
// nftables mode, or none, it breaks (error).
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
#include "agent/detect/mode_evidence.h"
#include "agent/detect/routing.h"
#include "agent/policy/claims.h"
#include "agent/policy/policy.h"
#include "netlink/survey.h"

namespace kipt::agent {

// ---- what an audit looks at ----

// What is in one network namespace and next to it.
//
// Gathering it leaves no trace: no table, chain or module comes to be, and where there are no
// legacy tables no program is run. A source that cannot be read is a problem, and the others are
// read all the same.
struct NodeView {
  // Of the network namespace, as NetworkNamespace::name: "/run/netns/pod1", "pid 123 (nginx)".
  // Empty for the one in which the gathering thread was.
  std::string name = {};
  // Of the modes "nft" and "legacy" those that hold a table, in this order; every rule is kept. One
  // that could not be read is not here, and has a problem.
  std::vector<netlink::Survey> surveys = {};
  // Of the node: empty in a view of another namespace than the gathering thread's.
  CniConfigs cni = {};
  std::vector<FwmarkRule> ip_rules = {};
  // As ReadRouteLocalnet: {"all"}, or the interfaces. Empty also where there is no IPv4.
  std::vector<std::string> route_localnet = {};
  // What could not be read, and why, each a sentence for an operator: "nft tables: ...". The CNI
  // configurations have their own, in `cni`.
  std::vector<std::string> problems = {};

  bool operator==(const NodeView&) const = default;
};

// What the calling thread sees in the network namespace that it is in. `cni` is copied into the
// answer.
NodeView GatherNodeView(const ModeSources& sources, const CniConfigs& cni);

// As GatherNodeView for every network namespace that can be seen (ListNetworkNamespaces), the
// calling thread's first. Each is visited on a thread of its own, one after another: the caller
// stays where it is. One that cannot be entered (CAP_SYS_ADMIN) is a view with a problem; where
// namespaces may have been missed, the first view has a problem that says so.
//
// `sources` must be the calling thread's own (SystemModeSources): what it opens, it opens in the
// namespace of the thread that asks.
std::vector<NodeView> GatherAllNamespaces(const ModeSources& sources, const CniConfigs& cni);

// ---- kube-proxy ----

// Which kube-proxy writes to a node, told from what it wrote: its mode, and the range of releases
// whose rules look like that.

enum class KubeProxyMode : uint8_t {
  kNone,
  kIptables,
  kIpvs,
  // Since 1.29. It has a table to itself, and none of the chains that others use.
  kNftables,
  // The retired proxy kpng, by its nft tables. Its iptables backend looks like kube-proxy's; see
  // may_be_kpng.
  kKpng,
  // Chains of kube-proxy's that no packet comes to: what `kube-proxy --cleanup` left, or a proxy of
  // another mode.
  kLeftOver,
};
absl::string_view KubeProxyModeName(KubeProxyMode mode);  // "none", "iptables", ..., "left over"

struct KubeProxyFacts {
  // "nft" or "legacy": where it was found.
  std::string iptables_mode;
  netlink::Family family = netlink::Family::kIPv4;
  KubeProxyMode mode = KubeProxyMode::kNone;
  // Minors of Kubernetes 1.x, inclusive; 0: open on that side.
  int oldest = 0;
  int newest = 0;
  // What told it, most telling first.
  std::vector<std::string> evidence = {};
  // Chains of kube-proxy's iptables or IPVS mode are next to another mode's table.
  bool leftovers = false;
  // There is no KUBE-PROXY-CANARY, which kube-proxy makes in iptables mode since 1.17, and kpng's
  // iptables backend never did.
  bool may_be_kpng = false;

  // It rewrites nat KUBE-MARK-MASQ and KUBE-POSTROUTING on its syncs, whatever kubelet does.
  bool KeepsMarkMasq() const;
  // Its release may jump to nat KUBE-MARK-DROP, which kubelet must then fill (up to 1.24).
  bool MayUseMarkDrop() const;
  // Its release keeps filter KUBE-FIREWALL with its jumps (iptables mode since 1.27).
  bool KeepsFirewall() const;
};

// "1.23", "1.25 to 1.26", "1.27 or later", "1.17 or older", "of unknown release".
std::string GenerationText(const KubeProxyFacts& facts);

// One for each family, IPv4 first. What one family tells of the release counts for the other, where
// both are of the same mode: one process writes both.
std::vector<KubeProxyFacts> FindKubeProxy(const netlink::Survey& survey);

// ---- what an audit says, as values ----

// The names are for programs and allow lists, and stay.
enum class AuditKind : uint8_t {
  kChainUser,              // a rule of a third party jumps to a chain of kubelet's
  kPrivateChainUser,       // a rule of a third party jumps to a chain of this agent's
  kForeignRule,            // a rule of a third party stands in one of kubelet's, or of this agent's
  kCniConfig,              // a CNI configuration names one
  kCniConfigUnreadable,    // ... or may
  kMarkBitSet,             // a rule of a third party turns our mark bits on
  kMarkBitTested,          // ... or reacts to them
  kIpRuleFwmark,           // a routing rule reacts to them
  kMarkMasqEmpty,          // nat/KUBE-MARK-MASQ marks nothing
  kMarkMasqUnheard,        // it marks, and nothing masquerades
  kMarkDropEmpty,          // nat/KUBE-MARK-DROP marks nothing
  kMarkDropUnheard,        // it marks, and nothing drops
  kKubeProxyUsesMarkDrop,  // kube-proxy up to 1.24
  kKubeProxyUsesMarkMasq,
  kKubeProxy,  // mode and release
  kKubeProxyLeftOver,
  kKpng,
  kRouteLocalnetExposed,  // CVE-2020-8558
  kBothModesInUse,        // FindModeMeetings
  kShadowedByOtherMode,
  kSameChainInBothModes,
  kTwoHints,
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
  std::string chain;  // where it stands: "CNI-DN-0123"
  std::string text;   // as iptables-save spells it
  uint64_t packets = 0;
  // Of an explanation: "default/web: a packet from 10.244.2.162 goes to KUBE-MARK-MASQ".
  std::string sentence = {};
};

struct AuditFinding {
  AuditKind kind = AuditKind::kNotSeen;
  AuditSeverity severity = AuditSeverity::kInfo;
  // NodeView::name of the network namespace.
  std::string netns = {};
  // "nft" or "legacy", empty where it is about neither or both.
  std::string iptables_mode = {};
  // As TableId::family: "ip", "ip6", "inet"; empty as above.
  std::string family = {};
  // "nat/KUBE-MARK-MASQ": what is depended on. Empty where it is no chain.
  std::string chain = {};
  Owner owner = Owner::kUnknown;
  // One sentence.
  std::string message = {};
  // The rules that it is about, at most kMostExamples of `count`.
  std::vector<AuditedRule> rules = {};
  // What it is about and is no rule: a file, a routing rule, evidence.
  std::vector<std::string> details = {};
  size_t count = 0;  // of rules or details
  // Of all `count` rules together. Not there: the rules are not counted, or it is about none.
  std::optional<uint64_t> packets = {};
  // What becomes of it once IPTablesOwnershipCleanup is on (or: because it is). Empty: nothing.
  std::string consequence = {};
  // What an operator can do. Empty: nothing needs doing.
  std::string remedy = {};
  // Where an allow list has it: the entry's reason, or its text where it gives none.
  std::optional<std::string> allowed = {};
};

struct AuditReport {
  // Worst first; then in the order of the view.
  std::vector<AuditFinding> findings = {};
  // Those of the first view (the node's own namespace).
  std::vector<KubeProxyFacts> kube_proxy = {};
  // How many of each severity are not allowed.
  size_t errors = 0;
  size_t warnings = 0;
  size_t infos = 0;
  size_t allowed = 0;
};

// A warning or an error that is not allowed.
bool AuditExitNeedsAttention(const AuditReport& report);

// ---- the allow list ----

// Findings that an operator knows of and accepts: --allow=FILE. One a line:
//
//   KIND [nft|legacy] TABLE/CHAIN [TEXT] [# REASON]
//
//   # until the pools are rebuilt without externalSetMarkChain
//   ChainUser nat/KUBE-MARK-MASQ -A CNI-DN-  # portmap
//   ChainUser legacy *  -s 10.9.0.0/16       # the old VPN gateway
//   IpRuleFwmark *
//
// KIND is a finding's id and TABLE/CHAIN the chain that it is about, "*" any. TEXT must stand in
// the finding's rule, printed as "-A CHAIN RULE" (for a CNI configuration: in its path, for a
// routing rule: in its text); it goes on to the end of the line, or to the last " # ". Empty lines
// and lines that begin with "#" say nothing.
struct AllowEntry {
  size_t line = 0;            // in the file, from 1
  std::string kind;           // or "*"
  std::string iptables_mode;  // "nft", "legacy"; empty: any
  std::string chain;          // "nat/KUBE-MARK-MASQ", or "*"
  std::string text;           // empty: any
  std::string reason;

  bool operator==(const AllowEntry&) const = default;
};

// "line 3: ChainUser nat/KUBE-MARK-MASQ -A CNI-DN-".
std::string ToString(const AllowEntry& entry);

struct AllowList {
  std::vector<AllowEntry> entries = {};

  // The first entry that covers a finding; null where none does.
  const AllowEntry* Find(absl::string_view kind, absl::string_view iptables_mode,
                         absl::string_view chain, absl::string_view text) const;
};

// InvalidArgument, with the number of the line: a kind that no finding has, something else than a
// chain where one must stand, an entry twice.
absl::StatusOr<AllowList> ParseAllowList(absl::string_view text);

// ---- the audit ----

struct AuditOptions {
  MarkBits bits = {};
  // What is in force on the node now. In cleanup mode the gate is on already.
  Mode mode = Mode::kLegacy;
  AllowList allow = {};
};

// Rules shown of a finding, or of a purpose, that is about many.
inline constexpr size_t kMostExamples = 3;

// The first view is the node's own namespace. An entry of the allow list is unused if it matches
// nothing in any of them.
AuditReport Audit(absl::Span<const NodeView> views, const AuditOptions& options);

// For people.
std::string AuditText(const AuditReport& report);
// One object: {"findings": [...], "kubeProxy": [...], "errors": n, ...}.
std::string AuditJson(const AuditReport& report);
// The chains that kubelet's chains have to do with, for graphviz: who jumps to whom, coloured by
// owner, findings highlighted. Chains that are made one of per service are one node.
std::string AuditDot(const NodeView& view, const AuditReport& report);

// ---- explanations ----

// What a chain is there for: every rule that leads to it, by what it is for; what the chain does;
// where packets go from there. Of kubelet's chains it knows the reasons, of others who owns them.
// Over a survey of any origin.

// What a rule that leads to a chain is for.
enum class Purpose : uint8_t {
  // To nat/KUBE-MARK-MASQ:
  kOutsidePodRange,
  kHairpin,
  kExternal,
  kExternalFromNode,
  kExternalIp,
  kLoadBalancer,
  kNodePort,
  kNodePortLoopback,
  kMasqueradeAll,
  kHostPortHairpin,
  kHostPortLoopback,
  // To nat/KUBE-MARK-DROP:
  kSourceRanges,
  kNoLocalEndpoints,
  // To anything:
  kBaseJump,
  kThirdParty,
  kOther,
};
absl::string_view PurposeName(Purpose purpose);  // "OutsidePodRange", ...

// Rules that lead to the chain for one reason.
struct PurposeGroup {
  Purpose purpose = Purpose::kOther;
  std::string title = {};
  std::string reason = {};  // may be empty
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

// `chain` is TABLE/CHAIN, or a name that stands in one table only.
//
// NotFound: no such chain; the message names chains of similar name. InvalidArgument: the name
// stands in several tables.
absl::StatusOr<Explanation> Explain(const netlink::Survey& survey, netlink::Family family,
                                    absl::string_view chain);

std::string ExplainText(const Explanation& explanation);
std::string ExplainJson(const Explanation& explanation);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_AUDIT_H_
