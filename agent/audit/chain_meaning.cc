// SPDX-License-Identifier: Apache-2.0
//
// What the chains of Kubernetes are, who made them, and where packets go from them.
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "agent/audit/audit_parts.h"

namespace kipt::agent {
namespace {

struct MeaningRow {
  absl::string_view table;  // empty: any
  absl::string_view group;  // as ChainGroup
  absl::string_view text;
};
constexpr MeaningRow kMeanings[] = {
    {"nat", kMarkMasqChain,
     "Marks packets that must leave with this node's address as their source. Nothing is rewritten "
     "here: nat/KUBE-POSTROUTING does that, by the mark, once the packet has been routed."},
    {"nat", kMarkDropChain,
     "Marks packets that must be dropped, which table nat cannot do: filter/KUBE-FIREWALL does it, "
     "by the mark. For kube-proxy up to 1.24, and whoever copied it."},
    {"nat", kPostroutingChain,
     "Masquerades what nat/KUBE-MARK-MASQ marked, and nothing else, as the packet leaves."},
    {"filter", kFirewallChain,
     "Drops packets to 127.0.0.0/8 that come from elsewhere (martians, CVE-2020-8558), and, with "
     "IPTablesOwnershipCleanup off, packets that nat/KUBE-MARK-DROP marked. Not the chain of the "
     "same name in table nat, which is of kube-proxy's IPVS mode."},
    {"nat", kFirewallChain,
     "IPVS mode's own, up to 1.24: clients that loadBalancerSourceRanges does not let in. Not the "
     "chain of the same name in table filter, which is kubelet's."},
    {"nat", kLabelMasqChain,
     "Gives the packet's connection a label, by which nat/KUBELET-POSTROUTING masquerades it. "
     "Private to kubelet, whose place this agent takes (feature gate ConnLabelMarking): nobody "
     "else should jump here."},
    {"nat", kLabelDropChain,
     "Gives the packet's connection a label, by which filter/KUBELET-FIREWALL drops its packets. "
     "Private, as nat/KUBELET-MARK-MASQ is."},
    {"nat", kLabelPostroutingChain,
     "Masquerades connections that nat/KUBELET-MARK-MASQ labelled, and nothing else. Unlike a "
     "mark, the label is the connection's: the outer packets of a tunnel do not inherit it."},
    {"filter", kLabelFirewallChain,
     "Drops packets of connections that nat/KUBELET-MARK-DROP labelled: to this node, from it, and "
     "those that it forwards."},
    {"mangle", kHintChain,
     "Empty on purpose: that it exists in this mode's tables tells other programs which iptables "
     "this node uses. Of all of kubelet's chains the one that they may rely on (since 1.24)."},
    {"", kCanaryChain,
     "Empty on purpose: kubelet looks for it once a minute, and takes its absence for a flush of "
     "everything (since 1.17). Nobody else should use it."},
    {"", "KUBE-PROXY-CANARY",
     "Empty on purpose: kube-proxy's tripwire for flushed rules (since 1.17)."},
    {"nat", "KUBE-SERVICES",
     "Where a packet to a service finds the service: one rule for each address and port."},
    {"filter", "KUBE-SERVICES", "Refuses what goes to services without endpoints."},
    {"filter", "KUBE-EXTERNAL-SERVICES",
     "Refuses or drops what comes from outside for services without endpoints."},
    {"nat", "KUBE-NODEPORTS", "Where a packet to a node port finds its service."},
    {"filter", "KUBE-NODEPORTS", "Lets health checks of load balancers in."},
    {"filter", "KUBE-FORWARD", "Lets forwarded packets of services through."},
    {"filter", "KUBE-PROXY-FIREWALL",
     "Drops clients that loadBalancerSourceRanges does not let in (since 1.25)."},
    {"nat", "KUBE-SVC-*", "One service port: chooses an endpoint."},
    {"nat", "KUBE-SVL-*", "One service port: chooses an endpoint on this node."},
    {"nat", "KUBE-SEP-*", "One endpoint: sends the packet there."},
    {"nat", "KUBE-FW-*", "The source ranges of one load balancer."},
    {"nat", "KUBE-EXT-*", "Traffic from outside to one service port (since 1.24)."},
    {"nat", "KUBE-XLB-*",
     "Traffic from outside to one service port that keeps clients' addresses (up to 1.23)."},
    {"nat", "KUBE-LOAD-BALANCER", "IPVS mode: packets to load balancer addresses."},
    {"nat", "KUBE-NODE-PORT", "IPVS mode: packets to node ports."},
    {"filter", "KUBE-NODE-PORT", "IPVS mode: lets health checks in."},
    {"filter", "KUBE-SOURCE-RANGES-FIREWALL",
     "IPVS mode: drops clients that loadBalancerSourceRanges does not let in."},
    {"filter", "KUBE-IPVS-FILTER",
     "IPVS mode: keeps services' addresses from reaching the node's own ports."},
};

// "INPUT does", "INPUT, FORWARD and OUTPUT do".
std::string WhoDoes(std::vector<absl::string_view> names, absl::string_view one,
                    absl::string_view many) {
  const absl::string_view last = names.back();
  names.pop_back();
  if (names.empty()) return absl::StrCat(last, " ", one);
  return absl::StrCat(absl::StrJoin(names, ", "), " and ", last, " ", many);
}

std::vector<std::string> NextAt(const FamilyChains& chains, const Listener& listener) {
  std::vector<absl::string_view> leading;
  std::vector<absl::string_view> missing;
  uint64_t packets = 0;
  for (const absl::string_view base : absl::StrSplit(listener.bases, ' ')) {
    const bool leads = chains.HangsOnBase(listener.table, listener.chain, base);
    (leads ? leading : missing).push_back(base);
    for (const netlink::SurveyRule& rule : chains.Rules(listener.table, base)) {
      if (leads && JumpOf(rule) == listener.chain) packets += rule.counters.packets;
    }
  }
  std::vector<std::string> next;
  if (!leading.empty() && listener.from == kMarkMasqChain) {
    next.emplace_back(
        "Back to the rule behind the one that led here: usually on to an endpoint (DNAT).");
  }
  if (!leading.empty()) {
    const std::string so_far = absl::StrCat(" (", packets, " packets so far)");
    next.push_back(absl::StrReplaceAll(listener.heard, {{"%s", WhoDoes(leading, "leads", "lead")},
                                                        {"%n", packets == 0 ? "" : so_far}}));
  }
  if (!missing.empty()) {
    next.push_back(absl::StrCat(WhoDoes(missing, "does", "do"), " not jump to ", listener.table,
                                "/", listener.chain, ": ", leading.empty() ? "" : "there ",
                                listener.unheard, "."));
  }
  return next;
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
  const std::string proxy_text = ProxyText(proxy);
  if (IsPrivateChain(table, chain)) {
    return absl::StrCat(OwnerName(owner), ", with its feature gate ConnLabelMarking");
  }
  if (owner == Owner::kKubeProxy || owner == Owner::kKubeProxyIpvs) {
    return proxy.KeepsMarkMasq() ? proxy_text : "kube-proxy, which keeps it no longer: left over";
  }
  if (owner != Owner::kKubelet) return std::string(OwnerName(owner));
  const bool kubelet = chains.HasAnywhere(kCanaryChain);
  const bool hint = chains.Has("mangle", kHintChain);
  std::string of_kubelet = absl::StrCat("kubelet", kubelet ? " (KUBE-KUBELET-CANARY stands)" : "",
                                        ", or this agent in its place");
  const bool marking = table == "nat" && (chain == kMarkMasqChain || chain == kPostroutingChain);
  if (marking && proxy.KeepsMarkMasq()) {
    return absl::StrCat(
        proxy_text, ", which writes it anew on each sync",
        kubelet || hint ? "; with IPTablesOwnershipCleanup off also " + of_kubelet : "");
  }
  if (table == "filter" && proxy.KeepsFirewall()) {
    return absl::StrCat(of_kubelet, "; also ", proxy_text, ", since 1.27");
  }
  if (table == "nat" && chain == kMarkDropChain && proxy.MayUseMarkDrop() && !kubelet && !hint) {
    return absl::StrCat(proxy_text, ", which leaves it to kubelet to fill");
  }
  return of_kubelet;
}

std::vector<std::string> WhereNext(const FamilyChains& chains, absl::string_view table,
                                   absl::string_view chain) {
  if (table != "nat") return {};
  if (chain == kPostroutingChain || chain == kLabelPostroutingChain) {
    return {"Out, by the interface that routing chose; conntrack turns the answers back."};
  }
  for (const Listener& listener : kListeners) {
    if (listener.from == chain) return NextAt(chains, listener);
  }
  return {};
}

}  // namespace kipt::agent
