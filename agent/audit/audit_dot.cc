// SPDX-License-Identifier: Apache-2.0
//
// The picture, for graphviz. Chains that a program makes one of per service are one node.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "agent/audit/audit.h"
#include "agent/audit/chain_meaning.h"
#include "agent/audit/finding.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

// ---- the jumps around kubelet's chains ----

struct GraphNode {
  Owner owner = Owner::kUnknown;
  size_t chains = 0;  // how many it represents
  size_t rules = 0;
};

struct GraphEdge {
  size_t rules = 0;
  uint64_t packets = 0;
};

// From and to, in one table. Names are as ChainGroup gives them.
using Ends = std::pair<std::string, std::string>;
struct ChainGraph {
  std::map<std::string, GraphNode> nodes;
  std::map<Ends, GraphEdge> edges;
};

// Kubelet's chains, those from which packets can come to them, and those that they jump to
// themselves; nothing where the table has none of kubelet's.
ChainGraph GraphAround(const FamilyChains& chains, absl::string_view table) {
  ChainGraph graph;
  std::set<std::string> shown;
  for (const auto& [name, chain] : chains.In(table)) {
    const std::string group(ChainGroup(name));
    GraphNode& node = graph.nodes[group];
    node.owner = OwnerOfChain(chains.Id(table), name, chain.base);
    ++node.chains;
    node.rules += chain.rules.size();
    if (IsKubeletsOrOurs(node.owner)) shown.insert(group);
    for (const netlink::SurveyRule& rule : chain.rules) {
      if (JumpOf(rule).empty()) continue;
      GraphEdge& edge = graph.edges[{group, std::string(ChainGroup(JumpOf(rule)))}];
      ++edge.rules;
      edge.packets += rule.counters.packets;
    }
  }
  std::set<std::string> targets;
  for (const auto& [ends, edge] : graph.edges) {
    if (shown.contains(ends.first)) targets.insert(ends.second);
  }
  for (bool more = true; more;) {
    more = false;
    for (const auto& [ends, edge] : graph.edges) {
      more |= shown.contains(ends.second) && shown.insert(ends.first).second;
    }
  }
  shown.merge(targets);
  std::erase_if(graph.nodes, [&](const auto& node) { return !shown.contains(node.first); });
  std::erase_if(graph.edges, [&](const auto& edge) {
    return !shown.contains(edge.first.first) || !shown.contains(edge.first.second);
  });
  return graph;
}

// ---- the picture ----

// Kubernetes' own in blues and greens, others in warm colours; all light, for black letters.
constexpr std::pair<Owner, absl::string_view> kColours[] = {
    {Owner::kBaseChain, "#ececec"},     {Owner::kKubelet, "#9ec9f5"},
    {Owner::kThisAgent, "#c9d6f7"},     {Owner::kKubeProxy, "#bfe6c4"},
    {Owner::kKubeProxyIpvs, "#a5dbd0"}, {Owner::kPortmap, "#ffd59e"},
    {Owner::kHostPorts, "#ffc9a6"},     {Owner::kCrio, "#ffc9a6"},
    {Owner::kKubeRouter, "#f7c6e0"},    {Owner::kCalico, "#f9e79f"},
    {Owner::kCilium, "#f9e79f"},        {Owner::kUnknown, "#f5b7b1"},
};

absl::string_view ColorOf(Owner of) {
  const auto* row = absl::c_find_if(kColours, [&](const auto& one) { return one.first == of; });
  return row == std::end(kColours) ? "#e3d0f2" : row->second;
}

absl::string_view AlarmColour(AuditSeverity severity) {
  return severity == AuditSeverity::kError ? "#d40000" : "#e07b00";
}

// A string of DOT, in one line; `lines` are centred under each other.
std::string Label(const std::vector<std::string>& lines) {
  const auto escape = [](std::string* out, const std::string& line) {
    *out += absl::StrReplaceAll(Printable(line), {{"\"", "\\\""}, {"\\", "\\\\"}});
  };
  return absl::StrCat("\"", absl::StrJoin(lines, "\\n", escape), "\"");
}
std::string Quoted(absl::string_view text) { return Label({std::string(text)}); }

std::string NodeId(const FamilyChains& chains, absl::string_view table, absl::string_view name) {
  return Quoted(absl::StrCat(chains.survey().mode, " ", chains.name(), " ", table, "/", name));
}

class Picture {
 public:
  Picture(const NodeView& view, const AuditReport& report) : view_(view), report_(report) {}

  std::string Draw() && {
    Add("digraph kubelet_chains {\n",
        "  rankdir=LR; newrank=true; nodesep=0.25; ranksep=0.9; compound=true; ",
        "fontname=\"sans-serif\";\n",
        "  node [shape=box, style=\"filled,rounded\", fontname=\"sans-serif\", fontsize=11];\n",
        "  edge [fontname=\"sans-serif\", fontsize=9, color=\"#555555\"];\n",
        "  labelloc=t; fontsize=15; label=",
        Quoted(absl::StrCat("kubelet's chains and who comes to them",
                            view_.name.empty() ? "" : ", ", view_.name)),
        ";\n");
    for (const netlink::Survey& survey : view_.surveys) {
      for (const netlink::Family family : netlink::kFamilies) {
        DrawFamily(FamilyChains(survey, family));
      }
    }
    for (const AuditFinding& finding : report_.findings) {
      if (finding.kind == AuditKind::kCniConfig && finding.netns == view_.name) DrawCni(finding);
    }
    DrawLegend();
    return text_ + "}\n";
  }

 private:
  template <typename... Parts>
  void Add(const Parts&... parts) {
    absl::StrAppend(&text_, parts...);
  }

  // The findings about a chain that are drawn.
  std::vector<const AuditFinding*> FindingsOf(const FamilyChains& chains, absl::string_view table,
                                              const std::string& chain) const {
    const std::string place = absl::StrCat(table, "/", chain);
    std::vector<const AuditFinding*> found;
    for (const AuditFinding& finding : report_.findings) {
      if (finding.netns == view_.name && !finding.allowed &&
          finding.severity != AuditSeverity::kInfo && finding.chain == place &&
          (finding.iptables_mode.empty() || finding.iptables_mode == chains.survey().mode) &&
          (finding.family.empty() || finding.family == chains.name())) {
        found.push_back(&finding);
      }
    }
    return found;
  }

  void DrawFamily(const FamilyChains& chains) {
    const std::string name = absl::StrCat(chains.survey().mode, " ", chains.name());
    const size_t begin = text_.size();
    Add("  subgraph ", Quoted(absl::StrCat("cluster ", name)), " {\n    label=", Quoted(name),
        "; fontsize=13; style=rounded; color=\"#888888\";\n");
    const size_t empty = text_.size();
    for (const absl::string_view table : {"nat", "filter", "mangle"}) DrawTable(chains, table);
    if (text_.size() == empty) return text_.resize(begin);
    Add("  }\n");
    for (const Listener& mark : kListeners) {
      if (!chains.Has("nat", mark.from) || !chains.Has(mark.table, mark.chain)) continue;
      Add("  ", NodeId(chains, "nat", mark.from), " -> ", NodeId(chains, mark.table, mark.chain),
          " [style=dashed, label=",
          Quoted(IsPrivateChain("nat", mark.from) ? "by the label" : "by the mark"), "];\n");
    }
  }

  void DrawTable(const FamilyChains& chains, absl::string_view table) {
    const ChainGraph graph = GraphAround(chains, table);
    if (graph.nodes.empty()) return;
    Add("    subgraph ",
        Quoted(absl::StrCat("cluster ", chains.survey().mode, " ", chains.name(), " ", table, "/")),
        " {\n      label=", Quoted(table), "; style=\"dotted\"; color=\"#888888\";\n");
    for (const auto& [name, node] : graph.nodes) DrawNode(chains, table, name, node);
    for (const auto& [ends, edge] : graph.edges) {
      DrawEdge(chains, table, ends, edge, graph.nodes.at(ends.first).owner);
    }
    Add("    }\n");
  }

  void DrawNode(const FamilyChains& chains, absl::string_view table, const std::string& name,
                const GraphNode& node) {
    owners_.insert(node.owner);
    std::vector<std::string> lines = {node.chains > 1 ? absl::StrCat(name, " (", node.chains, ")")
                                                      : name};
    if (IsKubeletsOrOurs(node.owner)) lines.push_back(Counted(node.rules, "rule"));
    AuditSeverity worst = AuditSeverity::kInfo;
    std::set<std::string> kinds;
    for (const AuditFinding* finding : FindingsOf(chains, table, name)) {
      worst = std::max(worst, finding->severity);
      kinds.emplace(AuditKindName(finding->kind));
    }
    lines.insert(lines.end(), kinds.begin(), kinds.end());
    Add("      ", NodeId(chains, table, name), " [label=", Label(lines),
        ", fillcolor=", Quoted(ColorOf(node.owner)),
        node.owner == Owner::kBaseChain ? ", style=filled" : "");
    if (worst != AuditSeverity::kInfo) Add(", penwidth=3, color=", Quoted(AlarmColour(worst)));
    Add("];\n");
  }

  void DrawEdge(const FamilyChains& chains, absl::string_view table, const Ends& ends,
                const GraphEdge& edge, Owner from) {
    std::vector<std::string> lines;
    if (edge.rules > 1 || from != Owner::kBaseChain) lines.push_back(Counted(edge.rules, "rule"));
    if (edge.packets != 0) lines.push_back(Counted(edge.packets, "packet"));
    Add("      ", NodeId(chains, table, ends.first), " -> ", NodeId(chains, table, ends.second),
        " [label=", Label(lines));
    for (const AuditFinding* finding : FindingsOf(chains, table, ends.second)) {
      const bool of_users =
          finding->kind == AuditKind::kChainUser || finding->kind == AuditKind::kPrivateChainUser;
      const auto is_from = [&](const auto& rule) { return ChainGroup(rule.chain) == ends.first; };
      if (!of_users || !absl::c_any_of(finding->rules, is_from)) continue;
      const std::string colour = Quoted(AlarmColour(finding->severity));
      Add(", penwidth=2.5, color=", colour, ", fontcolor=", colour);
      break;
    }
    Add("];\n");
  }

  void DrawCni(const AuditFinding& finding) {
    const std::string target = CniTarget(finding.chain);
    for (const std::string& file : finding.details) {
      Add("  ", Quoted(file),
          " [shape=note, style=filled, fillcolor=", Quoted(ColorOf(Owner::kPortmap)),
          ", label=", Label({file, "externalSetMarkChain"}), "];\n  ", Quoted(file), " -> ", target,
          " [style=dashed, penwidth=2, color=", Quoted(AlarmColour(finding.severity)), "];\n");
    }
  }

  // The node of the chain that a plugin uses; one for a missing chain where there is none.
  std::string CniTarget(const std::string& chain) {
    const std::string name = chain.substr(chain.find('/') + 1);
    for (const netlink::Survey& survey : view_.surveys) {
      const FamilyChains chains(survey, netlink::Family::kIPv4);
      if (chains.Has("nat", name)) return NodeId(chains, "nat", name);
    }
    Add("  ", Quoted(chain), " [label=", Label({chain, "does not exist"}),
        ", style=\"rounded,dashed\", color=\"#d40000\"];\n");
    return Quoted(chain);
  }

  void DrawLegend() {
    Add("  subgraph \"cluster legend\" {\n    label=\"owner\"; fontsize=12; ",
        "style=rounded; color=\"#bbbbbb\";\n    node [fontsize=10, height=0.3];\n");
    for (const Owner owner : owners_) {
      Add("    ", Quoted(absl::StrCat("legend ", OwnerName(owner))),
          " [label=", Quoted(OwnerName(owner)), ", fillcolor=", Quoted(ColorOf(owner)), "];\n");
    }
    Add("    \"legend error\" [label=\"error\", fillcolor=white, penwidth=3, color=\"#d40000\"];\n",
        "    \"legend warning\" [label=\"warning\", fillcolor=white, penwidth=3, ",
        "color=\"#e07b00\"];\n  }\n");
  }

  const NodeView& view_;
  const AuditReport& report_;
  std::set<Owner> owners_;
  std::string text_;
};

}  // namespace

std::string AuditDot(const NodeView& view, const AuditReport& report) {
  return Picture(view, report).Draw();
}

}  // namespace kipt::agent
