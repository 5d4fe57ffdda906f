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

#include "absl/strings/str_cat.h"
#include "agent/audit/audit_parts.h"
#include "agent/policy/rule_forms.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

// ---- who jumps to whom around kubelet's chains ----

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
using Ends = std::pair<std::string, std::string>;
struct ChainGraph {
  std::map<std::string, GraphNode> nodes;
  std::map<Ends, GraphEdge> edges;
};

ChainGraph WholeGraph(const FamilyChains& chains, absl::string_view table) {
  ChainGraph graph;
  const netlink::TableId id = chains.Id(table);
  for (const auto& [name, chain] : chains.In(table)) {
    const std::string group(ChainGroup(name));
    GraphNode& node = graph.nodes[group];
    node.owner = OwnerOfChain(id, name, chain.base);
    ++node.chains;
    node.rules += chain.rules.size();
    for (const netlink::SurveyRule& rule : chain.rules) {
      if (JumpOf(rule).empty()) continue;
      GraphEdge& edge = graph.edges[{group, std::string(ChainGroup(JumpOf(rule)))}];
      ++edge.rules;
      edge.packets += rule.counters.packets;
    }
  }
  return graph;
}

// Kubelet's chains, those from which packets can come to them, and those that they jump to
// themselves; nothing where the table has none of kubelet's.
ChainGraph GraphAround(const FamilyChains& chains, absl::string_view table) {
  ChainGraph graph = WholeGraph(chains, table);
  std::set<std::string> wanted;
  for (const auto& [name, node] : graph.nodes) {
    if (IsKubeletsOrOurs(node.owner)) wanted.insert(name);
  }
  std::set<std::string> targets;
  for (const auto& [ends, edge] : graph.edges) {
    if (wanted.contains(ends.first)) targets.insert(ends.second);
  }
  for (bool more = true; more;) {
    more = false;
    for (const auto& [ends, edge] : graph.edges) {
      more |= wanted.contains(ends.second) && wanted.insert(ends.first).second;
    }
  }
  wanted.merge(targets);
  std::erase_if(graph.nodes, [&](const auto& node) { return !wanted.contains(node.first); });
  std::erase_if(graph.edges, [&](const auto& edge) {
    return !wanted.contains(edge.first.first) || !wanted.contains(edge.first.second);
  });
  return graph;
}

// ---- the picture ----

struct ColourRow {
  Owner owner;
  absl::string_view colour;
};
// Kubernetes' own in blues and greens, others in warm colours; all light, for black letters.
constexpr ColourRow kColours[] = {
    {Owner::kBaseChain, "#ececec"},     {Owner::kKubelet, "#9ec9f5"},
    {Owner::kThisAgent, "#c9d6f7"},     {Owner::kKubeProxy, "#bfe6c4"},
    {Owner::kKubeProxyIpvs, "#a5dbd0"}, {Owner::kPortmap, "#ffd59e"},
    {Owner::kHostPorts, "#ffc9a6"},     {Owner::kCrio, "#ffc9a6"},
    {Owner::kKubeRouter, "#f7c6e0"},    {Owner::kCalico, "#f9e79f"},
    {Owner::kCilium, "#f9e79f"},        {Owner::kUnknown, "#f5b7b1"},
};

absl::string_view ColourOf(Owner owner) {
  for (const ColourRow& row : kColours) {
    if (row.owner == owner) return row.colour;
  }
  return "#e3d0f2";
}

absl::string_view AlarmColour(AuditSeverity severity) {
  return severity == AuditSeverity::kError ? "#d40000" : "#e07b00";
}

// A string of DOT, in one line; `lines` are centred under each other.
std::string Label(const std::vector<std::string>& lines) {
  std::string quoted;
  for (const std::string& line : lines) {
    quoted += quoted.empty() ? "\"" : "\\n";
    for (const char c : featuregates::Printable(line)) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted.empty() ? "\"\"" : quoted + "\"";
}
std::string Quoted(absl::string_view text) { return Label({std::string(text)}); }

class Picture {
 public:
  Picture(const NodeView& view, const AuditReport& report) : view_(view), report_(report) {}

  std::string Draw() && {
    absl::StrAppend(
        &text_, "digraph kubelet_chains {\n", "  rankdir=LR; newrank=true; nodesep=0.25; ",
        "ranksep=0.9; compound=true; fontname=\"sans-serif\";\n",
        "  node [shape=box, style=\"filled,rounded\", fontname=\"sans-serif\", ", "fontsize=11];\n",
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
    DrawCni();
    DrawLegend();
    return text_ + "}\n";
  }

 private:
  static std::string NodeId(const FamilyChains& chains, absl::string_view table,
                            absl::string_view name) {
    return absl::StrCat(chains.survey().mode, " ", chains.name(), " ", table, "/", name);
  }

  bool Concerns(const AuditFinding& finding, const FamilyChains& chains) const {
    return finding.netns == view_.name && !finding.allowed &&
           finding.severity != AuditSeverity::kInfo &&
           (finding.iptables_mode.empty() || finding.iptables_mode == chains.survey().mode) &&
           (finding.family.empty() || finding.family == chains.name());
  }

  void DrawFamily(const FamilyChains& chains) {
    std::string tables;
    for (const absl::string_view table : {"nat", "filter", "mangle"}) {
      tables += TableText(chains, table);
    }
    if (tables.empty()) return;
    const std::string name = absl::StrCat(chains.survey().mode, " ", chains.name());
    absl::StrAppend(&text_, "  subgraph ", Quoted(absl::StrCat("cluster ", name)),
                    " {\n    label=", Quoted(name),
                    "; fontsize=13; style=rounded; color=\"#888888\";\n", tables, "  }\n");
    DrawMark(chains, kMarkMasqChain, "nat", kPostroutingChain, "by the mark");
    DrawMark(chains, kMarkDropChain, "filter", kFirewallChain, "by the mark");
    DrawMark(chains, kLabelMasqChain, "nat", kLabelPostroutingChain, "by the label");
    DrawMark(chains, kLabelDropChain, "filter", kLabelFirewallChain, "by the label");
  }

  std::string TableText(const FamilyChains& chains, absl::string_view table) {
    const ChainGraph graph = GraphAround(chains, table);
    if (graph.nodes.empty()) return "";
    std::string text =
        absl::StrCat("    subgraph ", Quoted(absl::StrCat("cluster ", NodeId(chains, table, ""))),
                     " {\n      label=", Quoted(table), "; style=\"dotted\"; color=\"#888888\";\n");
    for (const auto& [name, node] : graph.nodes) text += NodeText(chains, table, name, node);
    for (const auto& [ends, edge] : graph.edges) {
      text += EdgeText(chains, table, ends, edge, graph.nodes.at(ends.first).owner);
    }
    return text + "    }\n";
  }

  std::string NodeText(const FamilyChains& chains, absl::string_view table, const std::string& name,
                       const GraphNode& node) {
    owners_.insert(node.owner);
    std::vector<std::string> lines = {node.chains > 1 ? absl::StrCat(name, " (", node.chains, ")")
                                                      : name};
    if (IsKubeletsOrOurs(node.owner)) lines.push_back(Counted(node.rules, "rule"));
    AuditSeverity worst = AuditSeverity::kInfo;
    std::set<std::string> kinds;
    const std::string chain = absl::StrCat(table, "/", name);
    for (const AuditFinding& finding : report_.findings) {
      if (finding.chain != chain || !Concerns(finding, chains)) continue;
      worst = std::max(worst, finding.severity);
      kinds.insert(std::string(AuditKindName(finding.kind)));
    }
    lines.insert(lines.end(), kinds.begin(), kinds.end());
    std::string attributes =
        absl::StrCat("label=", Label(lines), ", fillcolor=", Quoted(ColourOf(node.owner)));
    if (node.owner == Owner::kBaseChain) absl::StrAppend(&attributes, ", style=filled");
    if (worst != AuditSeverity::kInfo) {
      absl::StrAppend(&attributes, ", penwidth=3, color=", Quoted(AlarmColour(worst)));
    }
    return absl::StrCat("      ", Quoted(NodeId(chains, table, name)), " [", attributes, "];\n");
  }

  // The finding that the jumps of others from `ends.first` to `ends.second` are.
  const AuditFinding* FindingOf(const FamilyChains& chains, absl::string_view table,
                                const Ends& ends) const {
    const std::string chain = absl::StrCat(table, "/", ends.second);
    for (const AuditFinding& finding : report_.findings) {
      if ((finding.kind != AuditKind::kChainUser && finding.kind != AuditKind::kPrivateChainUser) ||
          finding.chain != chain || !Concerns(finding, chains)) {
        continue;
      }
      const auto stands = [&](const AuditedRule& rule) {
        return ChainGroup(rule.chain) == ends.first;
      };
      if (std::any_of(finding.rules.begin(), finding.rules.end(), stands)) return &finding;
    }
    return nullptr;
  }

  std::string EdgeText(const FamilyChains& chains, absl::string_view table, const Ends& ends,
                       const GraphEdge& edge, Owner from) const {
    std::vector<std::string> lines;
    if (edge.rules > 1 || from != Owner::kBaseChain) lines.push_back(Counted(edge.rules, "rule"));
    if (edge.packets != 0) lines.push_back(Counted(edge.packets, "packet"));
    std::string attributes = absl::StrCat("label=", Label(lines));
    if (const AuditFinding* finding = FindingOf(chains, table, ends)) {
      const std::string colour = Quoted(AlarmColour(finding->severity));
      absl::StrAppend(&attributes, ", penwidth=2.5, color=", colour, ", fontcolor=", colour);
    }
    return absl::StrCat("      ", Quoted(NodeId(chains, table, ends.first)), " -> ",
                        Quoted(NodeId(chains, table, ends.second)), " [", attributes, "];\n");
  }

  // What a chain marks, or labels, is acted on elsewhere.
  void DrawMark(const FamilyChains& chains, absl::string_view from, absl::string_view table,
                absl::string_view to, absl::string_view by) {
    if (!chains.Has("nat", from) || !chains.Has(table, to)) return;
    absl::StrAppend(&text_, "  ", Quoted(NodeId(chains, "nat", from)), " -> ",
                    Quoted(NodeId(chains, table, to)), " [style=dashed, label=", Quoted(by),
                    "];\n");
  }

  void DrawCni() {
    for (const AuditFinding& finding : report_.findings) {
      if (finding.kind != AuditKind::kCniConfig || finding.netns != view_.name) continue;
      const std::string colour = Quoted(AlarmColour(finding.severity));
      const std::string target = CniTarget(finding.chain);
      for (const std::string& file : finding.details) {
        absl::StrAppend(&text_, "  ", Quoted(file),
                        " [shape=note, style=filled, fillcolor=", Quoted(ColourOf(Owner::kPortmap)),
                        ", label=", Label({file, "externalSetMarkChain"}), "];\n  ", Quoted(file),
                        " -> ", Quoted(target), " [style=dashed, penwidth=2, color=", colour,
                        "];\n");
      }
    }
  }

  // The node of the chain that a plugin will look for; a missing one where there is none.
  std::string CniTarget(const std::string& chain) {
    const std::string name = chain.substr(chain.find('/') + 1);
    for (const netlink::Survey& survey : view_.surveys) {
      const FamilyChains chains(survey, netlink::Family::kIPv4);
      if (chains.Has("nat", name)) return NodeId(chains, "nat", name);
    }
    absl::StrAppend(&text_, "  ", Quoted(chain), " [label=", Label({chain, "does not exist"}),
                    ", style=\"rounded,dashed\", color=\"#d40000\"];\n");
    return chain;
  }

  void DrawLegend() {
    absl::StrAppend(&text_, "  subgraph \"cluster legend\" {\n    label=\"owner\"; fontsize=12; ",
                    "style=rounded; color=\"#bbbbbb\";\n    node [fontsize=10, height=0.3];\n");
    for (const Owner owner : owners_) {
      const std::string id = Quoted(absl::StrCat("legend ", OwnerName(owner)));
      absl::StrAppend(&text_, "    ", id, " [label=", Quoted(OwnerName(owner)),
                      ", fillcolor=", Quoted(ColourOf(owner)), "];\n");
    }
    absl::StrAppend(&text_, "    \"legend error\" [label=\"error\", fillcolor=white, penwidth=3, ",
                    "color=\"#d40000\"];\n    \"legend warning\" [label=\"warning\", ",
                    "fillcolor=white, penwidth=3, color=\"#e07b00\"];\n  }\n");
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
