// SPDX-License-Identifier: Apache-2.0
//
// The rules that kubelets have written since 1.17, each as a function of its mark bit (0..31) or
// label; rules without one ignore the number. Also the names of their chains, and the martian rule
// in nf_tables' own words.
#ifndef KIPT_AGENT_POLICY_RULE_FORMS_H_
#define KIPT_AGENT_POLICY_RULE_FORMS_H_

#include "absl/strings/string_view.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::agent {

using RuleForm = netlink::Rule (*)(int bit);

inline constexpr absl::string_view kHintChain = "KUBE-IPTABLES-HINT";
inline constexpr absl::string_view kFirewallChain = "KUBE-FIREWALL";
inline constexpr absl::string_view kMarkDropChain = "KUBE-MARK-DROP";
inline constexpr absl::string_view kMarkMasqChain = "KUBE-MARK-MASQ";
inline constexpr absl::string_view kPostroutingChain = "KUBE-POSTROUTING";
inline constexpr absl::string_view kCanaryChain = "KUBE-KUBELET-CANARY";

// Only of the gate ConnLabelMarking.
inline constexpr absl::string_view kLabelMasqChain = "KUBELET-MARK-MASQ";
inline constexpr absl::string_view kLabelDropChain = "KUBELET-MARK-DROP";
inline constexpr absl::string_view kLabelPostroutingChain = "KUBELET-POSTROUTING";
inline constexpr absl::string_view kLabelFirewallChain = "KUBELET-FIREWALL";

inline constexpr absl::string_view kLabelPostroutingComment = "kubelet postrouting rules";
inline constexpr absl::string_view kPostroutingComment = "kubernetes postrouting rules";

netlink::Rule DropMartians(int bit);
netlink::Rule DropMarked(int bit);
netlink::Rule SetBit(int bit);
netlink::Rule ReturnUnmarked(int bit);
netlink::Rule ClearBit(int bit);
netlink::Rule MasqueradeAll(int bit);

// With a connection label (0..127) in place of a mark bit.
netlink::Rule SetLabel(int label);
netlink::Rule MasqueradeLabelled(int label);
netlink::Rule DropLabelled(int label);

// Superseded.
netlink::Rule MasqueradeAllPlain(int bit);
netlink::Rule MasqueradeMarked(int bit);
netlink::Rule MasqueradeMarkedPlain(int bit);

// The name of a table of family ip. No other program has a reason to write to it.
inline constexpr absl::string_view kNativeTable = "kube-iptables-agent";
// DropMartians (KEP-3178, CVE-2020-8558) in a table of our own, for kernels on which iptables can
// hold no rule: drops exactly the same in the chains `input` and `output`, of two rules each.
const netlink::NativeTable& NativeMartians();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_RULE_FORMS_H_
