// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/chain_graph.h
//
// Who jumps to whom around kubelet's chains, with the chains that are made one of per service taken
// together: what is drawn. Pure. Not installed.
#ifndef KIPT_AGENT_AUDIT_CHAIN_GRAPH_H_
#define KIPT_AGENT_AUDIT_CHAIN_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "agent/audit/chain_owner.h"
#include "agent/audit/family_chains.h"

namespace kipt::agent {

struct GraphNode {
  Owner owner = Owner::kUnknown;
  size_t chains = 0;  // how many it stands for
  size_t rules = 0;
};

struct GraphEdge {
  size_t rules = 0;
  uint64_t packets = 0;
};

// Of one table. Names are as ChainGroup gives them.
struct ChainGraph {
  std::map<std::string, GraphNode> nodes;
  std::map<std::pair<std::string, std::string>, GraphEdge> edges;
};

// Kubelet's chains, those from which packets can come to them, and those that they jump to
// themselves; nothing where the table has none of kubelet's.
ChainGraph GraphAround(const FamilyChains& chains, absl::string_view table);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_CHAIN_GRAPH_H_
