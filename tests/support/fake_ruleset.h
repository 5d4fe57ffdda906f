// SPDX-License-Identifier: Apache-2.0
//
// The rulesets of a kernel in memory, and what nf_tables does to them: FakeBackend is their door.
#ifndef KIPT_TESTS_SUPPORT_FAKE_RULESET_H_
#define KIPT_TESTS_SUPPORT_FAKE_RULESET_H_

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::testing {

// `table` in the kernel; `altered` and `counters` as in ObservedNativeTable.
struct HeldNativeTable {
  netlink::NativeTable table;
  bool altered = false;
  netlink::RuleCounters counters = {};
};

struct FakeRuleset {
  // Everything, rules of all chains included.
  netlink::Snapshot snapshot{.generation = 1, .chains = {}};
  std::map<std::pair<netlink::Family, std::string>, HeldNativeTable> native;
  netlink::RuleHandle next_handle = 1;
  // Whether the kernel has xtables' matches and targets.
  bool has_xt = true;
  // Of those that it has: which it lacks all the same ("connlabel").
  std::set<std::string> missing_extensions;
};

// ObservedRule::xt, as nf_tables has it.
bool IsXt(const netlink::ObservedRule& rule);

// Applies all of it to `ruleset`, which is a copy: on an error it is half done. The generation
// moves when something changed.
//
// Errors as Backend::Apply has them.
absl::Status ApplyTransaction(const netlink::Transaction& transaction, FakeRuleset& ruleset);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_FAKE_RULESET_H_
