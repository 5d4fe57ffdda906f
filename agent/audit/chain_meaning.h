// SPDX-License-Identifier: Apache-2.0
//
// Chains in plain words: what they are, which programs made them, and where packets go from them.
#ifndef KIPT_AGENT_AUDIT_CHAIN_MEANING_H_
#define KIPT_AGENT_AUDIT_CHAIN_MEANING_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/audit/chain_owner.h"
#include "agent/audit/kube_proxy_facts.h"
#include "agent/policy/rule_forms.h"
#include "netlink/survey.h"

namespace kipt::agent {

// The chain that acts on the mark or label of a chain of table nat, and its jumps.
struct Listener {
  absl::string_view from;
  absl::string_view table;
  absl::string_view chain;
  absl::string_view bases;  // "INPUT OUTPUT"
  // "%s" is "INPUT leads", of the bases that jump to it; "%n", how many packets they led there.
  absl::string_view heard;
  absl::string_view unheard;  // of the others
};
inline constexpr Listener kListeners[] = {
    {kMarkMasqChain, "nat", kPostroutingChain, "POSTROUTING",
     "When it leaves, %s every connection's first packet to nat/KUBE-POSTROUTING%n: marked packets "
     "are masqueraded, the rest return.",
     "no rule acts on the mark, and the packet keeps its source"},
    {kMarkDropChain, "filter", kFirewallChain, "INPUT OUTPUT",
     "In table filter, %s to filter/KUBE-FIREWALL, which drops marked packets if it has its rule "
     "for the mark. Forwarded packets pass neither INPUT nor OUTPUT, and are not dropped.",
     "no rule acts on the mark, and the packet passes"},
    {kLabelMasqChain, "nat", kLabelPostroutingChain, "POSTROUTING",
     "When it leaves, %s every connection's first packet to nat/KUBELET-POSTROUTING: labelled ones "
     "are masqueraded, the rest return.",
     "no rule acts on the label"},
    {kLabelDropChain, "filter", kLabelFirewallChain, "INPUT FORWARD OUTPUT",
     "In table filter, %s to filter/KUBELET-FIREWALL, which drops labelled packets for as long as "
     "the connection lasts.",
     "no rule acts on the label"},
};

// OwnerOfChain, but kube-proxy's where it alone keeps a chain that it shares with kubelet: kubelet
// leaves KUBE-MARK-MASQ and KUBE-POSTROUTING to it with KUBE-MARK-DROP (1.28, or the gate).
Owner KeeperOfChain(const FamilyChains& chains, const KubeProxyFacts& proxy,
                    absl::string_view table, absl::string_view chain, bool base);

// A sentence or two; for a chain that this agent does not know, its likely owner.
std::string ChainMeaning(absl::string_view table, absl::string_view chain, bool base);

// The program that made the chain, and how that is known.
std::string ChainMaker(const FamilyChains& chains, const KubeProxyFacts& proxy,
                       absl::string_view table, absl::string_view chain);

// Where packets go after the chain, point by point; empty where its own rules show it all.
// `surveys` are those of the network namespace.
std::vector<std::string> WhereNext(const FamilyChains& chains, absl::string_view table,
                                   absl::string_view chain,
                                   absl::Span<const netlink::Survey> surveys);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_CHAIN_MEANING_H_
