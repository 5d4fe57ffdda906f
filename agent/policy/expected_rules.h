// SPDX-License-Identifier: Apache-2.0
//
// The rules of other programs that an administrator expects (--expected-rules), one a line:
//
//   filter/KUBELET-FIREWALL                      every rule of the chain, as EKS lists them
//   filter/INPUT -s 10.0.0.0/8 -j DROP           this rule, as the log spells it
//   ip6 filter/INPUT -p tcp -m tcp --dport 23*   of one family, and all that begin so
//   # a comment
#ifndef KIPT_AGENT_POLICY_EXPECTED_RULES_H_
#define KIPT_AGENT_POLICY_EXPECTED_RULES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// --foreign-rules: whether new rules of other programs are reported. kAuto: where their writers are
// known, on nf_tables.
enum class ForeignRulesPolicy : uint8_t { kAuto, kReport, kIgnore };
absl::string_view ForeignRulesPolicyName(ForeignRulesPolicy policy);  // "auto", ...

struct ExpectedRule {
  std::optional<netlink::Family> family = {};  // nothing: both
  std::string table = {};
  std::string chain = {};
  std::string text = {};  // empty: every rule of the chain
  bool prefix = false;    // the rule only begins with `text`

  // Whether rules of `id` are concerned, and those of this text.
  bool CoversChain(const netlink::ChainId& id) const;
  bool Covers(const netlink::ChainId& id, absl::string_view rule) const;
  bool operator==(const ExpectedRule&) const = default;
};

// InvalidArgument, with the line: no TABLE/CHAIN, a table that iptables does not have, or more than
// 1,000 entries.
absl::StatusOr<std::vector<ExpectedRule>> ParseExpectedRules(absl::string_view text);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_EXPECTED_RULES_H_
