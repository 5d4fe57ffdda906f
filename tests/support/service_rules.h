// SPDX-License-Identifier: Apache-2.0
//
// The rules that kube-proxy makes for a number of services, as far as they make an agent's work
// dearer: how many chains and rules stand, in which tables, and what jumps where.
#ifndef KIPT_TESTS_SUPPORT_SERVICE_RULES_H_
#define KIPT_TESTS_SUPPORT_SERVICE_RULES_H_

#include <string>

#include "absl/status/status.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::testing {

// Puts the rules of both families into the calling thread's network namespace: for each of
// `services` one rule in KUBE-SERVICES, a KUBE-SVC chain of 4 rules and 3 KUBE-SEP chains of 2, all
// in nat; of no services, nothing. With 10,000 that is 220,000 rules and 80,000 chains, which
// iptables-nft-restore would need minutes for. (MARK stands where kube-proxy has DNAT and
// statistic: the kernel checks a rule at a commit whatever its target is.) `mark_chain` is where
// those jump that are to be masqueraded; it is left empty, and made.
absl::Status LoadServices(IptablesMode mode, int services,
                          const std::string& mark_chain = "KUBE-MARK-MASQ");

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_SERVICE_RULES_H_
