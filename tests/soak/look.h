// SPDX-License-Identifier: Apache-2.0
//
// File: tests/soak/look.h
//
// Looks at the rules themselves, whenever the kernel says that they may have changed. nft: each
// commit is an event, and a look is a few netlink requests. Legacy: whoever closes xtables.lock has
// perhaps written, and a look is iptables-legacy-save; while something is missing also every 20 ms.
#ifndef KIPT_TESTS_SOAK_LOOK_H_
#define KIPT_TESTS_SOAK_LOOK_H_

#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "netlink/ruleset.h"
#include "tests/soak/node.h"

namespace kipt::soak {

using Chains = std::map<netlink::ChainId, netlink::ObservedChain>;

// Of each guard whether all of its rules are there.
Sight SightOf(const Chains& chains);

class Looker {
 public:
  // For the node's namespace.
  static absl::StatusOr<std::unique_ptr<Looker>> Create(const Node& node);
  virtual ~Looker() = default;

  // Until something may have changed, at most `patience`.
  virtual void Wait(absl::Duration patience) = 0;
  // Aborted: others changed it meanwhile; look again.
  virtual absl::StatusOr<Chains> Look() = 0;
};

// Tells node.windows what it sees, until the node has ended.
void Watch(Node& node, Looker& looker);

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_LOOK_H_
