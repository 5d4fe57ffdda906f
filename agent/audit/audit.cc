// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/audit.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/audit/audit_parts.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

using netlink::Survey;

// In the order of the enumeration.
constexpr auto kKindNames = std::to_array<absl::string_view>(
    {"ChainUser", "PrivateChainUser", "ForeignRule", "CniConfig", "CniConfigUnreadable",
     "MarkBitSet", "MarkBitTested", "MarkBitCleared", "IpRuleFwmark", "DeviceMark",
     // Of a family as a whole.
     "MarkMasqEmpty", "MarkMasqUnheard", "MarkDropEmpty", "MarkDropUnheard",
     "KubeProxyUsesMarkDrop", "KubeProxyUsesMarkMasq", "KubeProxy", "KubeProxyLeftOver",
     "KubeProxyJumpLost", "Kpng",
     // Of a network namespace.
     "RouteLocalnetExposed", "BothModesInUse", "ShadowedByOtherMode", "SameChainInBothModes",
     "TwoHints", "ModeUnknown", "IptablesProbeFails", "FamilySkipped", "TableIncompatible",
     // Of changes.
     "CleanupBlocked", "MasqueradeBit", "LocalhostNodePorts", "NodePortAddresses",
     "FirewallBypassed", "ConntrackWorkaround", "SavedRules", "KernelTooOld", "KernelLacksModules",
     "NftTooOld", "IpvsInUse", "IpvsScheduler", "IpvsOfOthers", "IpsetUser", "LegacyRulesStay",
     "NotInNft", "NotSeen", "AllowEntryUnused"});

// ---- the allow list ----

absl::Status LineError(size_t line, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", problem));
}

// The next word of `text`, which it is taken off.
absl::string_view TakeWord(absl::string_view& text) {
  text = absl::StripLeadingAsciiWhitespace(text);
  const size_t end = std::min(text.find_first_of(" \t"), text.size());
  const absl::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

bool IsChain(absl::string_view word) {
  if (word == "*") return true;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(word, absl::MaxSplits('/', 1));
  return netlink::FindTable(parts.first) && !parts.second.empty() &&
         !absl::StrContains(parts.second, "/");
}

absl::StatusOr<AllowEntry> ParseEntry(size_t line, absl::string_view text) {
  AllowEntry entry;
  entry.line = line;
  if (const size_t hash = text.rfind(" # "); hash != absl::string_view::npos) {
    entry.reason = std::string(absl::StripAsciiWhitespace(text.substr(hash + 3)));
    text = text.substr(0, hash);
  }
  entry.kind = std::string(TakeWord(text));
  if (entry.kind != "*" && !AuditKindFromName(entry.kind)) {
    return LineError(
        line, absl::StrCat(featuregates::QuoteForMessage(entry.kind), " is not a kind of finding"));
  }
  absl::string_view word = TakeWord(text);
  if (word == "nft" || word == "legacy") {
    entry.iptables_mode = std::string(word);
    word = TakeWord(text);
  }
  if (!IsChain(word)) {
    return LineError(line, absl::StrCat("expected TABLE/CHAIN, or * for any, instead of ",
                                        featuregates::QuoteForMessage(word)));
  }
  entry.chain = std::string(word);
  entry.text = std::string(absl::StripAsciiWhitespace(text));
  if (entry.kind == "*" && entry.chain == "*" && entry.text.empty()) {
    return LineError(line, "this would allow everything");
  }
  return entry;
}

// ---- the audit ----

// The tables of kube-proxy's nftables mode, which `kube-proxy --cleanup` deletes of both families.
std::vector<std::string> NftablesProxy(const NodeView& view) {
  std::vector<std::string> tables;
  for (const Survey& survey : view.surveys) {
    for (const auto& [table, chains] : survey.tables) {
      if (table.name == kNftablesProxyTable && table.family.starts_with("ip")) {
        tables.push_back(absl::StrCat("the table ", netlink::ToString(table)));
      }
    }
  }
  return tables;
}

std::vector<FamilyAudit> AuditView(const NodeView& view, FindingCollector& findings) {
  findings.netns = view.name;
  const std::vector<std::string> nftables_proxy = NftablesProxy(view);
  std::vector<FamilyAudit> all;
  for (const Survey& survey : view.surveys) {
    std::vector<FamilyAudit> families;
    const auto left_out = view.left_out.find(survey.mode);
    const LeftOut* const left = left_out == view.left_out.end() ? nullptr : &left_out->second;
    findings.counted = HasCounters(survey) || (left != nullptr && left->counted);
    for (KubeProxyFacts& proxy : FindKubeProxy(survey)) {
      // Next to nftables mode, rules of iptables mode that no packet reaches are left over.
      const bool hooked = FamilyChains(survey, proxy.family).HangsOnBase("nat", "KUBE-SERVICES");
      if (!nftables_proxy.empty() && proxy.KeepsMarkMasq() && !hooked) {
        proxy.mode = KubeProxyMode::kLeftOver;
      }
      KubeProxyFacts after = proxy;
      if (findings.options.change == NodeChange::kKubeProxyNftables && proxy.KeepsMarkMasq()) {
        after.mode = KubeProxyMode::kNftables;
      }
      families.push_back({findings, FamilyChains(survey, proxy.family), std::move(proxy),
                          std::move(after), view.surveys, left, nftables_proxy});
    }
    for (FamilyAudit& family : families) {
      AuditRules(family);
      AuditChains(family);
    }
    AuditMarks(survey, families, findings);
    absl::c_move(families, std::back_inserter(all));
  }
  AuditClearedMarks(view, all, findings);
  for (AuditFinding& meeting : FindModeMeetings(view.surveys)) {
    // Chains of one severity are one finding; the allow list names kinds.
    const std::string severity(AuditSeverityName(meeting.severity));
    findings.AddSum(std::move(meeting), severity);
  }
  AuditSurroundings(view, all, findings);
  AuditProbe(view, all, findings);
  AuditChange(view, all, findings);
  return all;
}

}  // namespace

// ---- names ----

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

// ---- the allow list ----

std::string ToString(const AllowEntry& entry) {
  return absl::StrCat("line ", entry.line, ": ", entry.kind, " ", entry.iptables_mode,
                      entry.iptables_mode.empty() ? "" : " ", entry.chain,
                      entry.text.empty() ? "" : " ", entry.text);
}

bool AllowEntry::Covers(absl::string_view of_kind, absl::string_view of_mode,
                        absl::string_view of_chain, absl::string_view of_text) const {
  return (kind == "*" || kind == of_kind) && (iptables_mode.empty() || iptables_mode == of_mode) &&
         (chain == "*" || chain == of_chain) && absl::StrContains(of_text, text);
}

absl::StatusOr<AllowList> ParseAllowList(absl::string_view text) {
  AllowList list;
  size_t line = 0;
  for (const absl::string_view whole : absl::StrSplit(text, '\n')) {
    ++line;
    const absl::string_view content = absl::StripAsciiWhitespace(whole);
    if (content.empty() || content.front() == '#') continue;
    absl::StatusOr<AllowEntry> entry = ParseEntry(line, content);
    if (!entry.ok()) return entry.status();
    for (const AllowEntry& other : list) {
      if (other.kind == entry->kind && other.iptables_mode == entry->iptables_mode &&
          other.chain == entry->chain && other.text == entry->text) {
        return LineError(line, absl::StrCat("repeats line ", other.line));
      }
    }
    list.push_back(*std::move(entry));
  }
  return list;
}

// ---- findings ----

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

bool HasCounters(const Survey& survey) {
  return absl::c_any_of(survey.tables, [](const auto& table) {
    return absl::c_any_of(table.second, [](const auto& chain) {
      return absl::c_any_of(chain.second.rules,
                            [](const auto& rule) { return rule.counters.packets != 0; });
    });
  });
}

// ---- the audit ----

AuditReport Audit(absl::Span<const NodeView> views, const AuditOptions& options) {
  FindingCollector findings(options);
  AuditReport report{.change = options.change};
  if (!options.mode_unknown.empty() && options.mode != Mode::kOff) {
    findings.AddSum(
        {.kind = AuditKind::kModeUnknown,
         .severity = AuditSeverity::kError,
         .message = options.mode_unknown,
         .consequence = "The agent writes nothing, so no program repairs what is missing.",
         .remedy = "Find out which iptables kubelet runs, and give --iptables-mode. If a move of "
                   "the node left the chains, remove them in the mode that is no longer used."},
        "");
  }
  for (const NodeView& view : views) {
    for (FamilyAudit& family : AuditView(view, findings)) {
      if (&view == &views.front()) report.kube_proxy.push_back(std::move(family.proxy));
    }
  }
  findings.Finish(report);
  return report;
}

}  // namespace kipt::agent
