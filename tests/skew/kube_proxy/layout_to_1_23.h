// SPDX-License-Identifier: Apache-2.0
//
// Service chains as they were up to 1.23. KUBE-SVC-X: all endpoints. KUBE-XLB-X, of services with
// externalTrafficPolicy Local: those on this node. KUBE-FW-X: any load balancer's address, with or
// without source ranges; what falls through it is marked for the drop by KUBE-MARK-DROP, and so is
// what KUBE-XLB-X has no endpoint for.
//
// Rules that masquerade stood in KUBE-SERVICES and KUBE-NODEPORTS, from 1.22 on in KUBE-SVC-X.
#ifndef KIPT_TESTS_SKEW_KUBE_PROXY_LAYOUT_TO_1_23_H_
#define KIPT_TESTS_SKEW_KUBE_PROXY_LAYOUT_TO_1_23_H_

#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/kube_proxy/restore_text.h"
#include "tests/skew/kube_proxy/services.h"

namespace kipt::skew {

void WriteServiceTo123(const ProxySettings& settings, const ServicePort& port, SyncTables* tables);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_KUBE_PROXY_LAYOUT_TO_1_23_H_
