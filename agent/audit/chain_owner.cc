// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/chain_owner.h"

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "agent/policy/ownership.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"

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

// The first row that matches decides. `table` empty: any. A name that ends in '*' is a prefix.
struct ChainRow {
  absl::string_view table;
  absl::string_view name;
  Owner owner;
};
constexpr std::array kChains = {
    // kube-router's begin as Kubernetes' do, and are not.
    ChainRow{"", "KUBE-ROUTER-*", Owner::kKubeRouter},
    ChainRow{"", "KUBE-POD-FW-*", Owner::kKubeRouter},
    ChainRow{"", "KUBE-NWPLCY-*", Owner::kKubeRouter},
    ChainRow{"", "KUBE-HOSTPORTS", Owner::kHostPorts},
    ChainRow{"", "KUBE-HP-*", Owner::kHostPorts},
    ChainRow{"", "CRIO-*", Owner::kCrio},

    ChainRow{"nat", kMarkMasqChain, Owner::kKubelet},
    ChainRow{"nat", kMarkDropChain, Owner::kKubelet},
    ChainRow{"nat", kPostroutingChain, Owner::kKubelet},
    ChainRow{"filter", kFirewallChain, Owner::kKubelet},
    ChainRow{"", kHintChain, Owner::kKubelet},
    ChainRow{"", kCanaryChain, Owner::kKubelet},

    ChainRow{"nat", kLabelMasqChain, Owner::kThisAgent},
    ChainRow{"nat", kLabelDropChain, Owner::kThisAgent},
    ChainRow{"nat", kLabelPostroutingChain, Owner::kThisAgent},
    ChainRow{"filter", kLabelFirewallChain, Owner::kThisAgent},

    // Not filter KUBE-FIREWALL: IPVS mode up to 1.24 has a chain of that name in nat.
    ChainRow{"nat", "KUBE-FIREWALL", Owner::kKubeProxyIpvs},
    ChainRow{"nat", "KUBE-LOAD-BALANCER", Owner::kKubeProxyIpvs},
    ChainRow{"", "KUBE-NODE-PORT", Owner::kKubeProxyIpvs},
    ChainRow{"filter", "KUBE-SOURCE-RANGES-FIREWALL", Owner::kKubeProxyIpvs},
    ChainRow{"filter", "KUBE-IPVS-FILTER", Owner::kKubeProxyIpvs},
    ChainRow{"filter", "KUBE-IPVS-OUT-FILTER", Owner::kKubeProxyIpvs},

    ChainRow{"", "KUBE-SERVICES", Owner::kKubeProxy},
    ChainRow{"", "KUBE-EXTERNAL-SERVICES", Owner::kKubeProxy},
    ChainRow{"", "KUBE-NODEPORTS", Owner::kKubeProxy},
    ChainRow{"", "KUBE-FORWARD", Owner::kKubeProxy},
    ChainRow{"", "KUBE-PROXY-FIREWALL", Owner::kKubeProxy},
    ChainRow{"", "KUBE-PROXY-CANARY", Owner::kKubeProxy},
    ChainRow{"nat", "KUBE-SVC-*", Owner::kKubeProxy},
    ChainRow{"nat", "KUBE-SVL-*", Owner::kKubeProxy},
    ChainRow{"nat", "KUBE-SEP-*", Owner::kKubeProxy},
    ChainRow{"nat", "KUBE-FW-*", Owner::kKubeProxy},
    ChainRow{"nat", "KUBE-XLB-*", Owner::kKubeProxy},
    ChainRow{"nat", "KUBE-EXT-*", Owner::kKubeProxy},

    ChainRow{"", "CNI-*", Owner::kPortmap},
    ChainRow{"", "cali-*", Owner::kCalico},
    ChainRow{"", "CILIUM_*", Owner::kCilium},
    ChainRow{"", "OLD_CILIUM_*", Owner::kCilium},
    ChainRow{"", "FLANNEL-*", Owner::kFlannel},
    ChainRow{"", "WEAVE*", Owner::kWeave},
    ChainRow{"", "ANTREA-*", Owner::kAntrea},
    ChainRow{"", "DOCKER*", Owner::kDocker},
    ChainRow{"", "IP-MASQ*", Owner::kIpMasqAgent},
    ChainRow{"", "IN_*", Owner::kFirewalld},
    ChainRow{"", "FWDI_*", Owner::kFirewalld},
    ChainRow{"", "FWDO_*", Owner::kFirewalld},
    ChainRow{"", "INPUT_direct", Owner::kFirewalld},
    ChainRow{"", "INPUT_ZONES*", Owner::kFirewalld},
    ChainRow{"", "FORWARD_direct", Owner::kFirewalld},
    ChainRow{"", "OUTPUT_direct", Owner::kFirewalld},
    ChainRow{"", "PREROUTING_ZONES*", Owner::kFirewalld},
    ChainRow{"", "POSTROUTING_ZONES*", Owner::kFirewalld},
};

struct OwnerRow {
  Owner owner;
  absl::string_view name;
};
// Tables of nft that are one program's.
constexpr std::array kTables = {
    OwnerRow{Owner::kKubeProxyNftables, "kube-proxy"},
    OwnerRow{Owner::kKpng, "k8s_svc"},
    OwnerRow{Owner::kKpng, "k8s_svc6"},
    OwnerRow{Owner::kThisAgent, "kube-iptables-agent"},
    OwnerRow{Owner::kPortmap, "cni_hostport"},
    OwnerRow{Owner::kCalico, "calico"},
    OwnerRow{Owner::kFirewalld, "firewalld"},
    OwnerRow{Owner::kDocker, "docker-bridges"},
};

// How the comments of rules in base chains begin.
constexpr std::array kComments = {
    OwnerRow{Owner::kNodeLocalDns, "NodeLocal DNS"},
    OwnerRow{Owner::kPortmap, "CNI portfwd"},
    OwnerRow{Owner::kHostPorts, "kube hostport"},
    OwnerRow{Owner::kCalico, "cali:"},
    OwnerRow{Owner::kCilium, "cilium"},
    OwnerRow{Owner::kFlannel, "flanneld"},
    OwnerRow{Owner::kWeave, "NOTE: this must go before '-j KUBE-FORWARD'"},
    OwnerRow{Owner::kIpMasqAgent, "ip-masq"},
    OwnerRow{Owner::kAntrea, "Antrea:"},
    OwnerRow{Owner::kKubeRouter, "kube-router"},
};

bool NameMatches(absl::string_view pattern, absl::string_view name) {
  if (!absl::EndsWith(pattern, "*")) return pattern == name;
  return absl::StartsWith(name, pattern.substr(0, pattern.size() - 1));
}

Owner OwnerByName(absl::string_view table, absl::string_view chain) {
  for (const ChainRow& row : kChains) {
    if ((row.table.empty() || row.table == table) && NameMatches(row.name, chain)) return row.owner;
  }
  return Owner::kUnknown;
}

// The chain as policy names it, where it can: kubelet has chains in these families and tables only.
std::optional<netlink::ChainId> KubeletChainId(const netlink::TableId& table,
                                               absl::string_view chain) {
  netlink::ChainId id;
  id.name = std::string(chain);
  if (table.family != "ip" && table.family != "ip6") return std::nullopt;
  id.family = table.family == "ip" ? netlink::Family::kIPv4 : netlink::Family::kIPv6;
  for (const netlink::Table known : netlink::kTables) {
    if (table.name != std::string(netlink::TableName(known))) continue;
    id.table = known;
    return id;
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
  return OwnerByName(table.name, chain);
}

bool IsPrivateChain(absl::string_view table, absl::string_view chain) {
  return OwnerByName(table, chain) == Owner::kThisAgent;
}

bool IsPrivateChain(absl::string_view place) {
  const size_t slash = place.find('/');
  return slash != absl::string_view::npos &&
         IsPrivateChain(place.substr(0, slash), place.substr(slash + 1));
}

Owner OwnerOfRule(const netlink::TableId& table, absl::string_view chain, bool base,
                  const netlink::SurveyRule& rule) {
  const Owner of_chain = OwnerOfChain(table, chain, base);
  const std::optional<netlink::ChainId> id = KubeletChainId(table, chain);
  const netlink::Rule* known = id ? rule.rule() : nullptr;
  const absl::string_view jump = JumpOf(rule);
  if (of_chain == Owner::kKubelet ||
      (of_chain == Owner::kThisAgent && IsPrivateChain(table.name, chain))) {
    if (known != nullptr && RecognizeKubeletForm(*id, *known)) return of_chain;
    if (IsIpvsLoopback(rule)) return Owner::kKubeProxyIpvs;
  } else if (of_chain != Owner::kBaseChain && of_chain != Owner::kUnknown) {
    return of_chain;
  }
  // Before comments: kubelet's jump from POSTROUTING has that of kube-proxy's.
  if (known != nullptr) {
    for (const DesiredJump& own : EveryKubeletJump(id->family)) {
      if (own.base_chain != *id || own.rule != *known) continue;
      return IsPrivateChain(table.name, jump) ? Owner::kThisAgent : Owner::kKubelet;
    }
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
