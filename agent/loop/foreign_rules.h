// SPDX-License-Identifier: Apache-2.0
//
// Which rules of other programs in the base chains that are read anyway drop, reject or redirect
// packets, or set the whole mark, and which of them are new. Memory, and time beyond one pass over
// the rules, are bounded, whatever other programs write.
#ifndef KIPT_AGENT_LOOP_FOREIGN_RULES_H_
#define KIPT_AGENT_LOOP_FOREIGN_RULES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "agent/loop/incident.h"
#include "agent/policy/expected_rules.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// Nothing: `rule`, in the base chain `chain`, is of none of these kinds.
std::optional<ForeignRuleKind> ForeignKindOf(const netlink::ChainId& chain,
                                             const netlink::ObservedRule& rule);

class ForeignRules {
 public:
  // Rules of a chain that are distinguished. More are only counted.
  static constexpr size_t kMostKnown = 128;

  explicit ForeignRules(std::vector<ExpectedRule> expected) : expected_(std::move(expected)) {}

  // What a check of `families` has read; at the first of a family nothing is new. `same_handles`:
  // whether a handle of the last check denotes the same rule, as nf_tables' do until their table
  // is made anew.
  void Note(const netlink::Snapshot& observed, absl::Span<const netlink::Family> families,
            absl::FunctionRef<bool(netlink::Family)> same_handles);

  // Found new since the last Take, and how many of each kind, with those that are only counted.
  const std::vector<ForeignRule>& news() const { return news_; }
  const ForeignRuleCounts& counts() const { return counts_; }
  void Take();

  // That the last checks found.
  uint64_t present() const;

 private:
  struct Chain {
    std::map<netlink::RuleHandle, ForeignRule> known = {};
    std::set<netlink::RuleHandle> expected = {};
    std::map<ForeignRuleKind, uint64_t> others = {};
  };

  Chain Next(const netlink::ChainId& id, const std::vector<netlink::ObservedRule>& rules,
             Chain before, bool same_handles, bool first);
  void ForgetAbsent();

  std::vector<ExpectedRule> expected_;
  std::set<netlink::Family> checked_;
  std::map<netlink::ChainId, Chain> chains_;
  // Rules that were there, so that one that is made again is not new.
  std::set<ForeignRule> remembered_;
  std::vector<ForeignRule> news_;
  ForeignRuleCounts counts_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_FOREIGN_RULES_H_
