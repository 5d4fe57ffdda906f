// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/chain_meaning.h"

#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "agent/audit/explain.h"
#include "agent/audit/kube_proxy_facts.h"
#include "agent/audit/mark_walk.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

struct MeaningRow {
  absl::string_view table;  // empty: any
  absl::string_view group;  // as ChainGroup
  absl::string_view text;
};
constexpr MeaningRow kMeanings[] = {
    {"nat", kMarkMasqChain,
     "Marks packets that must leave with this node's address as their source. nat/KUBE-POSTROUTING "
     "rewrites the source later, after routing, by the mark."},
    {"nat", kMarkDropChain,
     "Marks packets that must be dropped. Table nat cannot drop, so filter/KUBE-FIREWALL drops "
     "them by the mark. For kube-proxy up to 1.24, and programs that copied it."},
    {"nat", kPostroutingChain,
     "Masquerades what nat/KUBE-MARK-MASQ marked, and nothing else, as the packet leaves."},
    {"filter", kFirewallChain,
     "Drops packets to 127.0.0.0/8 from other hosts (martians, CVE-2020-8558). With "
     "IPTablesOwnershipCleanup off it also drops packets that nat/KUBE-MARK-DROP marked. The chain "
     "of this name in table nat belongs to kube-proxy's IPVS mode."},
    {"nat", kFirewallChain,
     "IPVS mode up to 1.24: handles clients that loadBalancerSourceRanges does not let in. The "
     "chain of this name in table filter is kubelet's."},
    {"nat", kLabelMasqChain,
     "Labels the packet's connection, and nat/KUBELET-POSTROUTING masquerades it by the label. "
     "Private to kubelet, which this agent replaces (feature gate ConnLabelMarking): no other "
     "program should jump here."},
    {"nat", kLabelDropChain,
     "Labels the packet's connection, and filter/KUBELET-FIREWALL drops its packets by the label. "
     "Private, as nat/KUBELET-MARK-MASQ is."},
    {"nat", kLabelPostroutingChain,
     "Masquerades connections that nat/KUBELET-MARK-MASQ labelled, and nothing else. Unlike a "
     "mark, the label is the connection's: the outer packets of a tunnel do not inherit it."},
    {"filter", kLabelFirewallChain,
     "Drops packets of connections that nat/KUBELET-MARK-DROP labelled: to this node, from it, and "
     "those that it forwards."},
    {"mangle", kHintChain,
     "Empty on purpose: its existence shows other programs which iptables mode this node uses. It "
     "is the only kubelet chain that they may rely on (since 1.24)."},
    {"", kCanaryChain,
     "Empty on purpose: kubelet checks for it once a minute, and takes its absence for a flush of "
     "all rules (since 1.17). No other program should use it."},
    {"", "KUBE-PROXY-CANARY",
     "Empty on purpose: kube-proxy's tripwire for flushed rules (since 1.17)."},
    {"nat", "KUBE-SERVICES",
     "Where a packet to a service finds the service: one rule for each address and port."},
    {"filter", "KUBE-SERVICES", "Rejects packets to services without endpoints."},
    {"filter", "KUBE-EXTERNAL-SERVICES",
     "Rejects or drops packets from outside to services without endpoints."},
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

// What acts on the mark that `listener.from` sets, beyond `listener.chain`.
std::vector<std::string> OtherActors(const FamilyChains& chains, const Listener& listener,
                                     absl::Span<const netlink::Survey> surveys) {
  std::vector<std::string> others;
  const bool masquerades = listener.from == kMarkMasqChain;
  if (!masquerades && listener.from != kMarkDropChain) return others;
  uint32_t bits = 0;
  for (const netlink::SurveyRule& rule : chains.Rules("nat", listener.from)) bits |= MarksSet(rule);
  if (bits == 0) return others;
  const MarkActor own = {chains.survey().mode, chains.Id(listener.table),
                         std::string(listener.chain)};
  for (const MarkActor& actor :
       WhatActsOn(surveys, chains.family(), bits,
                  masquerades ? MarkAction::kMasquerade : MarkAction::kDrop)) {
    if (actor != own) others.push_back(ToString(actor, own.iptables_mode));
  }
  return others;
}

std::vector<std::string> NextAt(const FamilyChains& chains, const Listener& listener,
                                absl::Span<const netlink::Survey> surveys) {
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
        "Back to the rule after the one that led here: usually on to an endpoint (DNAT).");
  }
  if (!leading.empty()) {
    const std::string so_far = absl::StrCat(" (", packets, " packets so far)");
    next.push_back(absl::StrReplaceAll(listener.heard, {{"%s", WhoDoes(leading, "leads", "lead")},
                                                        {"%n", packets == 0 ? "" : so_far}}));
  }
  const std::vector<std::string> others = OtherActors(chains, listener, surveys);
  if (!missing.empty()) {
    next.push_back(absl::StrCat(
        WhoDoes(missing, "does", "do"), " not jump to ", listener.table, "/", listener.chain,
        others.empty() ? absl::StrCat(": ", leading.empty() ? "" : "there ", listener.unheard) : "",
        "."));
  }
  for (const std::string& other : others) {
    const bool drops = listener.from == kMarkDropChain;
    next.push_back(
        absl::StrCat("Marked packets are ", drops ? "dropped in " : "masqueraded in ", other, "."));
  }
  return next;
}

}  // namespace

Owner KeeperOfChain(const FamilyChains& chains, const KubeProxyFacts& proxy,
                    absl::string_view table, absl::string_view chain, bool base) {
  const Owner owner = OwnerOfChain(chains.Id(table), chain, base);
  const bool shared = table == "nat" && (chain == kMarkMasqChain || chain == kPostroutingChain);
  if (owner != Owner::kKubelet || !shared || !proxy.KeepsMarkMasq() ||
      chains.Has("nat", kMarkDropChain)) {
    return owner;
  }
  return proxy.mode == KubeProxyMode::kIpvs ? Owner::kKubeProxyIpvs : Owner::kKubeProxy;
}

std::string NoLongerMade(absl::string_view chain) {
  struct Row {
    absl::string_view group;
    absl::string_view text;
  };
  constexpr Row kRows[] = {
      {kMarkMasqChain, "kubelet makes none since 1.27; kube-proxy in iptables or IPVS mode does"},
      {kPostroutingChain,
       "kubelet makes none since 1.27; kube-proxy in iptables or IPVS mode does"},
      {kMarkDropChain, "kubelet makes none since 1.27, and kube-proxy needs none since 1.25"},
      {"KUBE-XLB-*", "kube-proxy makes none since 1.24; KUBE-EXT-* and KUBE-SVL-* replace it"}};
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(chain, absl::MaxSplits('/', 1));
  const bool named = absl::StrContains(chain, "/");
  if (named && parts.first != "nat") return "";
  const absl::string_view name = named ? parts.second : chain;
  for (const Row& row : kRows) {
    if (ChainGroup(name) == row.group) {
      return absl::StrCat("There is no chain nat/", name, " here: ", row.text, ".");
    }
  }
  return "";
}

std::string ChainMeaning(absl::string_view table, absl::string_view chain, bool base) {
  if (base) return "A base chain: packets come here from the kernel, and every program adds rules.";
  const absl::string_view group = ChainGroup(chain);
  for (const MeaningRow& row : kMeanings) {
    if ((row.table.empty() || row.table == table) && row.group == group) {
      return std::string(row.text);
    }
  }
  const Owner owner = OwnerOfChain({.family = "ip", .name = std::string(table)}, chain);
  if (owner == Owner::kUnknown) return "Not a Kubernetes chain, nor one of a known program.";
  return absl::StrCat("By its name a chain of ", OwnerName(owner),
                      IsKubernetes(owner) ? "." : ", not of Kubernetes.");
}

std::string ChainMaker(const FamilyChains& chains, const KubeProxyFacts& proxy,
                       absl::string_view table, absl::string_view chain) {
  const Owner owner = OwnerOfChain(chains.Id(table), chain);
  const std::string proxy_text = ProxyText(proxy);
  if (IsPrivateChain(table, chain)) {
    return absl::StrCat(OwnerName(owner), ", with its feature gate ConnLabelMarking");
  }
  if (owner == Owner::kKubeProxy || owner == Owner::kKubeProxyIpvs) {
    return proxy.KeepsMarkMasq() ? proxy_text : "kube-proxy, which no longer keeps it: a leftover";
  }
  if (owner != Owner::kKubelet) {
    return absl::StrCat(OwnerName(owner), owner == Owner::kUnknown ? "" : ", by its name");
  }
  const bool kubelet = chains.HasAnywhere(kCanaryChain);
  const bool hint = chains.Has("mangle", kHintChain);
  std::string of_kubelet = absl::StrCat("kubelet", kubelet ? " (KUBE-KUBELET-CANARY exists)" : "",
                                        ", or this agent in its place");
  const bool marking = table == "nat" && (chain == kMarkMasqChain || chain == kPostroutingChain);
  if (marking && proxy.KeepsMarkMasq()) {
    return absl::StrCat(
        proxy_text, ", which rewrites it on each sync",
        kubelet || hint ? "; with IPTablesOwnershipCleanup off also " + of_kubelet : "");
  }
  if (table == "filter" && proxy.KeepsFirewall()) {
    return absl::StrCat(of_kubelet, "; also ", proxy_text, ", since 1.27");
  }
  if (table == "nat" && chain == kMarkDropChain && proxy.MayUseMarkDrop() && !kubelet && !hint) {
    return absl::StrCat(proxy_text, ", which only kubelet fills");
  }
  return of_kubelet;
}

std::vector<std::string> WhereNext(const FamilyChains& chains, absl::string_view table,
                                   absl::string_view chain,
                                   absl::Span<const netlink::Survey> surveys) {
  if (table != "nat") return {};
  if (chain == kPostroutingChain || chain == kLabelPostroutingChain) {
    return {
        "Out, through the interface that routing chose. conntrack translates the answers back."};
  }
  for (const Listener& listener : kListeners) {
    if (listener.from == chain) return NextAt(chains, listener, surveys);
  }
  return {};
}

}  // namespace kipt::agent
