// SPDX-License-Identifier: Apache-2.0
//
// File: agent/policy/native_martians.h
//
// The martian-packet rule of KUBE-FIREWALL (KEP-3178, CVE-2020-8558) in nf_tables' own words, in a
// table of our own: for kernels on which iptables can hold no rule. Drops exactly what that rule
// drops. And what a diff says of that table, and of nodes that need it.
#ifndef KIPT_AGENT_POLICY_NATIVE_MARTIANS_H_
#define KIPT_AGENT_POLICY_NATIVE_MARTIANS_H_

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "agent/policy/diff.h"
#include "netlink/transaction.h"

namespace kipt::agent {

// Of family ip. Nobody else has a reason to write to it.
inline constexpr absl::string_view kNativeTable = "kube-iptables-agent";

// Chains `input` and `output`, of two rules each.
netlink::NativeTable NativeMartians();

// Says in `diff` what becomes of the native table. `martian_rule_can_stand`: the changes of `diff`
// put the martian rule of KUBE-FIREWALL in place, or it is there.
void DiffNative(const PolicyInput& input, const Ruleset& desired, const RuleSupport& support,
                const std::optional<netlink::ObservedNativeTable>& observed,
                bool martian_rule_can_stand, Diff& diff);

// The finding of a node on which iptables can hold no rule.
void ReportSupport(const PolicyInput& input, const RuleSupport& support, Diff& diff);

// Reports and logs name the native table apart from iptables' chains.
bool IsNative(const netlink::ChainId& chain);
inline bool IsNative(const Change& change) { return netlink::IsNative(change.operation); }
inline bool IsNative(const Standing& standing) { return IsNative(standing.chain); }
template <typename Item>  // Change, Standing
std::vector<Item> WithoutNative(std::vector<Item> items) {
  std::erase_if(items, [](const Item& item) { return IsNative(item); });
  return items;
}

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_NATIVE_MARTIANS_H_
