// SPDX-License-Identifier: Apache-2.0
//
// What a check finds, for the tests of Damping.
#ifndef KIPT_TESTS_AGENT_LOOP_DAMPING_PLANS_H_
#define KIPT_TESTS_AGENT_LOOP_DAMPING_PLANS_H_

#include <utility>
#include <vector>

#include "agent/loop/damping.h"
#include "agent/policy/rule_forms.h"
#include "tests/support/observed.h"

namespace kipt::agent {

const SteadyTime kStart = SteadyTime() + absl::Seconds(1000);
constexpr absl::Duration kSyncPeriod = absl::Minutes(1);

inline Change Add(netlink::ChainId chain, netlink::Rule rule) {
  return {netlink::AddRule{.chain = std::move(chain), .rule = std::move(rule)}, "why"};
}
inline Change Create(netlink::ChainId chain) {
  return {netlink::CreateChain{std::move(chain)}, "why"};
}
inline Change InputJump() { return Add(Filter("INPUT"), JumpTo("KUBE-FIREWALL")); }
inline Change DropMark() { return Add(Filter("KUBE-FIREWALL"), DropMarked(15)); }

inline Plan Wants(std::vector<Change> changes) {
  Plan plan;
  plan.families.assign(netlink::kFamilies.begin(), netlink::kFamilies.end());
  plan.diff.changes = std::move(changes);
  return plan;
}

inline std::vector<Change> Allow(Damping& damping, const Plan& plan, SteadyTime now) {
  return damping.Allow(plan, now);
}

}  // namespace kipt::agent

#endif  // KIPT_TESTS_AGENT_LOOP_DAMPING_PLANS_H_
