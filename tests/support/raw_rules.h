// SPDX-License-Identifier: Apache-2.0
//
// The kernel's own bytes of every nf_tables rule: what no program's rendering can hide.
#ifndef KIPT_TESTS_SUPPORT_RAW_RULES_H_
#define KIPT_TESTS_SUPPORT_RAW_RULES_H_

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace kipt::testing {

struct RawRuleId {
  uint8_t family = 0;  // NFPROTO_*
  std::string table;
  std::string chain;
  uint64_t handle = 0;
  auto operator<=>(const RawRuleId&) const = default;
};

// Each rule of the calling thread's network namespace, all families, with its expressions and user
// data as the kernel dumps them. NFTA_RULE_POSITION is left out: it names the rule before, which
// changes with every insertion.
//
// Aborted: the ruleset was changed meanwhile.
absl::StatusOr<std::map<RawRuleId, std::string>> ReadRawRules();

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_RAW_RULES_H_
