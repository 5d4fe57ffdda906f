// SPDX-License-Identifier: Apache-2.0
//
// What each sync writes, whatever the services are. All of these chains are emptied by it: what
// others put there is gone.
#ifndef KIPT_TESTS_SKEW_KUBE_PROXY_NODE_RULES_H_
#define KIPT_TESTS_SKEW_KUBE_PROXY_NODE_RULES_H_

#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/kube_proxy/restore_text.h"

namespace kipt::skew {

// nat KUBE-POSTROUTING and KUBE-MARK-MASQ, with their lines; both modes have them.
void WriteMasquerade(const ProxySettings& settings, TableText* nat);

// filter KUBE-FORWARD lets masqueraded traffic, and what belongs to known connections, through.
void WriteForwardAccepts(const ProxySettings& settings, TableText* filter);

// Before the services: the chains, the masquerade, and the martian rule where there is one.
void BeginSync(const ProxySettings& settings, SyncTables* tables);
// After them: the way from KUBE-SERVICES to the node ports, and KUBE-FORWARD.
void EndSync(const ProxySettings& settings, SyncTables* tables);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_KUBE_PROXY_NODE_RULES_H_
