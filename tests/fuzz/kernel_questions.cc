// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/kernel_questions.h"

#include <string>

#include "agent/policy/rule_forms.h"
#include "netlink/ruleset.h"

namespace kipt::testing {

using netlink::ChainId;
using netlink::Family;
using netlink::Table;

std::vector<netlink::ChainQuery> QuestionedChains() {
  const std::string firewall(agent::kFirewallChain);
  return {{.chain = {Family::kIPv4, Table::kFilter, firewall}},
          {.chain = {Family::kIPv4, Table::kFilter, "INPUT"}},
          {.chain = {Family::kIPv6, Table::kNat, std::string(agent::kPostroutingChain)}},
          {.chain = {Family::kIPv4, Table::kMangle, std::string(agent::kHintChain)},
           .with_rules = false}};
}

netlink::Transaction QuestionedTransaction() {
  const ChainId chain{Family::kIPv4, Table::kFilter, std::string(agent::kFirewallChain)};
  const ChainId nat{Family::kIPv4, Table::kNat, std::string(agent::kPostroutingChain)};
  return {
      .generation = 1,
      .operations = {
          netlink::PutNativeTable{agent::NativeMartians()}, netlink::CreateChain{chain},
          netlink::AddRule{.chain = chain, .rule = agent::DropMartians(0)},
          netlink::AddRule{.chain = nat, .rule = agent::MasqueradeAll(14)},
          netlink::AddRule{
              .chain = chain, .rule = {.target = netlink::Jump{"GONE"}}, .before = 7, .number = 1},
          netlink::DeleteRule{.chain = chain, .handle = 9, .number = 1, .rule = agent::SetBit(14)},
          netlink::DeleteChain{nat},
          netlink::DeleteNativeTable{.family = Family::kIPv6, .name = "of another day"}}};
}

}  // namespace kipt::testing
