// SPDX-License-Identifier: Apache-2.0
//
// What the chains of Kubernetes are, who made them, and where packets go from them.
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "agent/audit/audit_parts.h"
#include "agent/audit/chain_owner.h"
#include "agent/audit/explain_parts.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

struct MeaningRow {
  absl::string_view table;  // empty: any
  absl::string_view group;  // as ChainGroup
  absl::string_view text;
};
constexpr std::array kMeanings = {
    MeaningRow{"nat", kMarkMasqChain,
               "Marks packets that must leave with this node's address as their source. Nothing is "
               "rewritten here: nat/KUBE-POSTROUTING does that, by the mark, once the packet has "
               "been routed."},
    MeaningRow{
        "nat", kMarkDropChain,
        "Marks packets that must be dropped, which table nat cannot do: filter/KUBE-FIREWALL "
        "does it, by the mark. For kube-proxy up to 1.24, and whoever copied it."},
    MeaningRow{
        "nat", kPostroutingChain,
        "Masquerades what nat/KUBE-MARK-MASQ marked, and nothing else, as the packet leaves."},
    MeaningRow{
        "filter", kFirewallChain,
        "Drops packets to 127.0.0.0/8 that come from elsewhere (martians, CVE-2020-8558), "
        "and, with IPTablesOwnershipCleanup off, packets that nat/KUBE-MARK-DROP marked. Not "
        "the chain of the same name in table nat, which is of kube-proxy's IPVS mode."},
    MeaningRow{
        "nat", kFirewallChain,
        "IPVS mode's own, up to 1.24: clients that loadBalancerSourceRanges does not let in. "
        "Not the chain of the same name in table filter, which is kubelet's."},
    MeaningRow{
        "nat", kLabelMasqChain,
        "Gives the packet's connection a label, by which nat/KUBELET-POSTROUTING masquerades "
        "it. Private to kubelet, whose place this agent takes (feature gate "
        "ConnLabelMarking): nobody else should jump here."},
    MeaningRow{"nat", kLabelDropChain,
               "Gives the packet's connection a label, by which filter/KUBELET-FIREWALL drops its "
               "packets. Private, as nat/KUBELET-MARK-MASQ is."},
    MeaningRow{"nat", kLabelPostroutingChain,
               "Masquerades connections that nat/KUBELET-MARK-MASQ labelled, and nothing else. "
               "Unlike a mark, the label is the connection's: the outer packets of a tunnel do not "
               "inherit it."},
    MeaningRow{
        "filter", kLabelFirewallChain,
        "Drops packets of connections that nat/KUBELET-MARK-DROP labelled: to this node, from "
        "it, and those that it forwards."},
    MeaningRow{"mangle", kHintChain,
               "Empty on purpose: that it exists in this mode's tables tells other programs which "
               "iptables this node uses. Of all of kubelet's chains the one that they may rely on "
               "(since 1.24)."},
    MeaningRow{"", kCanaryChain,
               "Empty on purpose: kubelet looks for it once a minute, and takes its absence for a "
               "flush of everything (since 1.17). Nobody else should use it."},
    MeaningRow{"", "KUBE-PROXY-CANARY",
               "Empty on purpose: kube-proxy's tripwire for flushed rules (since 1.17)."},
    MeaningRow{
        "nat", "KUBE-SERVICES",
        "Where a packet to a service finds the service: one rule for each address and port."},
    MeaningRow{"filter", "KUBE-SERVICES", "Refuses what goes to services without endpoints."},
    MeaningRow{"filter", "KUBE-EXTERNAL-SERVICES",
               "Refuses or drops what comes from outside for services without endpoints."},
    MeaningRow{"nat", "KUBE-NODEPORTS", "Where a packet to a node port finds its service."},
    MeaningRow{"filter", "KUBE-NODEPORTS", "Lets health checks of load balancers in."},
    MeaningRow{"filter", "KUBE-FORWARD", "Lets forwarded packets of services through."},
    MeaningRow{"filter", "KUBE-PROXY-FIREWALL",
               "Drops clients that loadBalancerSourceRanges does not let in (since 1.25)."},
    MeaningRow{"nat", "KUBE-SVC-*", "One service port: chooses an endpoint."},
    MeaningRow{"nat", "KUBE-SVL-*", "One service port: chooses an endpoint on this node."},
    MeaningRow{"nat", "KUBE-SEP-*", "One endpoint: sends the packet there."},
    MeaningRow{"nat", "KUBE-FW-*", "The source ranges of one load balancer."},
    MeaningRow{"nat", "KUBE-EXT-*", "Traffic from outside to one service port (since 1.24)."},
    MeaningRow{
        "nat", "KUBE-XLB-*",
        "Traffic from outside to one service port that keeps clients' addresses (up to 1.23)."},
    MeaningRow{"nat", "KUBE-LOAD-BALANCER", "IPVS mode: packets to load balancer addresses."},
    MeaningRow{"nat", "KUBE-NODE-PORT", "IPVS mode: packets to node ports."},
    MeaningRow{"filter", "KUBE-NODE-PORT", "IPVS mode: lets health checks in."},
    MeaningRow{"filter", "KUBE-SOURCE-RANGES-FIREWALL",
               "IPVS mode: drops clients that loadBalancerSourceRanges does not let in."},
    MeaningRow{"filter", "KUBE-IPVS-FILTER",
               "IPVS mode: keeps services' addresses from reaching the node's own ports."},
};

bool MadeByKubeProxyToo(absl::string_view table, absl::string_view chain) {
  return table == "nat" && (chain == kMarkMasqChain || chain == kPostroutingChain);
}

uint64_t PacketsFromBase(const FamilyChains& chains, absl::string_view table,
                         absl::string_view base, absl::string_view chain) {
  uint64_t packets = 0;
  const netlink::SurveyChain* found = chains.Find(table, base);
  if (found == nullptr) return 0;
  for (const netlink::SurveyRule& rule : found->rules) {
    if (JumpOf(rule) == chain) packets += rule.counters.packets;
  }
  return packets;
}

std::vector<std::string> NextOfMasq(const FamilyChains& chains) {
  if (!chains.HangsOnBase("nat", kPostroutingChain, "POSTROUTING")) {
    return {
        "POSTROUTING does not jump to nat/KUBE-POSTROUTING: the mark is not acted on, and the "
        "packet keeps its source."};
  }
  const uint64_t packets = PacketsFromBase(chains, "nat", "POSTROUTING", kPostroutingChain);
  std::vector<std::string> next = {
      absl::StrCat(
          "Back to the rule behind the one that led here: usually on to an endpoint (DNAT)."),
      absl::StrCat("When it leaves, POSTROUTING leads every connection's first packet to "
                   "nat/KUBE-POSTROUTING",
                   packets == 0 ? "" : absl::StrCat(" (", packets, " packets so far)"),
                   ": what is marked is masqueraded, the rest returns.")};
  return next;
}

// "INPUT does", "INPUT, FORWARD and OUTPUT do".
std::string WhoDoes(const std::vector<absl::string_view>& names, absl::string_view one,
                    absl::string_view many) {
  std::string text(names.front());
  for (size_t i = 1; i < names.size(); ++i) {
    absl::StrAppend(&text, i + 1 == names.size() ? " and " : ", ", names[i]);
  }
  return absl::StrCat(text, " ", names.size() == 1 ? one : many);
}

// What becomes of packets that the chain `listener` waits for: `heard`, "%s" being "INPUT leads" of
// those `bases` that do, and `unheard` of the others.
std::vector<std::string> NextAt(const FamilyChains& chains, absl::string_view table,
                                absl::string_view listener,
                                std::initializer_list<absl::string_view> bases,
                                absl::string_view heard, absl::string_view unheard) {
  std::vector<absl::string_view> leading;
  std::vector<absl::string_view> missing;
  for (const absl::string_view base : bases) {
    (chains.HangsOnBase(table, listener, base) ? leading : missing).push_back(base);
  }
  std::vector<std::string> next;
  if (!leading.empty()) {
    next.push_back(absl::StrReplaceAll(heard, {{"%s", WhoDoes(leading, "leads", "lead")}}));
  }
  if (!missing.empty()) {
    next.push_back(absl::StrCat(WhoDoes(missing, "does", "do"), " not jump to ", table, "/",
                                listener, ": ", leading.empty() ? "" : "there ", unheard, "."));
  }
  return next;
}

std::vector<std::string> NextOfDrop(const FamilyChains& chains) {
  return NextAt(chains, "filter", kFirewallChain, {"INPUT", "OUTPUT"},
                "In table filter, %s to filter/KUBE-FIREWALL, which drops what is marked if it has "
                "its rule for that. A packet that is forwarded passes neither INPUT nor OUTPUT, "
                "and is not dropped.",
                "the mark is not acted on, and the packet goes on");
}

}  // namespace

std::string ChainMeaning(absl::string_view table, absl::string_view chain, bool base) {
  if (base) return "A base chain: packets come here from the kernel, and every program adds rules.";
  const absl::string_view group = ChainGroup(chain);
  for (const MeaningRow& row : kMeanings) {
    if ((row.table.empty() || row.table == table) && row.group == group) {
      return std::string(row.text);
    }
  }
  const Owner owner = OwnerOfChain({.family = "ip", .name = std::string(table)}, chain);
  if (owner == Owner::kUnknown) return "Not a chain of Kubernetes', nor of a program known here.";
  return absl::StrCat("A chain of ", OwnerName(owner),
                      IsKubernetes(owner) ? "." : ", not of Kubernetes'.");
}

std::string ChainMaker(const FamilyChains& chains, const KubeProxyFacts& proxy,
                       absl::string_view table, absl::string_view chain) {
  const Owner owner = OwnerOfChain(chains.Id(table), chain);
  if (IsPrivateChain(table, chain)) {
    return absl::StrCat(OwnerName(owner), ", with its feature gate ConnLabelMarking");
  }
  if (owner != Owner::kKubelet) {
    if (owner != Owner::kKubeProxy && owner != Owner::kKubeProxyIpvs)
      return std::string(OwnerName(owner));
    if (!proxy.KeepsMarkMasq()) return "kube-proxy, which keeps it no longer: left over";
    return ProxyText(proxy);
  }
  const bool kubelet = chains.HasAnywhere(kCanaryChain);
  const bool hint = chains.Has("mangle", kHintChain);
  std::string of_kubelet = kubelet
                               ? "kubelet (KUBE-KUBELET-CANARY stands), or this agent in its place"
                               : "kubelet, or this agent in its place";
  if (MadeByKubeProxyToo(table, chain) && proxy.KeepsMarkMasq()) {
    return absl::StrCat(ProxyText(proxy), ", which writes it anew on each sync",
                        kubelet || hint
                            ? absl::StrCat("; with IPTablesOwnershipCleanup off also ", of_kubelet)
                            : "");
  }
  if (table == "filter" && proxy.KeepsFirewall()) {
    return absl::StrCat(of_kubelet, "; also ", ProxyText(proxy), ", since 1.27");
  }
  if (table == "nat" && chain == kMarkDropChain && proxy.MayUseMarkDrop() && !kubelet && !hint) {
    return absl::StrCat(ProxyText(proxy), ", which leaves it to kubelet to fill");
  }
  return of_kubelet;
}

std::vector<std::string> WhereNext(const FamilyChains& chains, absl::string_view table,
                                   absl::string_view chain) {
  if (table == "nat" && chain == kMarkMasqChain) return NextOfMasq(chains);
  if (table == "nat" && chain == kMarkDropChain) return NextOfDrop(chains);
  if (table == "nat" && chain == kPostroutingChain) {
    return {"Out, by the interface that routing chose; conntrack turns the answers back."};
  }
  if (table == "nat" && chain == kLabelMasqChain) {
    return NextAt(chains, "nat", kLabelPostroutingChain, {"POSTROUTING"},
                  "When it leaves, %s every connection's first packet to "
                  "nat/KUBELET-POSTROUTING: what is labelled is masqueraded, the rest returns.",
                  "the label is not acted on");
  }
  if (table == "nat" && chain == kLabelDropChain) {
    return NextAt(chains, "filter", kLabelFirewallChain, {"INPUT", "FORWARD", "OUTPUT"},
                  "In table filter, %s to filter/KUBELET-FIREWALL, which drops what is labelled, "
                  "now and as long as the connection lasts.",
                  "the label is not acted on");
  }
  if (table == "nat" && chain == kLabelPostroutingChain) {
    return {"Out, by the interface that routing chose; conntrack turns the answers back."};
  }
  return {};
}

}  // namespace kipt::agent
