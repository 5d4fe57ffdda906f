// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/audit.h
//
// Who on a node depends on kubelet's chains, on the mark bits that they use, or on kube-proxy to
// keep them; and what becomes of it once IPTablesOwnershipCleanup (KEP-3178) is on. Pure.
//
// How bad a dependence is follows from who keeps the chain afterwards: kube-proxy's iptables and
// IPVS modes go on writing nat/KUBE-MARK-MASQ and nat/KUBE-POSTROUTING themselves, so what uses
// them beside such a kube-proxy works on, on a promise that nobody made (warning); beside its
// nftables mode, or none, it breaks (error).
#ifndef KIPT_AGENT_AUDIT_AUDIT_H_
#define KIPT_AGENT_AUDIT_AUDIT_H_

#include <cstddef>
#include <string>

#include "absl/types/span.h"
#include "agent/audit/allow_list.h"
#include "agent/audit/audit_finding.h"
#include "agent/audit/node_view.h"
#include "agent/policy/policy.h"

namespace kipt::agent {

struct AuditOptions {
  MarkBits bits = {};
  // What is in force on the node now. In cleanup mode the gate is on already.
  Mode mode = Mode::kLegacy;
  AllowList allow = {};
  // Rules shown of a finding that is about many.
  size_t max_examples = 3;
};

// The first view is the node's own namespace. An entry of the allow list is unused if it matches
// nothing in any of them.
AuditReport Audit(absl::Span<const NodeView> views, const AuditOptions& options);
AuditReport Audit(const NodeView& view, const AuditOptions& options);

// For people.
std::string AuditText(const AuditReport& report);
// One object: {"findings": [...], "kubeProxy": [...], "errors": n, ...}.
std::string AuditJson(const AuditReport& report);
// The chains that kubelet's chains have to do with, for graphviz: who jumps to whom, coloured by
// owner, findings highlighted. Chains that are made one of per service are one node.
std::string AuditDot(const NodeView& view, const AuditReport& report);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_AUDIT_H_
