// SPDX-License-Identifier: Apache-2.0
//
// What is wanted, and what stands, without a kernel.
#ifndef KIPT_TESTS_BENCH_MICRO_RULESETS_H_
#define KIPT_TESTS_BENCH_MICRO_RULESETS_H_

#include "agent/policy/policy.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::testing {

// Everything of kubelet's, in both families.
agent::PolicyInput WantedInput();
// What makes it where nothing stands.
netlink::Transaction ColdTransaction();
// Both families afterwards, beside kube-proxy's rules for `services` services.
netlink::Snapshot StandingRuleset(int services);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_MICRO_RULESETS_H_
