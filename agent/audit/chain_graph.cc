// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/chain_graph.h"

#include <set>
#include <vector>

namespace kipt::agent {
namespace {

using Edges = std::map<std::pair<std::string, std::string>, GraphEdge>;

ChainGraph WholeGraph(const FamilyChains& chains, absl::string_view table) {
  ChainGraph graph;
  const netlink::TableId id = chains.Id(table);
  for (const auto& [name, chain] : chains.In(table)) {
    const std::string group(ChainGroup(name));
    GraphNode& node = graph.nodes[group];
    node.owner = chain.base ? Owner::kBaseChain : OwnerOfChain(id, name);
    ++node.chains;
    node.rules += chain.rules.size();
    for (const netlink::SurveyRule& rule : chain.rules) {
      if (rule.jump.empty()) continue;
      GraphEdge& edge = graph.edges[{group, std::string(ChainGroup(rule.jump))}];
      ++edge.rules;
      edge.packets += rule.counters.packets;
    }
  }
  return graph;
}

// Those from which the chains of `reached` can be reached, added to it.
void AddAncestors(const Edges& edges, std::set<std::string>& reached) {
  std::vector<std::string> to_do(reached.begin(), reached.end());
  while (!to_do.empty()) {
    const std::string at = to_do.back();
    to_do.pop_back();
    for (const auto& [ends, edge] : edges) {
      if (ends.second == at && reached.insert(ends.first).second) to_do.push_back(ends.first);
    }
  }
}

}  // namespace

ChainGraph GraphAround(const FamilyChains& chains, absl::string_view table) {
  ChainGraph graph = WholeGraph(chains, table);
  std::set<std::string> wanted;
  for (const auto& [name, node] : graph.nodes) {
    if (IsKubeletsOrOurs(node.owner)) wanted.insert(name);
  }
  std::set<std::string> targets;
  for (const auto& [ends, edge] : graph.edges) {
    if (wanted.count(ends.first) != 0) targets.insert(ends.second);
  }
  AddAncestors(graph.edges, wanted);
  wanted.insert(targets.begin(), targets.end());
  std::erase_if(graph.nodes, [&](const auto& node) { return wanted.count(node.first) == 0; });
  std::erase_if(graph.edges, [&](const auto& edge) {
    return wanted.count(edge.first.first) == 0 || wanted.count(edge.first.second) == 0;
  });
  return graph;
}

}  // namespace kipt::agent
