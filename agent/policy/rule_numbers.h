// SPDX-License-Identifier: Apache-2.0
//
// File: agent/policy/rule_numbers.h
//
// The place of each rule in its chain while operations are planned one after another. Not
// installed.
#ifndef KIPT_AGENT_POLICY_RULE_NUMBERS_H_
#define KIPT_AGENT_POLICY_RULE_NUMBERS_H_

#include <algorithm>
#include <optional>
#include <vector>

#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::agent {

// The rules of one chain while operations are planned, so that each operation knows the number its
// rule has by then.
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

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_RULE_NUMBERS_H_
