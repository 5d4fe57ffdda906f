// SPDX-License-Identifier: Apache-2.0
//
// How one chain of ours gets from the observed to the desired state. Not installed: diff.h is the
// promise.
#ifndef KIPT_AGENT_POLICY_CHAIN_DIFF_H_
#define KIPT_AGENT_POLICY_CHAIN_DIFF_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "netlink/reach.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::agent {

inline netlink::DeleteRule Deletion(const netlink::ChainId& chain,
                                    const netlink::ObservedRule& rule) {
  return {.chain = chain, .handle = rule.handle, .rule = KnownMatches(rule)};
}

// What rules test that a rule above them can change.
struct TestedMarks {
  uint32_t bits = 0;    // of packets
  bool labels = false;  // of connections

  void Add(const netlink::Rule& rule);
};
inline constexpr TestedMarks kAnyMark = {.bits = netlink::kAllMarks, .labels = true};
// Through another chain or a verdict map, and perhaps back.
bool LeadsElsewhere(const netlink::ObservedRule& rule);
// Whether a packet may leave `rule` for the next one with another such mark, which the rule or what
// it leads to may change.
bool MayChange(const netlink::ObservedRule& rule, const TestedMarks& tested);

// Appends to `diff` the changes, existing and stale rules and findings of a chain of ours, which
// does not exist if `observed` is null. `claimed`: kube-proxy uses the chains that it shares.
// `walk` is through the snapshot that `observed` is of.
void DiffChain(const DesiredChain& desired, const netlink::ObservedChain* observed,
               const PolicyInput& input, bool claimed, netlink::Walk& walk, Diff& diff);

// Why `chain` of kubelet's is not desired where the mode is not off. A clause.
std::string WhyNotDesired(const PolicyInput& input, const netlink::ChainId& chain);
// Adds `item`, which belongs to kubelet's `chain` or leads to it, to what is stale or, if
// `kube_proxys`, to what is kube-proxy's. Its reason becomes a clause before the one that it has.
void ListUndesired(const PolicyInput& input, const netlink::ChainId& chain, bool kube_proxys,
                   ExistingItem item, Diff& diff);

// ":KUBE-FIREWALL - [0:0]" and "-A KUBE-FIREWALL ...", as iptables-save prints them.
std::string ChainText(const netlink::ChainId& chain);
template <typename RuleOrObserved>
std::string RuleText(const netlink::ChainId& chain, const RuleOrObserved& rule) {
  return absl::StrCat("-A ", chain.name, " ", netlink::ToString(chain.family, rule));
}

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_CHAIN_DIFF_H_
