// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/node_view.h
//
// All that an audit looks at, as a value: what stands in one network namespace and beside it. The
// analysis of it is pure.
//
// Gathering leaves no trace: no table, chain or module comes to be, and where there are no legacy
// tables no program is run. A source that cannot be read is a problem, and the others are read all
// the same.
#ifndef KIPT_AGENT_AUDIT_NODE_VIEW_H_
#define KIPT_AGENT_AUDIT_NODE_VIEW_H_

#include <string>
#include <vector>

#include "agent/detect/mode_evidence.h"
#include "agent/detect/routing.h"
#include "agent/policy/dependents.h"
#include "netlink/survey.h"

namespace kipt::agent {

struct NodeView {
  // Of the network namespace, as NetworkNamespace::name: "/run/netns/pod1", "pid 123 (nginx)".
  // Empty for the one in which the gathering thread was.
  std::string name = {};
  // Of the modes "nft" and "legacy" those that hold a table, in this order; every rule is kept. One
  // that could not be read is not here, and has a problem.
  std::vector<netlink::Survey> surveys = {};
  // Of the node: empty in a view of another namespace than the gathering thread's.
  CniConfigs cni = {};
  std::vector<FwmarkRule> ip_rules = {};
  // As ReadRouteLocalnet: {"all"}, or the interfaces. Empty also where there is no IPv4.
  std::vector<std::string> route_localnet = {};
  // What could not be read, and why, each a sentence for an operator: "nft tables: ...". The CNI
  // configurations have their own, in `cni`.
  std::vector<std::string> problems = {};

  bool operator==(const NodeView&) const = default;
};

// What the calling thread sees in the network namespace that it is in. `cni` is copied into the
// answer.
NodeView GatherNodeView(const ModeSources& sources, const CniConfigs& cni);

// As GatherNodeView for every network namespace that can be seen (ListNetworkNamespaces), the
// calling thread's first. Each is visited on a thread of its own, one after another: the caller
// stays where it is. One that cannot be entered (CAP_SYS_ADMIN) is a view with a problem; where
// namespaces may have been missed, the first view has a problem that says so.
//
// `sources` must be the calling thread's own (SystemModeSources): what it opens, it opens in the
// namespace of the thread that asks.
std::vector<NodeView> GatherAllNamespaces(const ModeSources& sources, const CniConfigs& cni);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_NODE_VIEW_H_
