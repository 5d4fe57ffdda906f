// SPDX-License-Identifier: Apache-2.0
//
// File: agent/policy/guards.h
//
// "Never worse": rules in kubelet's chains that turn the chain against the node. Pure.
#ifndef KIPT_AGENT_POLICY_GUARDS_H_
#define KIPT_AGENT_POLICY_GUARDS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "agent/policy/diff.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

struct Damage {
  Condition condition;
  std::string message;
  // Index of the rule among those of the chain.
  size_t index = 0;
  // Deleting the rule mends it. Else it is mended by what stands before it, or is not ours to mend.
  bool delete_rule = false;
};

// iptables up to 1.8.7 reads the mark matches that 1.8.8 and later write as no match at all,
// without an error (kubernetes #112477). A save and restore by the older one leaves
//   * in KUBE-FIREWALL, "drop marked packets" as "drop packets";
//   * in KUBE-POSTROUTING, "return unmarked packets" as "return packets", or a MASQUERADE that no
//     mark guards.
// A rule of KUBE-FIREWALL or KUBELET-FIREWALL that drops everything and does not have kubelet's
// comment is an admin's: reported only. No rule of the latter has such a comment.
std::vector<Damage> FindDamage(const netlink::ChainId& chain,
                               absl::Span<const netlink::ObservedRule> rules);

// Rules of others in KUBE-MARK-MASQ or KUBE-MARK-DROP that clear the mark after kubelet's rule has
// set it. The rules of kubelet that act on the mark miss the packets that match them.
std::vector<Damage> FindVoidedMarks(const netlink::ChainId& chain,
                                    absl::Span<const netlink::ObservedRule> rules);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_GUARDS_H_
