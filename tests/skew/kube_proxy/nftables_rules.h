// SPDX-License-Identifier: Apache-2.0
//
// What kube-proxy's nftables mode gives to `nft -f`: its own table `kube-proxy` in each family. It
// is compared with captures of 1.31 to 1.36 (tests/skew/kube_proxy/testdata/README.md).
#ifndef KIPT_TESTS_SKEW_KUBE_PROXY_NFTABLES_RULES_H_
#define KIPT_TESTS_SKEW_KUBE_PROXY_NFTABLES_RULES_H_

#include <string>
#include <vector>

#include "tests/skew/kube_proxy/proxy_rules.h"

namespace kipt::skew {

// The whole table, services of the other family left out. What an older version's mode left there
// and this one does not name stays. Not modelled: 1.29 and 1.30 (they write as 1.31), and elements
// of services that were removed while no kube-proxy ran.
std::string NftablesSync(const ProxySettings& settings, const std::vector<ServicePort>& services);
// Chains of ports that differ from `synced`; their elements as far as these differ. Chains that are
// no longer needed are emptied.
std::string NftablesPartialSync(const ProxySettings& settings,
                                const std::vector<ServicePort>& services,
                                const std::vector<ServicePort>& synced);
// What the start of another mode runs.
std::string NftablesRemoval(testing::IpFamily family);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_KUBE_PROXY_NFTABLES_RULES_H_
