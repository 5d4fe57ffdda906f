// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/node_audit.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "agent/audit/audit.h"
#include "agent/audit/finding.h"
#include "agent/audit/json.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

constexpr NodeChange kEveryChange[] = {NodeChange::kOwnershipCleanup,
                                       NodeChange::kKubeProxyNftables,
                                       NodeChange::kKubeProxyIpvsRemoval, NodeChange::kIptablesNft};

using Labels = std::map<std::string, std::string>;

bool Counts(const AuditFinding& finding) {
  return !finding.allowed && finding.severity != AuditSeverity::kInfo;
}

Labels LabelsOf(NodeChange change, AuditSeverity severity) {
  return {{"change", std::string(ChangeName(change))},
          {"severity", std::string(AuditSeverityName(severity))}};
}

// Chains of a service or pod are one, and others' names may hold anything.
Labels LabelsOf(NodeChange change, const AuditFinding& finding) {
  const std::pair<std::string, std::string> place =
      absl::StrSplit(finding.chain, absl::MaxSplits('/', 1));
  Labels labels = LabelsOf(change, finding.severity);
  labels["kind"] = std::string(AuditKindName(finding.kind));
  labels["backend"] = finding.iptables_mode;
  labels["family"] = finding.family;
  labels["table"] = Printable(place.first);
  labels["chain"] = Printable(ChainGroup(place.second));
  labels["owner"] = std::string(OwnerName(finding.owner));
  return labels;
}

Labels Other(const Labels& labels) {
  Labels other = {
      {"kind", "Other"}, {"change", labels.at("change")}, {"severity", labels.at("severity")}};
  for (const char* empty : {"backend", "family", "table", "chain", "owner"}) other[empty];
  return other;
}

std::map<Labels, double> SeriesOf(const std::vector<AuditReport>& reports) {
  std::map<Labels, double> all;
  for (const AuditReport& report : reports) {
    for (const AuditFinding& finding : report.findings) {
      if (Counts(finding)) ++all[LabelsOf(report.change, finding)];
    }
  }
  std::vector<std::pair<Labels, double>> sorted(all.begin(), all.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    // "error" comes before "warning".
    return a.first.at("severity") < b.first.at("severity");
  });
  // As many as leave room for the groups of the others.
  size_t named = std::min(sorted.size(), NodeAudit::kMostSeries);
  const auto groups = [&] {
    std::set<Labels> others;
    for (size_t i = named; i < sorted.size(); ++i) others.insert(Other(sorted[i].first));
    return others.size();
  };
  while (named + groups() > NodeAudit::kMostSeries) --named;
  std::map<Labels, double> series(sorted.begin(),
                                  sorted.begin() + static_cast<std::ptrdiff_t>(named));
  for (size_t i = named; i < sorted.size(); ++i) series[Other(sorted[i].first)] += sorted[i].second;
  return series;
}

// Lines of files that perhaps only root may read are not for every local user.
void HideLinesOfFiles(AuditFinding& finding) {
  if (finding.kind != AuditKind::kSavedRules) return;
  for (std::string& detail : finding.details) {
    // "FILE:12: LINE"
    detail = detail.substr(0, detail.find(": "));
  }
}

// What a finding is, without what changes with every packet or rule.
std::string Identity(const AuditFinding& finding) {
  std::string text =
      absl::StrCat(AuditSeverityName(finding.severity), " ", AuditKindName(finding.kind));
  for (const std::string* word : {&finding.iptables_mode, &finding.family, &finding.chain}) {
    if (!word->empty()) absl::StrAppend(&text, " ", *word);
  }
  return text;
}

struct Noticed {
  AuditSeverity severity = AuditSeverity::kWarning;
  std::vector<absl::string_view> changes = {};
};
// By identity and message.
using AllNoticed = std::map<std::pair<std::string, std::string>, Noticed>;

AllNoticed NoticedOf(const NodeAudit& audit) {
  AllNoticed all;
  for (const AuditReport& report : audit.reports) {
    for (const AuditFinding& finding : report.findings) {
      if (!Counts(finding)) continue;
      Noticed& one = all[{Identity(finding), finding.message}];
      one.severity = finding.severity;
      if (one.changes.empty() || one.changes.back() != ChangeName(report.change)) {
        one.changes.push_back(ChangeName(report.change));
      }
    }
  }
  return all;
}

}  // namespace

NodeAudit MakeNodeAudit(std::vector<AuditReport> reports, absl::Time time) {
  NodeAudit audit = {.time = time, .reports = std::move(reports)};
  audit.series = SeriesOf(audit.reports);
  for (AuditReport& report : audit.reports) {
    if (report.findings.size() > NodeAudit::kMostFindings) {
      report.more = report.findings.size() - NodeAudit::kMostFindings;
      report.findings.resize(NodeAudit::kMostFindings);
      report.findings.shrink_to_fit();
    }
    for (AuditFinding& finding : report.findings) HideLinesOfFiles(finding);
  }
  return audit;
}

absl::StatusOr<NodeAudit> AuditNode(const ModeSources& sources, const CniConfigs& cni,
                                    AuditOptions options,
                                    const std::function<absl::Status()>& pause) {
  options.change = NodeChange::kKubeProxyNftables;
  const uint32_t marks = options.OurMarks();
  const NodeView view =
      SiftedNodeView(sources, cni, kEveryChange, {.marks = marks, .pause = pause});
  if (absl::Status status = pause(); !status.ok()) return status;
  if (view.torn) return absl::AbortedError("other programs kept changing the rules");
  std::vector<AuditReport> reports;
  for (const NodeChange change : kEveryChange) {
    options.change = change;
    reports.push_back(Audit({&view, 1}, options));
    if (absl::Status status = pause(); !status.ok()) return status;
  }
  return MakeNodeAudit(std::move(reports), absl::Now());
}

std::string NodeAuditText(const NodeAudit& audit) {
  std::string text =
      absl::StrCat("Last audit: ",
                   audit.time == absl::InfinitePast()
                       ? "none has ended yet"
                       : absl::FormatTime(absl::RFC3339_sec, audit.time, absl::UTCTimeZone()),
                   "\n");
  for (const AuditReport& report : audit.reports) {
    absl::StrAppend(&text, "\nBefore ", ChangeName(report.change), ":\n\n", AuditText(report));
  }
  return text;
}

std::string NodeAuditJson(const NodeAudit& audit) {
  const bool any = audit.time != absl::InfinitePast();
  Json json = {{"time", nullptr}, {"audits", List(audit.reports, ReportJson)}};
  if (any) json["time"] = absl::FormatTime(absl::RFC3339_sec, audit.time, absl::UTCTimeZone());
  return Print(json);
}

std::vector<FindingNews> NewsOf(const NodeAudit& before, const NodeAudit& after) {
  const AllNoticed old = NoticedOf(before);
  const AllNoticed now = NoticedOf(after);
  std::vector<FindingNews> news;
  for (const auto& [some, others, gone] :
       {std::tuple(&now, &old, false), std::tuple(&old, &now, true)}) {
    for (const auto& [key, one] : *some) {
      if (others->contains(key)) continue;
      news.push_back({.gone = gone,
                      .severity = one.severity,
                      .text = absl::StrCat(key.first, ", before ", absl::StrJoin(one.changes, ", "),
                                           ": ", key.second)});
    }
  }
  return news;
}

}  // namespace kipt::agent
