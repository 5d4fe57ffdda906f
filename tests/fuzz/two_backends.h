// SPDX-License-Identifier: Apache-2.0
//
// Both real backends in one network namespace, the fake one as their model, and what all sources
// report about them.
#ifndef KIPT_TESTS_FUZZ_TWO_BACKENDS_H_
#define KIPT_TESTS_FUZZ_TWO_BACKENDS_H_

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/process/command.h"
#include "netlink/backend.h"
#include "tests/support/fake_backend.h"

namespace kipt::testing {

class TwoBackends {
 public:
  // In the calling thread's network namespace, which must be the test's own: it is emptied, both
  // ways. The lock of legacy iptables is a file of its own.
  static absl::StatusOr<std::unique_ptr<TwoBackends>> Open();
  ~TwoBackends();

  // Empties all.
  absl::Status Flush();

  // One transaction through each, and the model. The handles are those of the model. The error of
  // the first that refuses.
  absl::Status Apply(const std::vector<netlink::Operation>& operations);

  // What the sources report differently, for people. Empty: they agree. What differs legitimately
  // between nft and legacy is left out:
  //   comments      they have the time and the program
  //   counters      they move; legacy zeroes them at a restore
  //   policies      ours are never set; nft has none for a table without that base chain
  //   built-in chains without rules, tables without anything else
  //                 legacy makes all of a table's, nft those that were asked for
  //   order of tables and of chains (not of the rules of one chain)
  //                 legacy: as they were loaded; nft: as they were made
  absl::StatusOr<std::string> Disagreement();

  const netlink::Snapshot& model() const { return model_.state(); }

 private:
  TwoBackends() = default;

  std::string lock_;
  std::unique_ptr<agent::CommandRunner> runner_;
  std::array<std::unique_ptr<netlink::Backend>, 2> backends_;  // nft, legacy
  FakeBackend model_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FUZZ_TWO_BACKENDS_H_
