// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/kube_proxy_chains.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "agent/policy/policy_tables.h"

namespace kipt::agent {
namespace {

using netlink::Table;

struct NamedRow {
  Table table;
  absl::string_view name;
};

constexpr NamedRow kNamed[] = {
    // both modes
    {Table::kNat, "KUBE-SERVICES"},
    {Table::kMangle, "KUBE-PROXY-CANARY"},
    {Table::kNat, "KUBE-PROXY-CANARY"},
    {Table::kFilter, "KUBE-PROXY-CANARY"},
    {Table::kFilter, "KUBE-FORWARD"},
    {Table::kFilter, "KUBE-PROXY-FIREWALL"},  // 1.25
    // iptables mode
    {Table::kNat, "KUBE-NODEPORTS"},
    {Table::kFilter, "KUBE-SERVICES"},
    {Table::kFilter, "KUBE-EXTERNAL-SERVICES"},
    {Table::kFilter, "KUBE-NODEPORTS"},  // 1.21
    // IPVS mode
    {Table::kNat, "KUBE-FIREWALL"},  // to 1.24
    {Table::kNat, "KUBE-LOAD-BALANCER"},
    {Table::kNat, "KUBE-NODE-PORT"},
    {Table::kFilter, "KUBE-NODE-PORT"},               // 1.21
    {Table::kFilter, "KUBE-SOURCE-RANGES-FIREWALL"},  // 1.25
    {Table::kFilter, "KUBE-IPVS-FILTER"},             // 1.26
    {Table::kFilter, "KUBE-IPVS-OUT-FILTER"},         // 1.29
};

// Of one service or endpoint each, all in nat: KUBE-XLB- to 1.23, KUBE-EXT- and KUBE-SVL- since.
constexpr absl::string_view kPrefixes[] = {"KUBE-SVC-", "KUBE-SEP-", "KUBE-FW-",
                                           "KUBE-XLB-", "KUBE-EXT-", "KUBE-SVL-"};

}  // namespace

bool IsKubeProxyChain(const netlink::ChainId& chain) {
  const bool named = std::any_of(std::begin(kNamed), std::end(kNamed), [&](const NamedRow& row) {
    return row.table == chain.table && row.name == chain.name;
  });
  return named ||
         (chain.table == Table::kNat &&
          std::any_of(std::begin(kPrefixes), std::end(kPrefixes), [&](absl::string_view prefix) {
            return absl::StartsWith(chain.name, prefix);
          }));
}

bool IsClaimedByKubeProxy(const netlink::Snapshot& snapshot, netlink::Family family) {
  return std::any_of(kep3178::kKubeProxyChains.begin(), kep3178::kKubeProxyChains.end(),
                     [&](const kep3178::KubeProxyRow& row) {
                       return snapshot.Find({.family = family,
                                             .table = row.table,
                                             .name = std::string(row.chain)}) != nullptr;
                     });
}

}  // namespace kipt::agent
