// SPDX-License-Identifier: Apache-2.0
//
// File: agent/policy/other_mode.h
#ifndef KIPT_AGENT_POLICY_OTHER_MODE_H_
#define KIPT_AGENT_POLICY_OTHER_MODE_H_

#include <string>
#include <vector>

#include "netlink/ruleset.h"

namespace kipt::agent {

// What stands of kubelet's in the iptables mode that is not managed: chains that an upgrade,
// another image or a switch of the host's alternatives left behind. Listed for people.
struct OtherMode {
  std::string iptables_mode;  // "nft" or "legacy"
  // Chains of kubelet's, of any release, in the order of ChainId.
  std::vector<netlink::ChainId> chains = {};
  // Why it could not be looked into; then `chains` is empty.
  std::string problem = {};

  bool operator==(const OtherMode&) const = default;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_OTHER_MODE_H_
