// SPDX-License-Identifier: Apache-2.0
//
// File: agent/policy/ownership.h
//
// What a chain or rule that stands is: kubelet's, in which form, and whether it is whole;
// kube-proxy's; or somebody else's. Pure.
#ifndef KIPT_AGENT_POLICY_OWNERSHIP_H_
#define KIPT_AGENT_POLICY_OWNERSHIP_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/policy/diff.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// ---- chains ----

// Whether some kubelet, or this agent as one, makes this chain in some mode.
bool IsKubeletChain(const netlink::ChainId& chain);
// Of those, one that marks packets, or labels their connections, for whoever jumps there.
bool IsMarkingChain(const netlink::ChainId& chain);
// Of those, the chains of the gate ConnLabelMarking: this agent's own, and nobody else's.
bool IsLabelChain(const netlink::ChainId& chain);

// One of kube-proxy's own. Not those that it shares with kubelet. IPVS mode up to 1.24 has a
// KUBE-FIREWALL of its own in table nat, which has nothing to do with kubelet's in filter.
bool IsKubeProxyChain(const netlink::ChainId& chain);
// kube-proxy lives, or lived until this boot, in `family`: it keeps KUBE-MARK-MASQ,
// KUBE-POSTROUTING and (since 1.27) KUBE-FIREWALL as its own.
bool IsClaimedByKubeProxy(const netlink::Snapshot& snapshot, netlink::Family family);
// Its services stand in table nat of `family`, and no base chain leads there: `kube-proxy
// --cleanup`, or its change to nftables mode, is deleting its chains, or could not.
bool KubeProxyLeaves(const netlink::Snapshot& snapshot, netlink::Family family);
// It is one of 1.25 or later, which needs neither KUBE-MARK-DROP nor what acts on its mark.
bool KubeProxyDropsByItself(const netlink::Snapshot& snapshot, netlink::Family family);

// ---- rules ----

struct KubeletForm {
  // "mark bit 20", "kubelet before 1.19": what tells it from other forms. Never empty.
  std::string description;
  // The mark bit that it sets or tests; none for rules that use no mark.
  std::optional<int> bit;
  // The label of the connection that it sets or tests; no one but this agent writes such rules.
  std::optional<int> label;
  bool shared_with_kube_proxy = false;
};

// Recognizes `rule` of `chain` as a form that kubelet, since 1.17, has written there with some mark
// bit, or this agent with some label. None: it is somebody else's.
std::optional<KubeletForm> RecognizeKubeletForm(const netlink::ChainId& chain,
                                                const netlink::Rule& rule);
// `rule` is what is left of such a form, of marks, that lost its matches (FindDamage).
bool LostItsMatch(const netlink::ChainId& chain, const netlink::Rule& rule);
// One of both.
bool IsKubeletRule(const netlink::ChainId& chain, const netlink::ObservedRule& rule);
// Kubelet's jump from the base chain `from`, in some mode.
bool IsKubeletJump(const netlink::ChainId& from, const netlink::ObservedRule& rule);

// Whether the rules of `chain`, read from the top, hold a whole working set of some form for one
// mark bit: then the chain does its work, be it in another form than ours. Returns that bit.
// Only KUBE-MARK-MASQ and KUBE-POSTROUTING can; kube-proxy writes no others with a bit.
std::optional<int> CompleteSetBit(const netlink::ChainId& chain,
                                  absl::Span<const netlink::ObservedRule> rules);

// ---- "never worse": rules in kubelet's chains that turn the chain against the node ----

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

#endif  // KIPT_AGENT_POLICY_OWNERSHIP_H_
