// SPDX-License-Identifier: Apache-2.0
//
// File: agent/policy/native_diff.h
//
// The native table's part of a diff. Not installed: diff.h is the promise.
#ifndef KIPT_AGENT_POLICY_NATIVE_DIFF_H_
#define KIPT_AGENT_POLICY_NATIVE_DIFF_H_

#include <optional>

#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "netlink/native_table.h"

namespace kipt::agent {

// Says in `diff` what becomes of the native table. `martian_rule_can_stand`: the changes of `diff`
// put the martian rule of KUBE-FIREWALL in place, or it is there.
void DiffNative(const Ruleset& desired, const std::optional<netlink::ObservedNativeTable>& observed,
                bool martian_rule_can_stand, Diff& diff);

// The finding of a node on which iptables can hold no rule.
void ReportSupport(const Ruleset& desired, Diff& diff);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_NATIVE_DIFF_H_
