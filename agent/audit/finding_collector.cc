// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/finding_collector.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace kipt::agent {

bool CanFind(NodeChange change, AuditKind kind) {
  const bool nftables = change == NodeChange::kKubeProxyNftables;
  const bool to_nft = change == NodeChange::kIptablesNft;
  if (kind <= AuditKind::kDeviceMark) return nftables || change == NodeChange::kOwnershipCleanup;
  if (kind <= AuditKind::kKubeProxyUsesMarkMasq) return change == NodeChange::kOwnershipCleanup;
  if (kind < AuditKind::kCleanupBlocked || kind > AuditKind::kNotInNft) return true;
  if (kind == AuditKind::kSavedRules) return true;
  if (kind >= AuditKind::kLegacyRulesStay) return to_nft;
  const bool of_ipvs = kind == AuditKind::kCleanupBlocked || kind >= AuditKind::kIpvsInUse;
  return nftables || (of_ipvs && change == NodeChange::kKubeProxyIpvsRemoval);
}

AuditFinding& FindingCollector::At(AuditFinding finding, const std::string& allowed_text,
                                   const std::string& variant) {
  const auto entry = absl::c_find_if(options.allow, [&](const AllowEntry& one) {
    return one.Covers(AuditKindName(finding.kind), finding.iptables_mode, finding.chain,
                      allowed_text);
  });
  const bool is_allowed = entry != options.allow.end();
  if (is_allowed) used_entries_.insert(entry->line);
  const auto [place, added] =
      places_.try_emplace(Key{finding.kind, netns, finding.iptables_mode, finding.family,
                              finding.chain, finding.owner, variant, is_allowed ? entry->line : 0},
                          findings_.size());
  if (!added) return findings_[place->second];
  finding.netns = netns;
  if (is_allowed) finding.allowed = entry->reason.empty() ? ToString(*entry) : entry->reason;
  return findings_.emplace_back(std::move(finding));
}

bool FindingCollector::Collects(AuditKind kind) const { return CanFind(options.change, kind); }

void FindingCollector::AddRule(AuditFinding finding, AuditedRule rule, const std::string& variant) {
  if (!Collects(finding.kind)) return;
  AuditFinding& found =
      At(std::move(finding), absl::StrCat("-A ", rule.chain, " ", rule.text), variant);
  ++found.count;
  if (counted) found.packets = found.packets.value_or(0) + rule.packets;
  if (found.rules.size() < kMostExamples) found.rules.push_back(std::move(rule));
}

void FindingCollector::AddDetail(AuditFinding finding, const std::string& detail,
                                 const std::string& variant) {
  if (!Collects(finding.kind)) return;
  AuditFinding& found = At(std::move(finding), detail, variant);
  ++found.count;
  if (found.details.size() < kMostDetails) found.details.push_back(detail);
}

void FindingCollector::AddLeftOut(AuditFinding finding, const LeftOutRules& rules) {
  if (!Collects(finding.kind)) return;
  AuditFinding& found = At(std::move(finding), "", "");
  found.count += rules.count;
  if (counted) found.packets = found.packets.value_or(0) + rules.packets;
}

void FindingCollector::AddSum(AuditFinding finding, const std::string& variant) {
  if (!Collects(finding.kind)) return;
  finding.details.resize(std::min(finding.details.size(), kMostDetails));
  At(std::move(finding), "", variant);
}

void FindingCollector::Finish(AuditReport& report) {
  for (const AllowEntry& entry : options.allow) {
    // It may be for an audit before another change.
    const auto kind = AuditKindFromName(entry.kind);
    if (used_entries_.contains(entry.line) || (kind && !CanFind(options.change, *kind))) continue;
    // Not through At: an entry for every kind would allow, and so use, itself.
    findings_.push_back(
        {.kind = AuditKind::kAllowEntryUnused,
         .message = absl::StrCat("the allow list's ", ToString(entry), " matches nothing"),
         .remedy = "Remove the entry if its rule is gone for good."});
  }
  absl::c_stable_sort(findings_, [](const AuditFinding& a, const AuditFinding& b) {
    return a.severity > b.severity;
  });
  for (const AuditFinding& finding : findings_) {
    ++(finding.allowed                               ? report.allowed
       : finding.severity == AuditSeverity::kError   ? report.errors
       : finding.severity == AuditSeverity::kWarning ? report.warnings
                                                     : report.infos);
  }
  report.findings = std::move(findings_);
}

}  // namespace kipt::agent
