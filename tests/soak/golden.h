// SPDX-License-Identifier: Apache-2.0
//
// What iptables-save would print on a node to which nothing has ever happened, and how what it
// prints differs from that and the ledger.
#ifndef KIPT_TESTS_SOAK_GOLDEN_H_
#define KIPT_TESTS_SOAK_GOLDEN_H_

#include <map>
#include <optional>
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

// Adds what iptables-save has printed.
void AddSaved(const std::string& saved, testing::IpFamily family, Rules& rules);
// Of the calling thread's network namespace.
absl::StatusOr<Rules> SavedRules(testing::IptablesMode mode);

// All that the rules depend on.
struct Scene {
  AgentSettings settings = {};
  std::optional<skew::Version> proxy = {};
  int services = 0;
  UserSet users = {};
  std::string Text() const;
};

// What exists on a node of this scene to which nothing has happened. Made in a new network
// namespace by kubelet's own commands, kube-proxy and the users, never by the agent; where the
// agent differs from kubelet on purpose, golden.cc has a row for it.
absl::StatusOr<Rules> GoldenRules(const Scene& scene, testing::IptablesMode mode);

class Golden {
 public:
  explicit Golden(const Node& node) : node_(node) {}

  // For what is desired of the node now; nobody may change that meanwhile. Remembered.
  absl::StatusOr<Rules> Get();

 private:
  const Node& node_;
  std::map<std::string, Rules> known_;
};

// One line for each difference between what was `seen` and what `golden` and `ledger` say, few in
// all: missing, there more often, somebody else's, out of order. Empty: none.
Lines DifferencesOf(const Rules& seen, const Rules& golden, const Ledger& ledger);

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_GOLDEN_H_
