// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/audit_finding.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/audit/audit_parts.h"

namespace kipt::agent {
namespace {

struct KindRow {
  AuditKind kind;
  absl::string_view name;
};
constexpr std::array kKinds = {
    KindRow{AuditKind::kChainUser, "ChainUser"},
    KindRow{AuditKind::kPrivateChainUser, "PrivateChainUser"},
    KindRow{AuditKind::kForeignRule, "ForeignRule"},
    KindRow{AuditKind::kCniConfig, "CniConfig"},
    KindRow{AuditKind::kCniConfigUnreadable, "CniConfigUnreadable"},
    KindRow{AuditKind::kMarkBitSet, "MarkBitSet"},
    KindRow{AuditKind::kMarkBitTested, "MarkBitTested"},
    KindRow{AuditKind::kIpRuleFwmark, "IpRuleFwmark"},
    KindRow{AuditKind::kMarkMasqEmpty, "MarkMasqEmpty"},
    KindRow{AuditKind::kMarkMasqUnheard, "MarkMasqUnheard"},
    KindRow{AuditKind::kMarkDropEmpty, "MarkDropEmpty"},
    KindRow{AuditKind::kMarkDropUnheard, "MarkDropUnheard"},
    KindRow{AuditKind::kKubeProxyUsesMarkDrop, "KubeProxyUsesMarkDrop"},
    KindRow{AuditKind::kKubeProxyUsesMarkMasq, "KubeProxyUsesMarkMasq"},
    KindRow{AuditKind::kKubeProxy, "KubeProxy"},
    KindRow{AuditKind::kKubeProxyLeftOver, "KubeProxyLeftOver"},
    KindRow{AuditKind::kKpng, "Kpng"},
    KindRow{AuditKind::kRouteLocalnetExposed, "RouteLocalnetExposed"},
    KindRow{AuditKind::kBothModesInUse, "BothModesInUse"},
    KindRow{AuditKind::kShadowedByOtherMode, "ShadowedByOtherMode"},
    KindRow{AuditKind::kSameChainInBothModes, "SameChainInBothModes"},
    KindRow{AuditKind::kTwoHints, "TwoHints"},
    KindRow{AuditKind::kNotSeen, "NotSeen"},
    KindRow{AuditKind::kAllowEntryUnused, "AllowEntryUnused"},
};

const KindRow& Row(AuditKind kind) {
  for (const KindRow& row : kKinds) {
    if (row.kind == kind) return row;
  }
  return kKinds.front();
}

size_t& CountOf(AuditReport& report, const AuditFinding& finding) {
  if (finding.allowed) return report.allowed;
  if (finding.severity == AuditSeverity::kError) return report.errors;
  return finding.severity == AuditSeverity::kWarning ? report.warnings : report.infos;
}

}  // namespace

absl::string_view AuditKindName(AuditKind kind) { return Row(kind).name; }

std::optional<AuditKind> AuditKindFromName(absl::string_view name) {
  for (const KindRow& row : kKinds) {
    if (row.name == name) return row.kind;
  }
  return std::nullopt;
}

absl::string_view AuditSeverityName(AuditSeverity severity) {
  if (severity == AuditSeverity::kError) return "error";
  return severity == AuditSeverity::kWarning ? "warning" : "info";
}

bool AuditExitNeedsAttention(const AuditReport& report) {
  return report.errors != 0 || report.warnings != 0;
}

AuditFinding& FindingCollector::At(AuditFinding finding, const std::string& allowed_text,
                                   const std::string& variant) {
  const AllowEntry* entry = options_.allow.Find(AuditKindName(finding.kind), finding.iptables_mode,
                                                finding.chain, allowed_text);
  const size_t line = entry == nullptr ? 0 : entry->line;
  if (entry != nullptr) used_entries_.insert(line);
  const auto [place, added] =
      places_.try_emplace(Key{finding.kind, netns_, finding.iptables_mode, finding.family,
                              finding.chain, finding.owner, variant, line},
                          findings_.size());
  if (!added) return findings_[place->second];
  finding.netns = netns_;
  if (entry != nullptr) finding.allowed = entry->reason.empty() ? ToString(*entry) : entry->reason;
  return findings_.emplace_back(std::move(finding));
}

void FindingCollector::AddRule(AuditFinding finding, AuditedRule rule, bool counted,
                               const std::string& variant) {
  AuditFinding& found =
      At(std::move(finding), absl::StrCat("-A ", rule.chain, " ", rule.text), variant);
  ++found.count;
  if (counted) found.packets = found.packets.value_or(0) + rule.packets;
  if (found.rules.size() < options_.max_examples) found.rules.push_back(std::move(rule));
}

void FindingCollector::AddDetail(AuditFinding finding, const std::string& detail,
                                 const std::string& variant) {
  AuditFinding& found = At(std::move(finding), detail, variant);
  ++found.count;
  found.details.push_back(detail);
}

void FindingCollector::AddSum(AuditFinding finding, const std::string& variant) {
  At(std::move(finding), "", variant);
}

AuditReport FindingCollector::Finish() {
  netns_.clear();
  for (const AllowEntry& entry : options_.allow.entries) {
    if (used_entries_.count(entry.line) != 0) continue;
    // Not through At: an entry for every kind would allow, and so use, itself.
    AuditFinding& finding = findings_.emplace_back();
    finding.kind = AuditKind::kAllowEntryUnused;
    finding.message = absl::StrCat("the allow list's ", ToString(entry), " matches nothing");
    finding.remedy = "Remove the entry, if what it allowed is gone for good.";
  }
  std::stable_sort(
      findings_.begin(), findings_.end(),
      [](const AuditFinding& a, const AuditFinding& b) { return a.severity > b.severity; });
  AuditReport report;
  for (const AuditFinding& finding : findings_) ++CountOf(report, finding);
  report.findings = std::move(findings_);
  return report;
}

}  // namespace kipt::agent
