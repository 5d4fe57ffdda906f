// SPDX-License-Identifier: Apache-2.0
//
// The rules that kube-proxy makes for a number of services, as far as they make an agent's work
// dearer: how many chains and rules exist, in which tables, and what jumps where.
#ifndef KIPT_TESTS_SUPPORT_SERVICE_RULES_H_
#define KIPT_TESTS_SUPPORT_SERVICE_RULES_H_

#include <string>

#include "absl/status/status.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::testing {

// Puts the rules of both families into the calling thread's network namespace. Each of `services`
// gets one rule in KUBE-SERVICES, a KUBE-SVC chain of 4 rules and 3 KUBE-SEP chains of 2, all in
// nat. With 10,000 that is 220,000 rules and 80,000 chains, for which iptables-nft-restore would
// need minutes. (MARK replaces kube-proxy's DNAT and statistic: at a commit the kernel checks rules
// of any target.) Packets to be masqueraded jump to `mark_chain`, which is made and left empty.
absl::Status LoadServices(IptablesMode mode, int services,
                          const std::string& mark_chain = "KUBE-MARK-MASQ");

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_SERVICE_RULES_H_
