// SPDX-License-Identifier: Apache-2.0
//
// Rules as the kernel listed them the last time: the same bytes are the same rule. For chains that
// are read again and again, as a daemon reads them.
#ifndef KIPT_NETLINK_LISTED_RULES_H_
#define KIPT_NETLINK_LISTED_RULES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "netlink/attributes.h"
#include "netlink/ruleset.h"

namespace kipt::netlink {

// Keeps the first 64 rules of a chain, from the second listing on.
class ListedRules {
 public:
  // As DecodeRule. `place` counts the rules of this listing of `chain`.
  absl::StatusOr<ObservedRule> Decode(const ChainId& chain, size_t place, WireBytes message);
  // After the last rule of a listing.
  void EndChain(const ChainId& chain);

 private:
  struct Listed {
    std::vector<uint8_t> bytes;
    ObservedRule rule;
  };
  struct Chain {
    bool again = false;
    std::vector<Listed> rules = {};
  };

  std::map<ChainId, Chain> chains_;
};

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_LISTED_RULES_H_
