// SPDX-License-Identifier: Apache-2.0
//
// The parts of an audit: each reports to a FindingCollector, and audit.cc calls each once.
#ifndef KIPT_AGENT_AUDIT_FAMILY_AUDIT_H_
#define KIPT_AGENT_AUDIT_FAMILY_AUDIT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "agent/audit/finding_collector.h"

namespace kipt::agent {

inline std::string HexText(uint32_t bits) { return absl::StrCat("0x", absl::Hex(bits)); }

// Rules that jump to one chain of kubelet's.
struct ChainUse {
  AuditFinding by_kube_proxy = {};  // count, packets and examples
  size_t all = 0;                   // with those of others
};

struct FamilyAudit {
  FindingCollector& findings;
  FamilyChains chains;
  KubeProxyFacts proxy;
  KubeProxyFacts after;                       // with the change
  absl::Span<const netlink::Survey> surveys;  // of the network namespace
  const LeftOut* left_out = nullptr;          // of the survey; null where it is whole
  // "the table ip kube-proxy": of any survey of the view, and either family.
  std::vector<std::string> nftables_proxy = {};
  std::map<std::string, ChainUse> uses = {};  // by "nat/KUBE-MARK-MASQ"

  // `finding` as one of this iptables mode and family.
  AuditFinding Here(AuditFinding finding) const {
    finding.iptables_mode = chains.survey().mode;
    finding.family = chains.name();
    return finding;
  }
};

// As examples show `rule`.
inline AuditedRule Audited(const netlink::TableId& table, const std::string& chain,
                           const netlink::SurveyRule& rule) {
  return {.chain = chain, .text = ToString(table, rule), .packets = rule.counters.packets};
}

// Some rule's counter is not zero.
bool HasCounters(const netlink::Survey& survey);

// Every rule of the iptables tables: which use kubelet's chains, which are in them. Fills
// `audit.uses`.
void AuditRules(FamilyAudit& audit);
// Every rule of every table: which set and test our mark bits. `families` is of the same survey.
void AuditMarks(const netlink::Survey& survey, const std::vector<FamilyAudit>& families,
                FindingCollector& findings);
// Rules that clear our mark bits after KUBE-MARK-* has set them, and before they are acted on.
// `families` are those of all surveys of `view`.
void AuditClearedMarks(const NodeView& view, const std::vector<FamilyAudit>& families,
                       FindingCollector& findings);
// Whether kubelet's chains do what their users expect, and which kube-proxy does.
void AuditChains(FamilyAudit& audit);
// What WireGuard interfaces and tc filters do with our mark bits.
void AuditDeviceMarks(const NodeView& view, const std::vector<FamilyAudit>& families,
                      FindingCollector& findings);
// That, CNI configurations, routing rules, route_localnet, problems.
void AuditSurroundings(const NodeView& view, const std::vector<FamilyAudit>& families,
                       FindingCollector& findings);
// Whether kubelet will give up a family, or has.
void AuditProbe(const NodeView& view, const std::vector<FamilyAudit>& families,
                FindingCollector& findings);
// What `findings.options.change` breaks beyond the above.
void AuditChange(const NodeView& view, const std::vector<FamilyAudit>& families,
                 FindingCollector& findings);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_FAMILY_AUDIT_H_
