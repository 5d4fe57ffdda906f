// SPDX-License-Identifier: Apache-2.0
//
// What an observed chain or rule is: kubelet's, in which form, and whether it is whole;
// kube-proxy's; or foreign. Pure.
#ifndef KIPT_AGENT_POLICY_OWNERSHIP_H_
#define KIPT_AGENT_POLICY_OWNERSHIP_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "agent/policy/diff.h"
#include "netlink/reach.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// ---- chains ----

// Whether some kubelet, or this agent as one, makes this chain in some mode.
bool IsKubeletChain(const netlink::ChainId& chain);
// A chain of kubelet's that sets a mark, or a label, for any rule that jumps there.
bool IsMarkingChain(const netlink::ChainId& chain);
// KUBE-FIREWALL or KUBELET-FIREWALL, of table filter.
bool IsFirewallChain(const netlink::ChainId& chain);
// A chain of the gate ConnLabelMarking, which only this agent makes.
bool IsLabelChain(const netlink::ChainId& chain);

// One of kube-proxy's own, without those shared with kubelet. KUBE-FIREWALL in table nat is that of
// IPVS mode up to 1.24.
bool IsKubeProxyChain(const netlink::ChainId& chain);
// kube-proxy runs, or ran since boot, in `family`: it keeps KUBE-MARK-MASQ, KUBE-POSTROUTING and
// (since 1.27) KUBE-FIREWALL as its own.
bool IsClaimedByKubeProxy(const netlink::Snapshot& snapshot, netlink::Family family);
// Its services exist in table nat of `family`, and no base chain leads there: `kube-proxy
// --cleanup`, or its change to nftables mode, is deleting its chains, or failed to.
bool KubeProxyLeaves(const netlink::Snapshot& snapshot, netlink::Family family);
// It is one of 1.25 or later, which needs neither KUBE-MARK-DROP nor what acts on its mark.
bool KubeProxyDropsByItself(const netlink::Snapshot& snapshot, netlink::Family family);

// ---- rules ----

struct KubeletForm {
  // "mark bit 20", "kubelet before 1.19": what distinguishes it from other forms. Never empty.
  std::string description;
  // The mark bit that it sets or tests; none for rules that use no mark.
  std::optional<int> bit;
  // The connection label that it sets or tests; only this agent writes such rules.
  std::optional<int> label;
  bool shared_with_kube_proxy = false;
};

// Recognizes `rule` of `chain` as a form that kubelet, since 1.17, wrote there with some mark bit,
// or this agent with some label. None: it is foreign.
std::optional<KubeletForm> RecognizeKubeletForm(const netlink::ChainId& chain,
                                                const netlink::Rule& rule);
// Whether it is the one rule that kube-proxy's IPVS mode puts into KUBE-POSTROUTING besides the
// set, for hairpin packets. nf_tables does not show the IP set's name. `rule` may be null.
bool IsIpvsHairpin(const netlink::OpaqueRule* rule);
// `rule` is what is left of such a form, of marks, that lost its matches (FindDamage).
bool LostItsMatch(const netlink::ChainId& chain, const netlink::Rule& rule);
// One of both.
bool IsKubeletRule(const netlink::ChainId& chain, const netlink::ObservedRule& rule);
// Kubelet's jump from the base chain `from`, in some mode.
bool IsKubeletJump(const netlink::ChainId& from, const netlink::ObservedRule& rule);

// The mark bit for which the rules of `chain`, from the top, hold a whole working set of some form.
// Only for KUBE-MARK-MASQ and KUBE-POSTROUTING; kube-proxy writes no others with a bit.
std::optional<int> CompleteSetBit(const netlink::ChainId& chain,
                                  absl::Span<const netlink::ObservedRule> rules);

// ---- "never worse": rules in kubelet's chains that turn the chain against the node ----

struct Damage {
  Condition condition;
  std::string message;
  // Index of the rule among those of the chain.
  size_t index = 0;
  // Deleting the rule repairs it. Else a rule before it does, or it is not ours to repair.
  bool delete_rule = false;
};

// iptables up to 1.8.7 silently drops the mark matches that 1.8.8 and later write (kubernetes
// #112477). A save and restore by the older one leaves
//   * in KUBE-FIREWALL, "drop marked packets" as "drop packets";
//   * in KUBE-POSTROUTING, "return unmarked packets" as "return packets", or a bare MASQUERADE.
// A rule of KUBE-FIREWALL or KUBELET-FIREWALL that drops everything without kubelet's comment is an
// administrator's, and only reported.
std::vector<Damage> FindDamage(const netlink::ChainId& chain,
                               absl::Span<const netlink::ObservedRule> rules);

// Rules of KUBE-FIREWALL or KUBELET-FIREWALL that drop everything in another way than DROP: REJECT,
// a native drop, a jump to a chain that drops.
std::vector<Damage> FindForeignDrops(const netlink::ChainId& chain,
                                     absl::Span<const netlink::ObservedRule> rules,
                                     netlink::Walk& walk);

// Foreign rules in KUBE-MARK-MASQ or KUBE-MARK-DROP that clear the mark that kubelet's rule set.
std::vector<Damage> FindVoidedMarks(const netlink::ChainId& chain,
                                    absl::Span<const netlink::ObservedRule> rules);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_OWNERSHIP_H_
