// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/claims.h"

#include <array>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "agent/policy/martians.h"
#include "agent/policy/nft_copies.h"
#include "agent/policy/ownership.h"
#include "agent/policy/policy_tables.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::ObservedChain;
using netlink::ObservedRule;
using netlink::Table;

bool Is(const ChainId& chain, Table table, absl::string_view name) {
  return chain.table == table && chain.name == name;
}

bool UsedByKubeProxy(const ChainId& chain) {
  return absl::c_any_of(kep3178::kRules, [&](const kep3178::RuleRow& row) {
    return row.writer == kep3178::Writer::kKubeletAndKubeProxy && IsOf(row, chain);
  });
}

// Bits of the mark and labels of the connection that rules test, or set.
struct Marks {
  uint32_t bits = 0;
  netlink::ConnLabelSet labels = {};
};

Marks TestedIn(const ObservedChain& chain) {
  Marks tested;
  for (const ObservedRule& rule : chain.rules) {
    tested.bits |= netlink::MarksTested(rule);
    const auto* own = rule.rule();
    if (own != nullptr && own->conn_label && !own->conn_label->set) {
      tested.labels.set(own->conn_label->label);
    }
  }
  return tested;
}

bool SetsAny(const ObservedChain& chain, uint32_t bits) {
  return absl::c_any_of(chain.rules, [bits](const ObservedRule& rule) {
    return (netlink::MarksSet(rule) & bits) != 0;
  });
}

// "mark 0x4000", "label 5, 7": what `setter` sets of `marks`. Empty: nothing.
std::string WhatItSets(const Marking& setter, const Marks& marks) {
  if ((setter.bits & marks.bits) != 0) {
    return absl::StrFormat("mark 0x%x", setter.bits & marks.bits);
  }
  std::vector<size_t> labels;
  for (size_t label = 0; label < marks.labels.size(); ++label) {
    if (setter.labels.test(label) && marks.labels.test(label)) labels.push_back(label);
  }
  return labels.empty() ? "" : absl::StrCat("label ", absl::StrJoin(labels, ", "));
}

// A chain and a rule in it may be claimed for one reason.
void Append(std::vector<Claim> more, std::vector<Claim>& claims) {
  for (Claim& claim : more) {
    if (!absl::c_linear_search(claims, claim)) claims.push_back(std::move(claim));
  }
}

// Claim (a): a rule jumps to it, a foreign rule is in it, or a CNI plugin means to jump to it.
std::vector<Claim> OfOthers(const ClaimSources& sources, const ChainId& chain,
                            const ObservedChain& observed) {
  std::vector<Claim> claims;
  for (const Reference& reference : sources.dependents.references) {
    if (reference.chain != chain) continue;
    claims.push_back({ClaimKind::kForeignJump,
                      absl::StrCat("jumped to from ", reference.from, ": ", reference.rule)});
  }
  for (const ObservedRule& rule : observed.rules) {
    if (IsKubeletRule(chain, rule) || RecognizeCopy(chain, rule)) continue;
    claims.push_back(
        {ClaimKind::kForeignRule, absl::StrCat("holds a rule that is not kubelet's: ",
                                               netlink::ToString(chain.family, rule))});
  }
  if (!IsMarkingChain(chain)) return claims;
  for (const CniReference& reference : sources.dependents.cni.references) {
    if (reference.chain != chain.name) continue;
    claims.push_back(
        {ClaimKind::kCniConfig, absl::StrCat("named by the CNI configuration ", reference.file,
                                             " (plugin ", reference.plugin, ")")});
  }
  for (const std::string& problem : sources.dependents.cni.problems) {
    claims.push_back(
        {ClaimKind::kCniConfig, absl::StrCat("a CNI configuration may name it: ", problem)});
  }
  if (const std::vector<std::string>& hidden = sources.dependents.cni.hidden; !hidden.empty()) {
    claims.push_back(
        {ClaimKind::kCniConfig,
         absl::StrCat("a CNI configuration may name it in a folder of the node that is not mounted "
                      "here: ",
                      absl::StrJoin(hidden, ", "),
                      "; name those that this node uses with --cni-conf-dir")});
  }
  return claims;
}

// Claim (b).
std::vector<Claim> OfKubeProxy(const ClaimSources& sources, absl::string_view chain) {
  if (!IsClaimedByKubeProxy(sources.observed, sources.family)) return {};
  if (KubeProxyLeaves(sources.observed, sources.family)) {
    return {{ClaimKind::kKubeProxyRemains,
             absl::StrCat("kube-proxy may use ", chain,
                          " again: nat/KUBE-SERVICES exists without a jump from PREROUTING or "
                          "OUTPUT. `kube-proxy --cleanup` leaves it so if another program's rule "
                          "leads to one of its chains; delete that rule and reboot")}};
  }
  for (const Table table : {Table::kNat, Table::kFilter}) {
    if (sources.observed.Find({sources.family, table, "KUBE-SERVICES"}) != nullptr) {
      return {{ClaimKind::kKubeProxy, "kube-proxy uses it: KUBE-SERVICES exists"}};
    }
  }
  return {
      {ClaimKind::kKubeProxyRemains,
       absl::StrCat("kube-proxy may use ", chain,
                    " again: KUBE-PROXY-CANARY exists without KUBE-SERVICES, as `kube-proxy "
                    "--cleanup` up to "
                    "1.33 leaves it; delete KUBE-PROXY-CANARY if kube-proxy is gone for good")}};
}

// kube-proxy before 1.25 needs KUBE-MARK-DROP; later releases drop packets without it.
std::vector<Claim> OfOldKubeProxy(const ClaimSources& sources) {
  if (KubeProxyDropsByItself(sources.observed, sources.family)) return {};
  return OfKubeProxy(sources, kMarkDropChain);
}

// What marks or labels packets of `family`, and stays.
std::vector<Claim> OfMarksIn(Family family, const ClaimSources& sources,
                             absl::string_view marking_chain, const Marks& marks) {
  const Dependents& dependents = sources.dependents;
  const bool labels = IsLabelChain({family, Table::kNat, std::string(marking_chain)});
  const ClaimKind kind = labels ? ClaimKind::kLabelledPackets : ClaimKind::kMarkedPackets;
  const std::string prefix =
      family == sources.family ? "" : absl::StrCat(netlink::FamilyName(family), " ");
  std::vector<Claim> claims;
  for (const absl::string_view name :
       {kMarkMasqChain, kMarkDropChain, kLabelMasqChain, kLabelDropChain}) {
    const ChainId id = {family, Table::kNat, std::string(name)};
    const ObservedChain* chain = sources.observed.Find(id);
    if (chain == nullptr) continue;
    const bool marks_too = !labels && SetsAny(*chain, marks.bits);
    if ((name != marking_chain && !marks_too) ||
        ClaimsOnChain({family, sources.observed, dependents}, id, *chain).empty()) {
      continue;
    }
    claims.push_back({kind, absl::StrCat("acts on what ", prefix, "nat/", name,
                                         labels ? " labels" : " marks", ", which stays")});
  }
  for (const Marking& setter : labels ? dependents.label_setters : dependents.mark_setters) {
    const bool sees = family == Family::kIPv4 ? setter.ipv4 : setter.ipv6;
    const std::string what = sees ? WhatItSets(setter, marks) : "";
    if (what.empty()) continue;
    claims.push_back(
        {kind, absl::StrCat("acts on ", what, ", which ", setter.from, " may set: ", setter.rule)});
  }
  return claims;
}

// Claim (c): what marks stays, so what acts on the mark stays; the same of labels. `marks` are
// acted on, and `marking_chain` is kubelet's for them, which may hold foreign rules for any bit.
std::vector<Claim> OfMarks(const ClaimSources& sources, absl::string_view marking_chain,
                           const Marks& marks) {
  std::vector<Claim> claims = OfMarksIn(sources.family, sources, marking_chain, marks);
  // In a tunnel (VXLAN, SIT) a packet keeps its mark and loses its connection, so the other family
  // matters for marks only. One reason is enough.
  const Family other = sources.family == Family::kIPv4 ? Family::kIPv6 : Family::kIPv4;
  if (claims.empty() && !IsLabelChain({other, Table::kNat, std::string(marking_chain)})) {
    claims = OfMarksIn(other, sources, marking_chain, marks);
  }
  return claims;
}

// Claim (d): the first chain of `sources` whose rules switch connection tracking on keeps it on.
std::vector<Claim> OfNat(const ClaimSources& sources, const ChainId& chain) {
  const auto untracked = sources.dependents.untracked.find(sources.family);
  if (untracked == sources.dependents.untracked.end()) return {};
  for (const ChainId& candidate :
       {ChainId{sources.family, Table::kFilter, std::string(kFirewallChain)},
        ChainId{sources.family, Table::kNat, std::string(kPostroutingChain)},
        ChainId{sources.family, Table::kNat, std::string(kLabelPostroutingChain)}}) {
    const ObservedChain* observed = sources.observed.Find(candidate);
    if (observed == nullptr || !absl::c_any_of(observed->rules, TracksConnections)) continue;
    if (candidate != chain) return {};
    return {{ClaimKind::kTracking,
             absl::StrCat("only its rules switch connection tracking on, and without that the "
                          "kernel passes no packet to ",
                          untracked->second)}};
  }
  return {};
}

}  // namespace

absl::string_view ClaimKindName(ClaimKind kind) {
  constexpr std::array<absl::string_view, 11> kInOrder = {
      "foreignJump",      "foreignRule",        "cniConfig",       "kubeProxy",
      "kubeProxyRemains", "markedPackets",      "labelledPackets", "martians",
      "liveKubelet",      "connectionTracking", "hintReaders"};
  return kInOrder.at(static_cast<size_t>(kind));
}

std::vector<Claim> ClaimsOnDropMarkRule(const ClaimSources& sources, uint32_t mark) {
  std::vector<Claim> claims = OfOldKubeProxy(sources);
  Append(OfMarks(sources, kMarkDropChain, {.bits = mark}), claims);
  return claims;
}

std::vector<Claim> ClaimsOnChain(const ClaimSources& sources, const ChainId& chain,
                                 const ObservedChain& observed) {
  std::vector<Claim> claims = OfOthers(sources, chain, observed);
  const Marks tested = TestedIn(observed);
  Append(OfNat(sources, chain), claims);
  if (UsedByKubeProxy(chain)) Append(OfKubeProxy(sources, chain.name), claims);
  if (Is(chain, Table::kNat, kMarkDropChain)) Append(OfOldKubeProxy(sources), claims);
  if (Is(chain, Table::kNat, kPostroutingChain)) {
    Append(OfMarks(sources, kMarkMasqChain, tested), claims);
  }
  if (Is(chain, Table::kNat, kLabelPostroutingChain)) {
    Append(OfMarks(sources, kLabelMasqChain, tested), claims);
  }
  if (Is(chain, Table::kFilter, kLabelFirewallChain)) {
    Append(OfMarks(sources, kLabelDropChain, tested), claims);
  }
  if (Is(chain, Table::kFilter, kFirewallChain)) {
    if (tested.bits != 0) Append(ClaimsOnDropMarkRule(sources, tested.bits), claims);
    const RouteLocalnet& route_localnet = sources.dependents.route_localnet;
    if (absl::c_any_of(observed.rules, IsMartianRule) && !route_localnet.empty()) {
      claims.push_back({ClaimKind::kMartians,
                        absl::StrCat(ToString(route_localnet),
                                     ": without its martian rule neighbours reach 127.0.0.1")});
    }
  }
  return claims;
}

}  // namespace kipt::agent
