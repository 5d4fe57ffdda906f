// SPDX-License-Identifier: Apache-2.0
//
// What a rule that leads to a chain is for: a table of purposes, and which of them a rule has.
#ifndef KIPT_AGENT_AUDIT_RULE_PURPOSE_H_
#define KIPT_AGENT_AUDIT_RULE_PURPOSE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "agent/audit/rule_words.h"
#include "agent/policy/known_owners.h"

namespace kipt::agent {

struct PurposeRow {
  absl::string_view id;
  absl::string_view title;   // "%s" is RulePurpose::parameter
  absl::string_view reason;  // may be empty
};
struct RulePurpose {
  // Never null. Of one table: explanations have its order.
  const PurposeRow* row;
  // What groups of one purpose differ in: the pod range, the interface, the chain of the rules.
  std::string parameter = {};
};

// Of a rule in `chain` with the words `words` that leads to `target`, as TABLE/CHAIN. `owner` is
// the rule's.
RulePurpose PurposeOf(absl::string_view target, absl::string_view chain, bool base, Owner owner,
                      absl::string_view comment, const RuleWords& words);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_RULE_PURPOSE_H_
