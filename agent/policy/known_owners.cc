// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/known_owners.h"

#include <cstddef>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "agent/policy/ownership.h"

namespace kipt::agent {
namespace {

// In the order of the enumeration.
constexpr absl::string_view kNames[] = {"unknown",
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
                                        "NodeLocal DNS",
                                        "Tailscale",
                                        "netavark (Podman)",
                                        "the Amazon VPC CNI",
                                        "Azure NPM",
                                        "OVN-Kubernetes",
                                        "Istio",
                                        "RKE2",
                                        "libvirt",
                                        "ufw",
                                        "wg-quick",
                                        "kube-ovn"};
static_assert(std::size(kNames) == static_cast<size_t>(Owner::kKubeOvn) + 1);

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
    {"", "ts-*", Owner::kTailscale},
    {"", "NETAVARK*", Owner::kNetavark},
    {"", "AWS-*", Owner::kAwsVpcCni},
    {"", "AZURE-NPM*", Owner::kAzureNpm},
    {"", "OVN-KUBE-*", Owner::kOvnKubernetes},
    {"", "OVN-PREROUTING", Owner::kKubeOvn},
    {"", "OVN-POSTROUTING", Owner::kKubeOvn},
    {"", "OVN-OUTPUT", Owner::kKubeOvn},
    {"", "OVN-MASQUERADE", Owner::kKubeOvn},
    {"", "OVN-NAT-*", Owner::kKubeOvn},
    {"", "ISTIO_*", Owner::kIstio},
    {"", "RKE2-*", Owner::kRke2},
    {"", "LIBVIRT_*", Owner::kLibvirt},
    {"", "ufw-*", Owner::kUfw},
    {"", "ufw6-*", Owner::kUfw},
    // Up to 0.9, and since 1.0, which also has policies.
    {"", "IN_*", Owner::kFirewalld},
    {"", "FWDI_*", Owner::kFirewalld},
    {"", "FWDO_*", Owner::kFirewalld},
    {"", "FWD_*", Owner::kFirewalld},
    {"", "PRE_*", Owner::kFirewalld},
    {"", "POST_*", Owner::kFirewalld},
    {"", "INPUT_ZONES*", Owner::kFirewalld},
    {"", "FORWARD_ZONES*", Owner::kFirewalld},
    {"", "PREROUTING_ZONES*", Owner::kFirewalld},
    {"", "POSTROUTING_ZONES*", Owner::kFirewalld},
    {"", "INPUT_POLICIES*", Owner::kFirewalld},
    {"", "FORWARD_POLICIES*", Owner::kFirewalld},
    {"", "OUTPUT_POLICIES*", Owner::kFirewalld},
    {"", "PREROUTING_POLICIES*", Owner::kFirewalld},
    {"", "POSTROUTING_POLICIES*", Owner::kFirewalld},
    {"", "INPUT_direct", Owner::kFirewalld},
    {"", "FORWARD_direct", Owner::kFirewalld},
    {"", "OUTPUT_direct", Owner::kFirewalld},
    {"", "PREROUTING_direct", Owner::kFirewalld},
    {"", "POSTROUTING_direct", Owner::kFirewalld},
};

struct TableRow {
  absl::string_view name;
  Owner owner;
};
// Tables of nft that are one program's, with their base chains. As above.
constexpr TableRow kTables[] = {
    {"kube-proxy", Owner::kKubeProxyNftables},
    {"k8s_svc", Owner::kKpng},
    {"k8s_svc6", Owner::kKpng},
    {"kube-iptables-agent", Owner::kThisAgent},
    {"cni_hostport", Owner::kPortmap},
    {"calico", Owner::kCalico},
    {"firewalld", Owner::kFirewalld},
    {"docker-bridges", Owner::kDocker},
    {"kube-router-filter-*", Owner::kKubeRouter},
    {"netavark", Owner::kNetavark},
    {"ovn-kubernetes", Owner::kOvnKubernetes},
    {"kube-ovn", Owner::kKubeOvn},
    {"istio-*", Owner::kIstio},
    {"libvirt_network", Owner::kLibvirt},
    {"wg-quick-*", Owner::kWgQuick},
};

// The first byte decides nearly always: an audit asks for each rule of a node.
bool NameMatches(absl::string_view pattern, absl::string_view name) {
  if (name.empty() || pattern.front() != name.front()) return false;
  if (pattern.back() != '*') return pattern == name;
  return absl::StartsWith(name, pattern.substr(0, pattern.size() - 1));
}

}  // namespace

absl::string_view OwnerName(Owner owner) { return kNames[static_cast<size_t>(owner)]; }

bool IsKubernetes(Owner owner) {
  return owner == Owner::kKubelet || owner == Owner::kKubeProxy || owner == Owner::kKubeProxyIpvs ||
         owner == Owner::kKubeProxyNftables;
}

bool IsKubeletsOrOurs(Owner owner) {
  return owner == Owner::kKubelet || owner == Owner::kThisAgent;
}

Owner OwnerOfChain(const netlink::TableId& table, absl::string_view chain, bool base) {
  for (const TableRow& row : kTables) {
    if (NameMatches(row.name, table.name)) return row.owner;
  }
  if (base) return Owner::kBaseChain;
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

absl::string_view ChainGroup(absl::string_view chain) {
  constexpr absl::string_view kGroups[] = {
      "KUBE-SVC-*",    "KUBE-SVL-*",      "KUBE-SEP-*", "KUBE-FW-*", "KUBE-XLB-*",
      "KUBE-EXT-*",    "KUBE-POD-FW-*",   "KUBE-HP-*",  "CNI-DN-*",  "CNI-SN-*",
      "KUBE-NWPLCY-*", "CRIO-HOSTPORT-*", "cali-fw-*",  "cali-tw-*", "NETAVARK-DN-*"};
  for (const absl::string_view group : kGroups) {
    if (NameMatches(group, chain)) return group;
  }
  return chain;
}

}  // namespace kipt::agent
