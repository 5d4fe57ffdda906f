// SPDX-License-Identifier: Apache-2.0
//
// File: tests/soak/golden.h
//
// What iptables-save would print on a node to which nothing has ever happened, and how what it
// prints differs from that and the ledger.
#ifndef KIPT_TESTS_SOAK_GOLDEN_H_
#define KIPT_TESTS_SOAK_GOLDEN_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/soak/ledger.h"
#include "tests/soak/node.h"

namespace kipt::soak {

// Rules, and chains with their policies, in their order: without counters, and without what a table
// has that nobody has written to.
using Lines = std::vector<std::string>;
using Rules = std::map<TableId, Lines>;

// Of the calling thread's network namespace.
absl::StatusOr<Rules> SavedRules(testing::IptablesMode mode);

class Golden {
 public:
  explicit Golden(const Node& node) : node_(node) {}

  // For what is wanted of the node now; nobody may change that meanwhile. Made in a namespace of
  // its own by the same program, the same kube-proxy and the same users; remembered.
  absl::StatusOr<Rules> Get();

 private:
  absl::StatusOr<Rules> Make() const;

  const Node& node_;
  std::map<std::string, Rules> known_;
};

// One line for each difference between what was `seen` and what `golden` and `ledger` say, few in
// all: missing, there more often, somebody else's, out of order. Empty: none.
Lines DifferencesOf(const Rules& seen, const Rules& golden, const Ledger& ledger);

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_GOLDEN_H_
