// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/chain_owner.h"

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "agent/policy/ownership.h"

namespace kipt::agent {
namespace {

// In the order of the enumeration.
constexpr std::array<absl::string_view, 21> kNames = {"unknown",
                                                      "everybody (a base chain)",
                                                      "kubelet",
                                                      "kube-proxy",
                                                      "kube-proxy (IPVS)",
                                                      "kube-proxy (nftables)",
                                                      "kpng",
                                                      "kube-iptables-agent",
                                                      "kube-router",
                                                      "the CNI plugin portmap",
                                                      "CRI-O up to 1.26, or dockershim",
                                                      "CRI-O",
                                                      "Calico",
                                                      "Cilium",
                                                      "flannel",
                                                      "Weave Net",
                                                      "Antrea",
                                                      "Docker",
                                                      "firewalld",
                                                      "ip-masq-agent",
                                                      "NodeLocal DNS"};

// Names of others than kubelet and kube-proxy, which policy knows; and which of the latter's are
// IPVS mode's own. The first row that matches decides. `table` empty: any. A name that ends in '*'
// is a prefix.
struct ChainRow {
  absl::string_view table;
  absl::string_view name;
  Owner owner;
};
constexpr ChainRow kChains[] = {
    // kube-router's begin as Kubernetes' do, and are not.
    {"", "KUBE-ROUTER-*", Owner::kKubeRouter},
    {"", "KUBE-POD-FW-*", Owner::kKubeRouter},
    {"", "KUBE-NWPLCY-*", Owner::kKubeRouter},
    {"", "KUBE-HOSTPORTS", Owner::kHostPorts},
    {"", "KUBE-HP-*", Owner::kHostPorts},
    {"", "CRIO-*", Owner::kCrio},

    // Not filter KUBE-FIREWALL: IPVS mode up to 1.24 has a chain of that name in nat.
    {"nat", "KUBE-FIREWALL", Owner::kKubeProxyIpvs},
    {"nat", "KUBE-LOAD-BALANCER", Owner::kKubeProxyIpvs},
    {"", "KUBE-NODE-PORT", Owner::kKubeProxyIpvs},
    {"filter", "KUBE-SOURCE-RANGES-FIREWALL", Owner::kKubeProxyIpvs},
    {"filter", "KUBE-IPVS-FILTER", Owner::kKubeProxyIpvs},
    {"filter", "KUBE-IPVS-OUT-FILTER", Owner::kKubeProxyIpvs},

    {"", "CNI-*", Owner::kPortmap},
    {"", "cali-*", Owner::kCalico},
    {"", "CILIUM_*", Owner::kCilium},
    {"", "OLD_CILIUM_*", Owner::kCilium},
    {"", "FLANNEL-*", Owner::kFlannel},
    {"", "WEAVE*", Owner::kWeave},
    {"", "ANTREA-*", Owner::kAntrea},
    {"", "DOCKER*", Owner::kDocker},
    {"", "IP-MASQ*", Owner::kIpMasqAgent},
    {"", "IN_*", Owner::kFirewalld},
    {"", "FWDI_*", Owner::kFirewalld},
    {"", "FWDO_*", Owner::kFirewalld},
    {"", "INPUT_direct", Owner::kFirewalld},
    {"", "INPUT_ZONES*", Owner::kFirewalld},
    {"", "FORWARD_direct", Owner::kFirewalld},
    {"", "OUTPUT_direct", Owner::kFirewalld},
    {"", "PREROUTING_ZONES*", Owner::kFirewalld},
    {"", "POSTROUTING_ZONES*", Owner::kFirewalld},
};

struct OwnerRow {
  Owner owner;
  absl::string_view name;
};
// Tables of nft that are one program's.
constexpr OwnerRow kTables[] = {
    {Owner::kKubeProxyNftables, "kube-proxy"},
    {Owner::kKpng, "k8s_svc"},
    {Owner::kKpng, "k8s_svc6"},
    {Owner::kThisAgent, "kube-iptables-agent"},
    {Owner::kPortmap, "cni_hostport"},
    {Owner::kCalico, "calico"},
    {Owner::kFirewalld, "firewalld"},
    {Owner::kDocker, "docker-bridges"},
};

// How the comments of rules in base chains begin.
constexpr OwnerRow kComments[] = {
    {Owner::kNodeLocalDns, "NodeLocal DNS"},
    {Owner::kPortmap, "CNI portfwd"},
    {Owner::kHostPorts, "kube hostport"},
    {Owner::kCalico, "cali:"},
    {Owner::kCilium, "cilium"},
    {Owner::kFlannel, "flanneld"},
    {Owner::kWeave, "NOTE: this must go before '-j KUBE-FORWARD'"},
    {Owner::kIpMasqAgent, "ip-masq"},
    {Owner::kAntrea, "Antrea:"},
    {Owner::kKubeRouter, "kube-router"},
};

bool NameMatches(absl::string_view pattern, absl::string_view name) {
  if (!absl::EndsWith(pattern, "*")) return pattern == name;
  return absl::StartsWith(name, pattern.substr(0, pattern.size() - 1));
}

// The chain as policy names it, where it can: kubelet and kube-proxy have chains in these families
// and tables only.
std::optional<netlink::ChainId> KnownChainId(const netlink::TableId& table,
                                             absl::string_view chain) {
  for (const netlink::Family family : netlink::kFamilies) {
    if (table.family != netlink::FamilyName(family)) continue;
    for (const netlink::Table known : netlink::kTables) {
      if (table.name == netlink::TableName(known)) return {{family, known, std::string(chain)}};
    }
  }
  return std::nullopt;
}

// IPVS mode puts one rule of its own into KUBE-POSTROUTING.
bool IsIpvsLoopback(const netlink::SurveyRule& rule) {
  const netlink::OpaqueRule* opaque = rule.opaque();
  return opaque != nullptr &&
         (opaque->set == "KUBE-LOOP-BACK" || opaque->set == "KUBE-6-LOOP-BACK");
}

}  // namespace

absl::string_view OwnerName(Owner owner) { return kNames.at(static_cast<size_t>(owner)); }

bool IsKubernetes(Owner owner) {
  return owner == Owner::kKubelet || owner == Owner::kKubeProxy || owner == Owner::kKubeProxyIpvs ||
         owner == Owner::kKubeProxyNftables;
}

bool IsKubeletsOrOurs(Owner owner) {
  return owner == Owner::kKubelet || owner == Owner::kThisAgent;
}

Owner OwnerOfChain(const netlink::TableId& table, absl::string_view chain, bool base) {
  if (base) return Owner::kBaseChain;
  for (const OwnerRow& row : kTables) {
    if (row.name == table.name) return row.owner;
  }
  for (const ChainRow& row : kChains) {
    if ((row.table.empty() || row.table == table.name) && NameMatches(row.name, chain)) {
      return row.owner;
    }
  }
  const std::optional<netlink::ChainId> id = KnownChainId(table, chain);
  if (!id) return Owner::kUnknown;
  if (IsLabelChain(*id)) return Owner::kThisAgent;
  if (IsKubeletChain(*id)) return Owner::kKubelet;
  return IsKubeProxyChain(*id) ? Owner::kKubeProxy : Owner::kUnknown;
}

bool IsPrivateChain(absl::string_view table, absl::string_view chain) {
  const std::optional<netlink::ChainId> id =
      KnownChainId({.family = "ip", .name = std::string(table)}, chain);
  return id && IsLabelChain(*id);
}

bool IsPrivateChain(absl::string_view place) {
  const size_t slash = place.find('/');
  return slash != absl::string_view::npos &&
         IsPrivateChain(place.substr(0, slash), place.substr(slash + 1));
}

Owner OwnerOfRule(const netlink::TableId& table, absl::string_view chain, bool base,
                  const netlink::SurveyRule& rule) {
  const Owner of_chain = OwnerOfChain(table, chain, base);
  const std::optional<netlink::ChainId> id = KnownChainId(table, chain);
  const absl::string_view jump = JumpOf(rule);
  if (of_chain == Owner::kKubelet ||
      (of_chain == Owner::kThisAgent && IsPrivateChain(table.name, chain))) {
    const netlink::Rule* known = rule.rule();
    if (known != nullptr && RecognizeKubeletForm(*id, *known)) return of_chain;
    if (IsIpvsLoopback(rule)) return Owner::kKubeProxyIpvs;
  } else if (of_chain != Owner::kBaseChain && of_chain != Owner::kUnknown) {
    return of_chain;
  }
  // Before comments: kubelet's jump from POSTROUTING has that of kube-proxy's.
  if (id && IsKubeletJump(*id, rule)) {
    return IsPrivateChain(table.name, jump) ? Owner::kThisAgent : Owner::kKubelet;
  }
  for (const OwnerRow& row : kComments) {
    if (absl::StartsWith(KnownMatches(rule).comment, row.name)) return row.owner;
  }
  const Owner of_target = jump.empty() ? Owner::kUnknown : OwnerOfChain(table, jump);
  // That a rule uses a chain of kubelet's or of ours does not make it that.
  return IsKubeletsOrOurs(of_target) ? Owner::kUnknown : of_target;
}

absl::string_view ChainGroup(absl::string_view chain) {
  constexpr std::array<absl::string_view, 14> kGroups = {
      "KUBE-SVC-*",    "KUBE-SVL-*",      "KUBE-SEP-*", "KUBE-FW-*", "KUBE-XLB-*",
      "KUBE-EXT-*",    "KUBE-POD-FW-*",   "KUBE-HP-*",  "CNI-DN-*",  "CNI-SN-*",
      "KUBE-NWPLCY-*", "CRIO-HOSTPORT-*", "cali-fw-*",  "cali-tw-*"};
  for (const absl::string_view group : kGroups) {
    if (NameMatches(group, chain)) return group;
  }
  return chain;
}

absl::string_view JumpOf(const netlink::SurveyRule& rule) {
  const std::string* jump = JumpTarget(rule);
  return jump == nullptr ? absl::string_view() : *jump;
}

FamilyChains::FamilyChains(const netlink::Survey& survey, netlink::Family family)
    : survey_(survey), family_(family), name_(netlink::FamilyName(family)) {}

netlink::TableId FamilyChains::Id(absl::string_view table) const {
  return {.family = name_, .name = std::string(table)};
}

const FamilyChains::Chains& FamilyChains::In(absl::string_view table) const {
  static const Chains* const kNone = new Chains();
  const auto found = survey_.tables.find(Id(table));
  return found == survey_.tables.end() ? *kNone : found->second;
}

const netlink::SurveyChain* FamilyChains::Find(absl::string_view table,
                                               absl::string_view chain) const {
  return survey_.Find(Id(table), std::string(chain));
}

const FamilyChains::RuleList& FamilyChains::Rules(absl::string_view table,
                                                  absl::string_view chain) const {
  static const RuleList* const kNone = new RuleList();
  const netlink::SurveyChain* found = Find(table, chain);
  return found == nullptr ? *kNone : found->rules;
}

bool FamilyChains::HangsOnBase(absl::string_view table, absl::string_view chain,
                               absl::string_view from) const {
  const auto jumps = [&](const netlink::SurveyRule& rule) { return JumpOf(rule) == chain; };
  return absl::c_any_of(In(table), [&](const auto& entry) {
    return entry.second.base && (from.empty() || from == absl::string_view(entry.first)) &&
           absl::c_any_of(entry.second.rules, jumps);
  });
}

bool FamilyChains::HasAnywhere(absl::string_view chain) const {
  return Has("mangle", chain) || Has("nat", chain) || Has("filter", chain);
}

}  // namespace kipt::agent
