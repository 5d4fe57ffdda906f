// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/audit_parts.h
//
// The parts of an audit; audit.cc calls each once for what it is about. Not installed.
#ifndef KIPT_AGENT_AUDIT_AUDIT_PARTS_H_
#define KIPT_AGENT_AUDIT_AUDIT_PARTS_H_

#include <map>
#include <string>
#include <vector>

#include "agent/audit/audit.h"
#include "agent/audit/family_chains.h"
#include "agent/audit/finding_collector.h"
#include "agent/audit/kube_proxy_facts.h"
#include "agent/audit/node_view.h"

namespace kipt::agent {

// Rules that jump to one chain of kubelet's.
struct ChainUse {
  size_t by_kube_proxy = 0;
  uint64_t kube_proxy_packets = 0;
  std::vector<AuditedRule> kube_proxy_examples = {};
  size_t by_others = 0;
  uint64_t packets = 0;

  size_t all() const { return by_kube_proxy + by_others; }
};
// By "nat/KUBE-MARK-MASQ".
using ChainUses = std::map<std::string, ChainUse>;

struct FamilyAudit {
  FamilyChains chains;
  KubeProxyFacts proxy;
  // The survey has counters: some rule's is not zero.
  bool counted = false;
  ChainUses uses = {};
};

bool HasCounters(const netlink::Survey& survey);

// Every rule of the iptables tables: who uses kubelet's chains, who stands in them. Fills
// `audit.uses`.
void AuditRules(FamilyAudit& audit, const AuditOptions& options, FindingCollector& findings);
// Every rule of every table, iptables' or not: who sets and tests our mark bits. `families`: of the
// same survey.
void AuditMarks(const netlink::Survey& survey, bool counted,
                const std::vector<FamilyAudit>& families, const AuditOptions& options,
                FindingCollector& findings);
// Whether kubelet's chains do what those who use them expect.
void AuditChainState(const FamilyAudit& audit, FindingCollector& findings);
void AuditKubeProxy(const FamilyAudit& audit, const AuditOptions& options,
                    FindingCollector& findings);
// What is no rule: CNI configurations, routing rules, route_localnet, problems.
void AuditSurroundings(const NodeView& view, const std::vector<FamilyAudit>& families,
                       const AuditOptions& options, FindingCollector& findings);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_AUDIT_PARTS_H_
