// SPDX-License-Identifier: Apache-2.0
//
// File: agent/policy/ownership.h
//
// Who else uses kubelet's chains. Pure.
#ifndef KIPT_AGENT_POLICY_OWNERSHIP_H_
#define KIPT_AGENT_POLICY_OWNERSHIP_H_

#include "netlink/ruleset.h"

namespace kipt::agent {

// kube-proxy lives, or lived until this boot, in `family`: it keeps KUBE-MARK-MASQ,
// KUBE-POSTROUTING and (since 1.27) KUBE-FIREWALL as its own.
bool IsClaimedByKubeProxy(const netlink::Snapshot& snapshot, netlink::Family family);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_OWNERSHIP_H_
