// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/item.h"

#include <variant>

#include "agent/policy/chain_diff.h"

namespace kipt::agent {

Item ItemOf(const netlink::Operation& operation) {
  const netlink::ChainId& chain = netlink::ChainOf(operation);
  const auto* add = std::get_if<netlink::AddRule>(&operation);
  return {chain, add != nullptr ? RuleText(chain, add->rule) : netlink::ToString(operation)};
}

bool IsAddition(const Change& change) {
  return std::holds_alternative<netlink::AddRule>(change.operation) ||
         std::holds_alternative<netlink::CreateChain>(change.operation) ||
         std::holds_alternative<netlink::WakeTable>(change.operation);
}

}  // namespace kipt::agent
