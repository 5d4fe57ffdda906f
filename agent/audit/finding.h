// SPDX-License-Identifier: Apache-2.0
//
// A finding of an audit: what depends on what, how bad that is, and what an operator can do.
#ifndef KIPT_AGENT_AUDIT_FINDING_H_
#define KIPT_AGENT_AUDIT_FINDING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agent/audit/chain_owner.h"

namespace kipt::agent {

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
  // About changes.
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
  // All `count` rules' together; none where the survey has no counters, or it is about no rule.
  std::optional<uint64_t> packets = {};
  // What becomes of it with the change (or because the gate is on already). May be empty.
  std::string consequence = {};
  // What an operator can do. May be empty.
  std::string remedy = {};
  // "KEP-6032, #132955" of kubernetes/kubernetes: where it is known from. May be empty.
  absl::string_view source = {};
  // Where an allow list has it: the entry's reason, or its text where it gives none.
  std::optional<std::string> allowed = {};
  // Which of our mark bits it is about.
  uint32_t mark_bits = 0;
};

// How many rules a finding or a purpose shows, and how many details a finding.
inline constexpr size_t kMostExamples = 3;
inline constexpr size_t kMostDetails = 20;

// As audit prints it, in several lines.
std::string FindingText(const AuditFinding& finding, size_t columns = 96);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_FINDING_H_
