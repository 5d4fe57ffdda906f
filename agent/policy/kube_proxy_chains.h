// SPDX-License-Identifier: Apache-2.0
//
// File: agent/policy/kube_proxy_chains.h
//
// The chains that kube-proxy alone makes, by their names: iptables mode from 1.17 on, and IPVS
// mode. And whether it uses those of kubelet's. Pure.
#ifndef KIPT_AGENT_POLICY_KUBE_PROXY_CHAINS_H_
#define KIPT_AGENT_POLICY_KUBE_PROXY_CHAINS_H_

#include "netlink/ruleset.h"

namespace kipt::agent {

// Not those that it shares with kubelet. IPVS mode up to 1.24 has a KUBE-FIREWALL of its own in
// table nat, which has nothing to do with kubelet's in filter.
bool IsKubeProxyChain(const netlink::ChainId& chain);

// kube-proxy lives, or lived until this boot, in `family`: it keeps KUBE-MARK-MASQ,
// KUBE-POSTROUTING and (since 1.27) KUBE-FIREWALL as its own.
bool IsClaimedByKubeProxy(const netlink::Snapshot& snapshot, netlink::Family family);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_KUBE_PROXY_CHAINS_H_
