// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/finding.h"

#include <array>

#include "absl/algorithm/container.h"

namespace kipt::agent {
namespace {

// In the order of the enumeration.
constexpr auto kKindNames = std::to_array<absl::string_view>(
    {"ChainUser", "PrivateChainUser", "ForeignRule", "CniConfig", "CniConfigUnreadable",
     "MarkBitSet", "MarkBitTested", "MarkBitCleared", "IpRuleFwmark", "DeviceMark",
     // About a family as a whole.
     "MarkMasqEmpty", "MarkMasqUnheard", "MarkDropEmpty", "MarkDropUnheard",
     "KubeProxyUsesMarkDrop", "KubeProxyUsesMarkMasq", "KubeProxy", "KubeProxyLeftOver",
     "KubeProxyJumpLost", "Kpng",
     // About a network namespace.
     "RouteLocalnetExposed", "BothModesInUse", "ShadowedByOtherMode", "SameChainInBothModes",
     "TwoHints", "ModeUnknown", "IptablesProbeFails", "FamilySkipped", "TableIncompatible",
     // About changes.
     "CleanupBlocked", "MasqueradeBit", "LocalhostNodePorts", "NodePortAddresses",
     "FirewallBypassed", "ConntrackWorkaround", "SavedRules", "KernelTooOld", "KernelLacksModules",
     "NftTooOld", "IpvsInUse", "IpvsScheduler", "IpvsOfOthers", "IpsetUser", "LegacyRulesStay",
     "NotInNft", "NotSeen", "AllowEntryUnused"});

}  // namespace

absl::string_view AuditKindName(AuditKind kind) { return kKindNames.at(static_cast<size_t>(kind)); }

std::optional<AuditKind> AuditKindFromName(absl::string_view name) {
  const auto found = absl::c_find(kKindNames, name);
  if (found == kKindNames.end()) return std::nullopt;
  return static_cast<AuditKind>(found - kKindNames.begin());
}

absl::string_view AuditSeverityName(AuditSeverity severity) {
  constexpr std::array kNames = {"info", "warning", "error"};
  return kNames.at(static_cast<size_t>(severity));
}

}  // namespace kipt::agent
