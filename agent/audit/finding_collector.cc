// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/finding_collector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kipt::agent {
namespace {

size_t& CountOf(AuditReport& report, const AuditFinding& finding) {
  if (finding.allowed) return report.allowed;
  switch (finding.severity) {
    case AuditSeverity::kInfo:
      return report.infos;
    case AuditSeverity::kWarning:
      return report.warnings;
    case AuditSeverity::kError:
      return report.errors;
  }
  return report.infos;
}

}  // namespace

AuditFinding& FindingCollector::At(const FindingKey& key, const std::string& allowed_text,
                                   const Describe& describe) {
  const AllowEntry* entry =
      options_.allow.Find(AuditKindName(key.kind), key.iptables_mode, key.chain, allowed_text);
  const size_t line = entry == nullptr ? 0 : entry->line;
  if (entry != nullptr) used_entries_.insert(line);
  const auto [place, added] =
      places_.try_emplace(WholeKey{key.kind, netns_, key.iptables_mode, key.family, key.chain,
                                   key.owner, key.variant, line},
                          findings_.size());
  if (!added) return findings_[place->second];
  AuditFinding& finding = findings_.emplace_back();
  finding.kind = key.kind;
  finding.netns = netns_;
  finding.iptables_mode = key.iptables_mode;
  finding.family = key.family;
  finding.chain = key.chain;
  finding.owner = key.owner;
  if (entry != nullptr) finding.allowed = entry->reason.empty() ? ToString(*entry) : entry->reason;
  describe(finding);
  return finding;
}

void FindingCollector::AddRule(const FindingKey& key, const std::string& chain,
                               const netlink::SurveyRule& rule, bool counted,
                               const Describe& describe) {
  AuditFinding& finding = At(key, absl::StrCat("-A ", chain, " ", rule.text), describe);
  ++finding.count;
  if (counted) finding.packets = finding.packets.value_or(0) + rule.counters.packets;
  if (finding.rules.size() < options_.max_examples) {
    finding.rules.push_back({.chain = chain, .text = rule.text, .packets = rule.counters.packets});
  }
}

void FindingCollector::AddDetail(const FindingKey& key, const std::string& detail,
                                 const Describe& describe) {
  AuditFinding& finding = At(key, detail, describe);
  ++finding.count;
  finding.details.push_back(detail);
}

void FindingCollector::AddSum(const FindingKey& key, AuditFinding sum, const Describe& describe) {
  AuditFinding& finding = At(key, "", describe);
  finding.count = sum.count;
  finding.packets = sum.packets;
  finding.rules = std::move(sum.rules);
  finding.details = std::move(sum.details);
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
