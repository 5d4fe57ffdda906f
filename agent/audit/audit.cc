// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/audit.h"

#include <utility>
#include <vector>

#include "agent/audit/audit_parts.h"
#include "agent/audit/mixed_modes.h"

namespace kipt::agent {
namespace {

void AuditMixedModes(const NodeView& view, FindingCollector& findings) {
  for (AuditFinding& finding : FindModeMeetings(view.surveys)) {
    finding.count = finding.details.size();
    // Chains of one severity are one finding; the allow list names kinds.
    const std::string severity(AuditSeverityName(finding.severity));
    findings.AddSum(std::move(finding), severity);
  }
}

// Views of `view`, which outlives them.
std::vector<FamilyAudit> AuditSurvey(const netlink::Survey& survey, const AuditOptions& options,
                                     FindingCollector& findings) {
  std::vector<FamilyAudit> families;
  const bool counted = HasCounters(survey);
  for (KubeProxyFacts& proxy : FindKubeProxy(survey)) {
    const FamilyChains chains(survey, proxy.family);
    families.push_back({.chains = chains, .proxy = std::move(proxy), .counted = counted});
  }
  for (FamilyAudit& family : families) {
    AuditRules(family, options, findings);
    AuditChainState(family, findings);
    AuditKubeProxy(family, options, findings);
  }
  AuditMarks(survey, counted, families, options, findings);
  return families;
}

std::vector<FamilyAudit> AuditView(const NodeView& view, const AuditOptions& options,
                                   FindingCollector& findings) {
  findings.SetNamespace(view.name);
  std::vector<FamilyAudit> families;
  for (const netlink::Survey& survey : view.surveys) {
    for (FamilyAudit& family : AuditSurvey(survey, options, findings)) {
      families.push_back(std::move(family));
    }
  }
  AuditMixedModes(view, findings);
  AuditSurroundings(view, families, options, findings);
  return families;
}

}  // namespace

AuditReport Audit(absl::Span<const NodeView> views, const AuditOptions& options) {
  FindingCollector findings(options);
  std::vector<KubeProxyFacts> kube_proxy;
  for (const NodeView& view : views) {
    for (FamilyAudit& family : AuditView(view, options, findings)) {
      if (&view == &views.front()) kube_proxy.push_back(std::move(family.proxy));
    }
  }
  AuditReport report = findings.Finish();
  report.kube_proxy = std::move(kube_proxy);
  return report;
}

AuditReport Audit(const NodeView& view, const AuditOptions& options) {
  return Audit(absl::Span<const NodeView>(&view, 1), options);
}

}  // namespace kipt::agent
