// SPDX-License-Identifier: Apache-2.0
//
// What is asked of a kernel whose answers are fuzzed, and of the real one when the seeds are
// recorded.
#ifndef KIPT_TESTS_FUZZ_KERNEL_QUESTIONS_H_
#define KIPT_TESTS_FUZZ_KERNEL_QUESTIONS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "netlink/backend.h"
#include "netlink/transaction.h"

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
std::vector<netlink::ChainQuery> QuestionedChains();

// One operation of each kind, a native table put and one deleted.
netlink::Transaction QuestionedTransaction();

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FUZZ_KERNEL_QUESTIONS_H_
