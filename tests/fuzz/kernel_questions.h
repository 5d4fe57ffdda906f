// SPDX-License-Identifier: Apache-2.0
//
// What is asked of a kernel whose answers are fuzzed, and of the real one when the seeds are
// recorded.
#ifndef KIPT_TESTS_FUZZ_KERNEL_QUESTIONS_H_
#define KIPT_TESTS_FUZZ_KERNEL_QUESTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "agent/policy/rule_forms.h"
#include "netlink/backend.h"

namespace kipt::testing {

enum class Question : uint8_t {
  kRead,
  kSurvey,
  kNativeTable,
  kApply,
  kEvents,
  kPoll,
  kChainList,
  kRoutingRules,
};
inline constexpr size_t kQuestions = 8;

// Chains of both families, one without its rules.
inline std::vector<netlink::ChainQuery> QuestionedChains() {
  const std::string firewall(agent::kFirewallChain);
  return {
      {.chain = {netlink::Family::kIPv4, netlink::Table::kFilter, firewall}},
      {.chain = {netlink::Family::kIPv4, netlink::Table::kFilter, "INPUT"}},
      {.chain = {netlink::Family::kIPv6, netlink::Table::kNat,
                 std::string(agent::kPostroutingChain)}},
      {.chain = {netlink::Family::kIPv4, netlink::Table::kMangle, std::string(agent::kHintChain)},
       .with_rules = false}};
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FUZZ_KERNEL_QUESTIONS_H_
