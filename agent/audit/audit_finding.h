// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/audit_finding.h
//
// What an audit says, as values.
#ifndef KIPT_AGENT_AUDIT_AUDIT_FINDING_H_
#define KIPT_AGENT_AUDIT_AUDIT_FINDING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/audit/chain_owner.h"
#include "agent/audit/kube_proxy_facts.h"

namespace kipt::agent {

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
  kBothModesInUse,        // mixed_modes.h
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

  bool operator==(const AuditedRule&) const = default;
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
  // The rules that it is about, at most AuditOptions::max_examples of `count`.
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

  bool operator==(const AuditFinding&) const = default;
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

  bool operator==(const AuditReport&) const = default;
};

// A warning or an error that is not allowed.
bool AuditExitNeedsAttention(const AuditReport& report);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_AUDIT_FINDING_H_
