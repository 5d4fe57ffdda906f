// SPDX-License-Identifier: Apache-2.0
//
// Reads the rules whenever the kernel reports that they may have changed. nft: each commit is an
// event. iptables-legacy: a program that closes xtables.lock may have written; while a rule is
// missing, the rules are also read every 20 ms.
#ifndef KIPT_TESTS_SOAK_LOOK_H_
#define KIPT_TESTS_SOAK_LOOK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "tests/soak/node.h"
#include "tests/soak/sight.h"

namespace kipt::soak {

class Looker {
 public:
  // For the node's namespace.
  static absl::StatusOr<std::unique_ptr<Looker>> Create(const Node& node);
  virtual ~Looker() = default;

  // Until something may have changed, at most `patience`.
  virtual void Wait(absl::Duration patience) = 0;
  // Aborted: another process changed the rules in the meantime; read again.
  virtual absl::StatusOr<SeenChains> Look() = 0;
};

// Reports what it sees to node.windows, until the node has ended.
void Watch(Node& node, Looker& looker);

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_LOOK_H_
