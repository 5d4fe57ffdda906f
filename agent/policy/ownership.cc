// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/ownership.h"

#include <algorithm>
#include <string>

#include "agent/policy/policy_tables.h"

namespace kipt::agent {

bool IsClaimedByKubeProxy(const netlink::Snapshot& snapshot, netlink::Family family) {
  return std::any_of(kep3178::kKubeProxyChains.begin(), kep3178::kKubeProxyChains.end(),
                     [&](const kep3178::KubeProxyRow& row) {
                       return snapshot.Find({.family = family,
                                             .table = row.table,
                                             .name = std::string(row.chain)}) != nullptr;
                     });
}

}  // namespace kipt::agent
