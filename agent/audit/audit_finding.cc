// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/audit_finding.h"

#include <array>

namespace kipt::agent {
namespace {

struct KindRow {
  AuditKind kind;
  absl::string_view name;
  absl::string_view title;
};
constexpr std::array kKinds = {
    KindRow{AuditKind::kChainUser, "ChainUser", "others' rules that jump to a chain of kubelet's"},
    KindRow{AuditKind::kPrivateChainUser, "PrivateChainUser",
            "others' rules that jump to a private chain of this agent's"},
    KindRow{AuditKind::kForeignRule, "ForeignRule", "others' rules in a chain of kubelet's"},
    KindRow{AuditKind::kCniConfig, "CniConfig",
            "CNI configurations that name a chain of kubelet's"},
    KindRow{AuditKind::kCniConfigUnreadable, "CniConfigUnreadable",
            "CNI configurations that could not be read"},
    KindRow{AuditKind::kMarkBitSet, "MarkBitSet", "others' rules that set our mark bits"},
    KindRow{AuditKind::kMarkBitTested, "MarkBitTested", "others' rules that test our mark bits"},
    KindRow{AuditKind::kIpRuleFwmark, "IpRuleFwmark", "routing rules that look at our mark bits"},
    KindRow{AuditKind::kMarkMasqEmpty, "MarkMasqEmpty", "KUBE-MARK-MASQ is empty"},
    KindRow{AuditKind::kMarkMasqUnheard, "MarkMasqUnheard",
            "what KUBE-MARK-MASQ marks is not masqueraded"},
    KindRow{AuditKind::kMarkDropEmpty, "MarkDropEmpty", "KUBE-MARK-DROP is empty"},
    KindRow{AuditKind::kMarkDropUnheard, "MarkDropUnheard",
            "what KUBE-MARK-DROP marks is not dropped"},
    KindRow{AuditKind::kKubeProxyUsesMarkDrop, "KubeProxyUsesMarkDrop",
            "kube-proxy depends on KUBE-MARK-DROP"},
    KindRow{AuditKind::kKubeProxyUsesMarkMasq, "KubeProxyUsesMarkMasq",
            "kube-proxy's own use of KUBE-MARK-MASQ"},
    KindRow{AuditKind::kKubeProxy, "KubeProxy", "kube-proxy"},
    KindRow{AuditKind::kKubeProxyLeftOver, "KubeProxyLeftOver", "what a kube-proxy left"},
    KindRow{AuditKind::kKpng, "Kpng", "kpng"},
    KindRow{AuditKind::kRouteLocalnetExposed, "RouteLocalnetExposed",
            "neighbours can reach 127.0.0.1"},
    KindRow{AuditKind::kBothModesInUse, "BothModesInUse", "rules in both iptables modes"},
    KindRow{AuditKind::kShadowedByOtherMode, "ShadowedByOtherMode",
            "one iptables mode decides before the other"},
    KindRow{AuditKind::kSameChainInBothModes, "SameChainInBothModes",
            "the same chain in both iptables modes"},
    KindRow{AuditKind::kTwoHints, "TwoHints",
            "both iptables modes have KUBE-IPTABLES-HINT, or one the hint and the other a canary"},
    KindRow{AuditKind::kNotSeen, "NotSeen", "what this audit could not see"},
    KindRow{AuditKind::kAllowEntryUnused, "AllowEntryUnused",
            "entries of the allow list that match nothing"},
};

const KindRow& Row(AuditKind kind) {
  for (const KindRow& row : kKinds) {
    if (row.kind == kind) return row;
  }
  return kKinds.front();
}

}  // namespace

absl::string_view AuditKindName(AuditKind kind) { return Row(kind).name; }

absl::string_view AuditKindTitle(AuditKind kind) { return Row(kind).title; }

std::optional<AuditKind> AuditKindFromName(absl::string_view name) {
  for (const KindRow& row : kKinds) {
    if (row.name == name) return row.kind;
  }
  return std::nullopt;
}

absl::string_view AuditSeverityName(AuditSeverity severity) {
  switch (severity) {
    case AuditSeverity::kInfo:
      return "info";
    case AuditSeverity::kWarning:
      return "warning";
    case AuditSeverity::kError:
      return "error";
  }
  return "info";
}

bool AuditExitNeedsAttention(const AuditReport& report) {
  return report.errors != 0 || report.warnings != 0;
}

}  // namespace kipt::agent
