// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/claims.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "agent/policy/guards.h"
#include "agent/policy/kube_proxy_chains.h"
#include "agent/policy/kubelet_forms.h"
#include "agent/policy/policy_tables.h"
#include "agent/policy/rule_forms.h"

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
  return Is(chain, Table::kNat, kMarkMasqChain) || Is(chain, Table::kNat, kPostroutingChain) ||
         Is(chain, Table::kFilter, kFirewallChain);
}

// Bits of the mark that the rules of `chain` look at.
uint32_t BitsTested(const ObservedChain& chain) {
  uint32_t bits = 0;
  for (const ObservedRule& rule : chain.rules) bits |= netlink::MarksTested(rule);
  return bits;
}

// And those that they turn on.
uint32_t BitsSet(const ObservedChain& chain) {
  uint32_t bits = 0;
  for (const ObservedRule& rule : chain.rules) bits |= netlink::MarksSet(rule);
  return bits;
}

// Labels of the connection that they look at.
netlink::ConnLabelSet LabelsTested(const ObservedChain& chain) {
  netlink::ConnLabelSet labels;
  for (const ObservedRule& rule : chain.rules) {
    const auto* own = rule.rule();
    if (own != nullptr && own->conn_label && !own->conn_label->set) {
      labels.set(own->conn_label->label);
    }
  }
  return labels;
}

// A chain and a rule in it may be claimed for one reason.
void Append(std::vector<Claim> more, std::vector<Claim>& claims) {
  for (Claim& claim : more) {
    if (std::find(claims.begin(), claims.end(), claim) != claims.end()) continue;
    claims.push_back(std::move(claim));
  }
}

}  // namespace

absl::string_view ClaimKindName(ClaimKind kind) {
  switch (kind) {
    case ClaimKind::kForeignJump:
      return "foreignJump";
    case ClaimKind::kForeignRule:
      return "foreignRule";
    case ClaimKind::kCniConfig:
      return "cniConfig";
    case ClaimKind::kKubeProxy:
      return "kubeProxy";
    case ClaimKind::kKubeProxyRemains:
      return "kubeProxyRemains";
    case ClaimKind::kMarkedPackets:
      return "markedPackets";
    case ClaimKind::kLabelledPackets:
      return "labelledPackets";
    case ClaimKind::kMartians:
      return "martians";
    case ClaimKind::kLiveKubelet:
      return "liveKubelet";
    case ClaimKind::kHintReaders:
      return "hintReaders";
  }
  return "unknown";
}

bool IsKubeletRule(const ChainId& chain, const ObservedRule& observed) {
  const netlink::Rule* rule = observed.rule();
  if (rule == nullptr) return false;
  if (RecognizeKubeletForm(chain, *rule)) return true;
  // "RETURN if unmarked" that lost its match (guards.h).
  if (Is(chain, Table::kNat, kPostroutingChain) &&
      *rule == netlink::Rule{.target = netlink::Return{}}) {
    return true;
  }
  const std::vector<Damage> damages = FindDamage(chain, {&observed, 1});
  return std::any_of(damages.begin(), damages.end(),
                     [](const Damage& damage) { return damage.delete_rule; });
}

Claims::Claims(Family family, const netlink::Snapshot& observed, const Dependents& dependents)
    : family_(family), observed_(observed), dependents_(dependents) {}

bool Claims::Stays(absl::string_view marking_chain) const {
  const ChainId marking = {family_, Table::kNat, std::string(marking_chain)};
  const ObservedChain* chain = observed_.Find(marking);
  return chain != nullptr && !OnChain(marking, *chain).empty();
}

bool Claims::Stands(Table table, absl::string_view name) const {
  return observed_.Find({family_, table, std::string(name)}) != nullptr;
}

// Claim (a): somebody jumps to it, put a rule into it, or means to jump to it when the next pod
// starts.
std::vector<Claim> Claims::OfOthers(const ChainId& chain, const ObservedChain& observed) const {
  std::vector<Claim> claims;
  for (const Reference& reference : dependents_.references) {
    if (reference.chain != chain) continue;
    claims.push_back({ClaimKind::kForeignJump,
                      absl::StrCat("jumped to from ", reference.from, ": ", reference.rule)});
  }
  for (const ObservedRule& rule : observed.rules) {
    if (IsKubeletRule(chain, rule)) continue;
    claims.push_back({ClaimKind::kForeignRule, absl::StrCat("holds a rule that is not kubelet's: ",
                                                            netlink::ToString(family_, rule))});
  }
  if (!IsMarkingChain(chain)) return claims;
  for (const CniReference& reference : dependents_.cni.references) {
    if (reference.chain != chain.name) continue;
    claims.push_back(
        {ClaimKind::kCniConfig, absl::StrCat("named by the CNI configuration ", reference.file,
                                             " (plugin ", reference.plugin, ")")});
  }
  for (const std::string& problem : dependents_.cni.problems) {
    claims.push_back(
        {ClaimKind::kCniConfig, absl::StrCat("a CNI configuration may name it: ", problem)});
  }
  return claims;
}

// Claim (b).
std::vector<Claim> Claims::OfKubeProxy(const ChainId& chain) const {
  if (!IsClaimedByKubeProxy(observed_, family_)) return {};
  const bool services =
      Stands(Table::kNat, "KUBE-SERVICES") || Stands(Table::kFilter, "KUBE-SERVICES");
  if (services) {
    return {{ClaimKind::kKubeProxy, "kube-proxy uses it: KUBE-SERVICES stands"}};
  }
  return {{ClaimKind::kKubeProxyRemains,
           absl::StrCat("kube-proxy may use ", chain.name,
                        " again: KUBE-PROXY-CANARY stands without KUBE-SERVICES, as `kube-proxy "
                        "--cleanup` leaves it; delete KUBE-PROXY-CANARY where kube-proxy is gone "
                        "for good")}};
}

// Claim (c): who marks stays, so what acts on the mark stays. Anybody may have put a rule for any
// bit into either chain.
std::vector<Claim> Claims::OfMarks(absl::string_view marking_chain, uint32_t mark) const {
  std::vector<Claim> claims;
  for (const absl::string_view name : {kMarkMasqChain, kMarkDropChain}) {
    const ObservedChain* chain = observed_.Find({family_, Table::kNat, std::string(name)});
    const bool marks = chain != nullptr && (name == marking_chain || (BitsSet(*chain) & mark) != 0);
    if (!marks || !Stays(name)) continue;
    claims.push_back({ClaimKind::kMarkedPackets,
                      absl::StrCat("acts on what nat/", name, " marks, which stays")});
  }
  for (const Marking& setter : dependents_.mark_setters) {
    const bool sees = family_ == Family::kIPv4 ? setter.ipv4 : setter.ipv6;
    if (!sees || (setter.bits & mark) == 0) continue;
    claims.push_back(
        {ClaimKind::kMarkedPackets, absl::StrFormat("acts on mark 0x%x, which %s may set: %s",
                                                    setter.bits & mark, setter.from, setter.rule)});
  }
  return claims;
}

std::vector<Claim> Claims::OfLabels(absl::string_view labelling_chain,
                                    const netlink::ConnLabelSet& labels) const {
  std::vector<Claim> claims;
  if (Stays(labelling_chain)) {
    claims.push_back({ClaimKind::kLabelledPackets,
                      absl::StrCat("acts on what nat/", labelling_chain, " labels, which stays")});
  }
  for (const Marking& setter : dependents_.label_setters) {
    const bool sees = family_ == Family::kIPv4 ? setter.ipv4 : setter.ipv6;
    const netlink::ConnLabelSet both = setter.labels & labels;
    if (!sees || both.none()) continue;
    std::vector<int> numbers;
    for (int label = 0; label <= netlink::kMostConnLabel; ++label) {
      if (both.test(static_cast<size_t>(label))) numbers.push_back(label);
    }
    claims.push_back({ClaimKind::kLabelledPackets,
                      absl::StrCat("acts on label ", absl::StrJoin(numbers, ", "), ", which ",
                                   setter.from, " may set: ", setter.rule)});
  }
  return claims;
}

std::vector<Claim> Claims::OnDropMarkRule(uint32_t mark) const {
  std::vector<Claim> claims;
  // Since 1.25 kube-proxy drops by itself.
  if (!Stands(Table::kFilter, kep3178::kKubeProxyFirewallChain)) {
    claims = OfKubeProxy({family_, Table::kNat, std::string(kMarkDropChain)});
  }
  Append(OfMarks(kMarkDropChain, mark), claims);
  return claims;
}

std::vector<Claim> Claims::OnChain(const ChainId& chain, const ObservedChain& observed) const {
  std::vector<Claim> claims = OfOthers(chain, observed);
  if (UsedByKubeProxy(chain)) Append(OfKubeProxy(chain), claims);
  if (Is(chain, Table::kNat, kMarkDropChain) &&
      !Stands(Table::kFilter, kep3178::kKubeProxyFirewallChain)) {
    Append(OfKubeProxy(chain), claims);
  }
  if (Is(chain, Table::kNat, kPostroutingChain)) {
    Append(OfMarks(kMarkMasqChain, BitsTested(observed)), claims);
  }
  if (Is(chain, Table::kNat, kLabelPostroutingChain)) {
    Append(OfLabels(kLabelMasqChain, LabelsTested(observed)), claims);
  }
  if (Is(chain, Table::kFilter, kLabelFirewallChain)) {
    Append(OfLabels(kLabelDropChain, LabelsTested(observed)), claims);
  }
  if (Is(chain, Table::kFilter, kFirewallChain)) {
    const uint32_t dropped = BitsTested(observed);
    if (dropped != 0) Append(OnDropMarkRule(dropped), claims);
    const bool martians =
        std::any_of(observed.rules.begin(), observed.rules.end(), [](const ObservedRule& rule) {
          return rule.rule() != nullptr && *rule.rule() == DropMartians(0);
        });
    if (martians && !dependents_.route_localnet.empty()) {
      claims.push_back({ClaimKind::kMartians,
                        absl::StrCat("route_localnet is 1 for ", dependents_.route_localnet.front(),
                                     ": without its martian rule neighbours reach 127.0.0.1")});
    }
  }
  return claims;
}

}  // namespace kipt::agent
