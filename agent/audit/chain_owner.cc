// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/chain_owner.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "agent/policy/kubelet_forms.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"
#include "agent/xtables/iptables_save_reader.h"
#include "agent/xtables/iptables_save_rule.h"

namespace kipt::agent {
namespace {

struct OwnerRow {
  Owner owner;
  absl::string_view name;
};
constexpr std::array kNames = {
    OwnerRow{Owner::kUnknown, "unknown"},
    OwnerRow{Owner::kBaseChain, "everybody (a base chain)"},
    OwnerRow{Owner::kKubelet, "kubelet"},
    OwnerRow{Owner::kKubeProxy, "kube-proxy"},
    OwnerRow{Owner::kKubeProxyIpvs, "kube-proxy (IPVS)"},
    OwnerRow{Owner::kKubeProxyNftables, "kube-proxy (nftables)"},
    OwnerRow{Owner::kKpng, "kpng"},
    OwnerRow{Owner::kThisAgent, "kube-iptables-agent"},
    OwnerRow{Owner::kKubeRouter, "kube-router"},
    OwnerRow{Owner::kPortmap, "the CNI plugin portmap"},
    OwnerRow{Owner::kHostPorts, "CRI-O up to 1.26, or dockershim"},
    OwnerRow{Owner::kCrio, "CRI-O"},
    OwnerRow{Owner::kCalico, "Calico"},
    OwnerRow{Owner::kCilium, "Cilium"},
    OwnerRow{Owner::kFlannel, "flannel"},
    OwnerRow{Owner::kWeave, "Weave Net"},
    OwnerRow{Owner::kAntrea, "Antrea"},
    OwnerRow{Owner::kDocker, "Docker"},
    OwnerRow{Owner::kFirewalld, "firewalld"},
    OwnerRow{Owner::kIpMasqAgent, "ip-masq-agent"},
    OwnerRow{Owner::kNodeLocalDns, "NodeLocal DNS"},
};

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

bool IsKubeletForm(const netlink::TableId& table, absl::string_view chain,
                   const netlink::SurveyRule& rule) {
  const std::optional<netlink::ChainId> id = KubeletChainId(table, chain);
  std::vector<absl::string_view> words;
  if (!id || !SplitSavedRule(rule.text, words)) return false;
  const std::variant<netlink::Rule, netlink::OpaqueRule> parsed =
      ParseSavedRule(id->family, SavedChains(), rule.text, words);
  const auto* known = std::get_if<netlink::Rule>(&parsed);
  return known != nullptr && RecognizeKubeletForm(*id, *known).has_value();
}

// IPVS mode puts one rule of its own into KUBE-POSTROUTING.
bool IsIpvsLoopback(const RuleWords& words) {
  return words.set.text == "KUBE-LOOP-BACK" || words.set.text == "KUBE-6-LOOP-BACK";
}

// A jump from one of `bases` with this comment, or none, and no other match.
bool IsPlainJump(absl::string_view chain, const RuleWords& words, absl::string_view target,
                 absl::string_view comment, std::initializer_list<absl::string_view> bases) {
  return words.MatchesAll() && !words.go_to && words.target == target && words.comment == comment &&
         std::find(bases.begin(), bases.end(), chain) != bases.end();
}

// The one from POSTROUTING has the comment of kube-proxy's.
bool IsKubeletJump(const netlink::TableId& table, absl::string_view chain, const RuleWords& words) {
  if (table.name == "filter") {
    return IsPlainJump(chain, words, kFirewallChain, "", {"INPUT", "OUTPUT"});
  }
  return table.name == "nat" &&
         IsPlainJump(chain, words, kPostroutingChain, kPostroutingComment, {"POSTROUTING"});
}

bool IsPrivateJump(const netlink::TableId& table, absl::string_view chain, const RuleWords& words) {
  if (table.name == "filter") {
    return IsPlainJump(chain, words, kLabelFirewallChain, "", {"INPUT", "FORWARD", "OUTPUT"});
  }
  return table.name == "nat" && IsPlainJump(chain, words, kLabelPostroutingChain,
                                            kLabelPostroutingComment, {"POSTROUTING"});
}

}  // namespace

absl::string_view OwnerName(Owner owner) {
  for (const OwnerRow& row : kNames) {
    if (row.owner == owner) return row.name;
  }
  return "unknown";
}

bool IsKubernetes(Owner owner) {
  return owner == Owner::kKubelet || owner == Owner::kKubeProxy || owner == Owner::kKubeProxyIpvs ||
         owner == Owner::kKubeProxyNftables;
}

bool IsKubeletsOrOurs(Owner owner) {
  return owner == Owner::kKubelet || owner == Owner::kThisAgent;
}

Owner OwnerOfChain(const netlink::TableId& table, absl::string_view chain) {
  for (const OwnerRow& row : kTables) {
    if (row.name == table.name) return row.owner;
  }
  for (const ChainRow& row : kChains) {
    if ((row.table.empty() || row.table == table.name) && NameMatches(row.name, chain)) {
      return row.owner;
    }
  }
  return Owner::kUnknown;
}

bool IsPrivateChain(absl::string_view table, absl::string_view chain) {
  const std::optional<netlink::ChainId> id =
      KubeletChainId({.family = "ip", .name = std::string(table)}, chain);
  return id && IsLabelChain(*id);
}

bool IsPrivateChain(absl::string_view place) {
  const size_t slash = place.find('/');
  return slash != absl::string_view::npos &&
         IsPrivateChain(place.substr(0, slash), place.substr(slash + 1));
}

Owner OwnerOfRule(const netlink::TableId& table, absl::string_view chain, bool base,
                  const netlink::SurveyRule& rule, const RuleWords& words) {
  const Owner of_chain = base ? Owner::kBaseChain : OwnerOfChain(table, chain);
  if (of_chain == Owner::kKubelet ||
      (of_chain == Owner::kThisAgent && IsPrivateChain(table.name, chain))) {
    if (IsKubeletForm(table, chain, rule)) return of_chain;
    if (IsIpvsLoopback(words)) return Owner::kKubeProxyIpvs;
  } else if (of_chain != Owner::kBaseChain && of_chain != Owner::kUnknown) {
    return of_chain;
  }
  if (base && IsKubeletJump(table, chain, words)) return Owner::kKubelet;
  if (base && IsPrivateJump(table, chain, words)) return Owner::kThisAgent;
  for (const OwnerRow& row : kComments) {
    if (absl::StartsWith(words.comment, row.name)) return row.owner;
  }
  if (rule.jump.empty()) return Owner::kUnknown;
  const Owner of_target = OwnerOfChain(table, rule.jump);
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

}  // namespace kipt::agent
