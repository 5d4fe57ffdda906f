// SPDX-License-Identifier: Apache-2.0
//
// How one jump of ours in a base chain gets from the observed to the desired state. Not installed:
// diff.h is the promise.
#ifndef KIPT_AGENT_POLICY_JUMP_DIFF_H_
#define KIPT_AGENT_POLICY_JUMP_DIFF_H_

#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "netlink/reach.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// Appends to `diff`, which has the changes of all chains of ours, the changes, existing rules and
// findings of a jump. `walk` is through `snapshot`.
void DiffJump(const DesiredJump& desired, const netlink::Snapshot& snapshot, netlink::Walk& walk,
              Diff& diff);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_JUMP_DIFF_H_
