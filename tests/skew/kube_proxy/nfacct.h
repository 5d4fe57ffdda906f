// SPDX-License-Identifier: Apache-2.0
//
// The kernel's counters that kube-proxy's rules name from 1.31 on. It makes them over netlink
// before each full sync. A rule that names a counter which does not exist is refused, and with it
// its whole table. The same happens where the kernel has the counters and not the match (kubernetes
// #142068): then every sync fails.
#ifndef KIPT_TESTS_SKEW_KUBE_PROXY_NFACCT_H_
#define KIPT_TESTS_SKEW_KUBE_PROXY_NFACCT_H_

#include <string>

#include "tests/skew/kube_proxy/proxy_rules.h"

namespace kipt::skew {

inline constexpr char kDroppedInvalid[] = "ct_state_invalid_dropped_pkts";
inline constexpr char kAcceptedLocalhost[] = "localhost_nps_accepted_pkts";

// The match of a rule, or nothing: of older versions, and without counters.
std::string Counted(const ProxySettings& settings, const char* counter);

// Makes both, where they are not, in the calling thread's network namespace. False: the kernel
// (nfnetlink_acct) does not have them.
bool EnsureCounters();

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_KUBE_PROXY_NFACCT_H_
