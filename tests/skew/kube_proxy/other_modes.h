// SPDX-License-Identifier: Apache-2.0
//
// What kube-proxy's IPVS mode has in iptables. Written from Kubernetes' sources, not captured. The
// IP sets that the rules name stay empty, and there are no virtual servers: these rulesets are
// there for what they do to kubelet's chains, they serve nothing.
#ifndef KIPT_TESTS_SKEW_KUBE_PROXY_OTHER_MODES_H_
#define KIPT_TESTS_SKEW_KUBE_PROXY_OTHER_MODES_H_

#include <string>
#include <vector>

#include "tests/skew/kube_proxy/proxy_rules.h"

namespace kipt::skew {

std::vector<ProxyJump> IpvsJumps(const ProxySettings& settings);
// For `ipset -exist restore`, before any sync: the sets that the rules name, without which no rule
// of their tables can be restored.
std::string IpvsSets(const ProxySettings& settings);
// For `iptables-restore --noflush`. kube-proxy leaves rules out whose set is empty; here they all
// stand. Up to 1.24 rules jump to nat KUBE-MARK-DROP. From 1.20 on the chain is ensured before
// (Trait::kIpvsEmptiesMarkDrop); older ones write it as one of their own, which empties what
// kubelet put there.
std::string IpvsSync(const ProxySettings& settings);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_KUBE_PROXY_OTHER_MODES_H_
