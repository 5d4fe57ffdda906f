// SPDX-License-Identifier: Apache-2.0
//
// The chains of a service, as two generations of kube-proxy lay them out.
#ifndef KIPT_TESTS_SKEW_KUBE_PROXY_LAYOUTS_H_
#define KIPT_TESTS_SKEW_KUBE_PROXY_LAYOUTS_H_

#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/kube_proxy/rule_parts.h"
#include "tests/skew/kube_proxy/services.h"

namespace kipt::skew {

void WriteServiceTo123(const ProxySettings& settings, const ServicePort& port, SyncTables* tables);

// Service chains since 1.24. KUBE-SVC-X: all endpoints. KUBE-SVL-X: those on this node, for either
// traffic policy Local. KUBE-EXT-X: whatever comes to an address or port that is not the cluster's.
// KUBE-FW-X: a load balancer's addresses, where it has source ranges.
//
// 1.24 still marks for the drop by KUBE-MARK-DROP. Since 1.25 kube-proxy drops by itself, in the
// filter table, and gives no chain to what it drops.

enum class ServicePart {
  // The rules in the chains of all services, which each sync writes anew, and its own chains.
  kWhole,
  // Not its own chains.
  kCommonChains,
};

void WriteServiceFrom124(const ProxySettings& settings, const ServicePort& port, ServicePart part,
                         SyncTables* tables);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_KUBE_PROXY_LAYOUTS_H_
