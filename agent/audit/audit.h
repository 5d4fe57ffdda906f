// SPDX-License-Identifier: Apache-2.0
//
// Which programs on a node depend on kubelet's chains, on the mark bits that they use, or on
// kube-proxy to keep them; and what becomes of them once IPTablesOwnershipCleanup (KEP-3178) is on.
// Only gathering reads the node.
//
// The severity of a dependence follows from the program that keeps the chain afterwards.
// kube-proxy's iptables and IPVS modes write nat/KUBE-MARK-MASQ and nat/KUBE-POSTROUTING
// themselves: there, rules that use them keep working, without a promise (warning). Elsewhere they
// break (error).
//
// The same for other changes (NodeChange): what breaks on this node, why, and what to do.
#ifndef KIPT_AGENT_AUDIT_AUDIT_H_
#define KIPT_AGENT_AUDIT_AUDIT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "agent/audit/allow_list.h"
#include "agent/audit/finding.h"
#include "agent/audit/kube_proxy_facts.h"
#include "agent/audit/node_view.h"
#include "agent/policy/policy.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

struct AuditReport {
  // Worst first; then in the order of the view.
  std::vector<AuditFinding> findings = {};
  NodeChange change = NodeChange::kOwnershipCleanup;
  // Those of the first view, the node's own namespace.
  std::vector<KubeProxyFacts> kube_proxy = {};
  // How many of each severity are not allowed.
  size_t errors = 0;
  size_t warnings = 0;
  size_t infos = 0;
  size_t allowed = 0;
  // Findings that are counted above and are not in `findings`, where only so many are kept.
  size_t more = 0;
};

// A warning or an error is not allowed.
inline bool AuditExitNeedsAttention(const AuditReport& report) {
  return report.errors != 0 || report.warnings != 0;
}

// kube-proxy's nftables mode masquerades by it (nftables.masqueradeBit, by default 14).
inline constexpr uint32_t kNftablesMasquerade = uint32_t{1} << 14;

struct AuditOptions {
  MarkBits bits = {};
  // In force on the node now. In cleanup mode the gate is on already.
  Mode mode = Mode::kLegacy;
  AllowList allow = {};
  NodeChange change = NodeChange::kOwnershipCleanup;
  // Those of the node. Without both, a family without kubelet's chains is no finding.
  std::vector<netlink::Family> families = {};
  // ModeContradiction of the node.
  std::string mode_unknown = {};

  // The bits that kubelet masquerades by, and kube-proxy after `change`.
  uint32_t MasqueradeMarks() const {
    const bool nftables = change == NodeChange::kKubeProxyNftables;
    return (uint32_t{1} << bits.masquerade) | (nftables ? kNftablesMasquerade : 0);
  }
  uint32_t OurMarks() const { return MasqueradeMarks() | (uint32_t{1} << bits.drop); }
};

// The first view is the node's own namespace. An entry of the allow list is unused where it covers
// nothing in any view.
AuditReport Audit(absl::Span<const NodeView> views, const AuditOptions& options);

std::string AuditText(const AuditReport& report);
// One object: {"findings": [...], "kubeProxy": [...], "errors": n, ...}.
std::string AuditJson(const AuditReport& report);
// Kubelet's chains and those around them, for graphviz: the jumps between them, coloured by owner,
// findings highlighted. Chains that a program makes one of per service are one node.
std::string AuditDot(const NodeView& view, const AuditReport& report);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_AUDIT_H_
