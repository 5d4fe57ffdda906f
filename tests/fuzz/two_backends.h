// SPDX-License-Identifier: Apache-2.0
//
// nf_tables by netlink and legacy iptables by its programs, in one network namespace: what is done
// through one is done through the other, and then four parties say what stands. They must agree:
// the model, both backends' own reading, iptables-nft-save and iptables-legacy-save.
#ifndef KIPT_TESTS_FUZZ_TWO_BACKENDS_H_
#define KIPT_TESTS_FUZZ_TWO_BACKENDS_H_

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/process/command.h"
#include "netlink/backend.h"
#include "tests/fuzz/random_rules.h"

namespace kipt::testing {

// One change, in terms that hold for both: places in a chain as the transaction found it.
struct MakeChain {
  netlink::ChainId chain;
};
struct PutRule {
  netlink::ChainId chain;
  netlink::Rule rule;
  // Before the rule that stood there, from 0; without one at the end.
  std::optional<size_t> before = {};
};
struct TakeRule {
  netlink::ChainId chain;
  size_t place = 0;
};
struct RemoveChain {
  netlink::ChainId chain;
};
using Edit = std::variant<MakeChain, PutRule, TakeRule, RemoveChain>;

class TwoBackends {
 public:
  // In the calling thread's network namespace, which must be the test's own: it is emptied, both
  // ways. The lock of legacy iptables is a file of its own.
  static absl::StatusOr<std::unique_ptr<TwoBackends>> Open();
  ~TwoBackends();

  // Empties both.
  absl::Status Flush();

  // One transaction through each; `model` follows. The error of the first that refuses.
  absl::Status Apply(const std::vector<Edit>& edits);

  // What the parties say differently, for people. Empty: they agree.
  absl::StatusOr<std::string> Disagreement();

  const ModelRuleset& model() const { return model_; }

 private:
  TwoBackends() = default;

  absl::StatusOr<netlink::Snapshot> Read(netlink::Backend& backend) const;
  absl::Status ApplyTo(netlink::Backend& backend, const std::vector<Edit>& edits) const;
  void Follow(const std::vector<Edit>& edits);

  std::string lock_;
  std::unique_ptr<agent::CommandRunner> runner_;
  std::array<std::unique_ptr<netlink::Backend>, 2> backends_;  // nft, legacy
  ModelRuleset model_;
};

// The output of an iptables-save in a form that is equal for equal rulesets, with what differs
// legitimately between nft and legacy left out:
//   comments      they have the time and the program
//   counters      they move; legacy zeroes them at a restore
//   policies      ours are never set; nft tells none for a table that has no such chain
//   built-in chains without rules, tables without anything else
//                 legacy makes all of a table's, nft those that were asked for
//   order of tables and of chains (not of the rules of one chain)
//                 legacy: as they were loaded; nft: as they were made
std::string Comparable(const std::string& saved);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FUZZ_TWO_BACKENDS_H_
