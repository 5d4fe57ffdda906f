// SPDX-License-Identifier: Apache-2.0
//
// File: agent/policy/chain_diff.h
//
// How one chain of ours, or one jump of ours in a base chain, comes from what stands to what must
// stand. Not installed: diff.h is the promise.
#ifndef KIPT_AGENT_POLICY_CHAIN_DIFF_H_
#define KIPT_AGENT_POLICY_CHAIN_DIFF_H_

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "netlink/reach.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::agent {

// The places of a chain's rules while operations are planned one after another: each operation
// names the number that its rule has by then.
class RuleNumbers {
 public:
  explicit RuleNumbers(const std::vector<netlink::ObservedRule>& rules) {
    for (const netlink::ObservedRule& rule : rules) handles_.emplace_back(rule.handle);
  }

  netlink::AddRule InsertBefore(const netlink::ChainId& chain, const netlink::Rule& rule,
                                netlink::RuleHandle before) {
    const auto at = std::find(handles_.begin(), handles_.end(), before);
    const int number = static_cast<int>(at - handles_.begin()) + 1;
    handles_.insert(at, std::nullopt);
    return {.chain = chain, .rule = rule, .before = before, .number = number};
  }

  netlink::AddRule Append(const netlink::ChainId& chain, const netlink::Rule& rule) {
    return {.chain = chain, .rule = rule, .before = std::nullopt, .number = 0};
  }

  netlink::DeleteRule Delete(const netlink::ChainId& chain, const netlink::ObservedRule& rule) {
    const auto at = std::find(handles_.begin(), handles_.end(), rule.handle);
    const int number = static_cast<int>(at - handles_.begin()) + 1;
    handles_.erase(at);
    return {.chain = chain, .handle = rule.handle, .number = number, .rule = *rule.rule()};
  }

 private:
  std::vector<std::optional<netlink::RuleHandle>> handles_;  // none: a rule that we add
};

// Appends to `diff` the changes, standing and stale rules and findings of a chain of ours that
// exists. `claimed`: kube-proxy uses the chains that it shares with kubelet.
void DiffExistingChain(const DesiredChain& desired, const netlink::ObservedChain& observed,
                       const PolicyInput& input, bool claimed, Diff& diff);

// The same for a chain of ours that does not exist.
void DiffMissingChain(const DesiredChain& desired, Diff& diff);

// The same for a jump; `walk` is through `snapshot`.
void DiffJump(const DesiredJump& desired, const netlink::Snapshot& snapshot, netlink::Walk& walk,
              Diff& diff);

// Why what stands of `chain`, which is kubelet's, or leads to it, is stale. `shared`: kube-proxy
// writes it too.
std::string WhyStale(const PolicyInput& input, const netlink::ChainId& chain, bool shared,
                     bool claimed);

// ":KUBE-FIREWALL - [0:0]" and "-A KUBE-FIREWALL ...", as iptables-save prints them.
std::string ChainText(const netlink::ChainId& chain);
std::string RuleText(const netlink::ChainId& chain, const netlink::ObservedRule& rule);
std::string RuleText(const netlink::ChainId& chain, const netlink::Rule& rule);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_CHAIN_DIFF_H_
