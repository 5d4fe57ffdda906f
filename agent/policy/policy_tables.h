// SPDX-License-Identifier: Apache-2.0
//
// KEP-3178 as tables. This is the whole policy; policy.cc only filters it by mode and family.
// Not installed: policy.h is the promise.
#ifndef KIPT_AGENT_POLICY_POLICY_TABLES_H_
#define KIPT_AGENT_POLICY_POLICY_TABLES_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"
#include "netlink/ruleset.h"

// Words that only make sense inside these tables.
namespace kipt::agent::kep3178 {

using netlink::Table;

// kBothModesLabelled: with the gate ConnLabelMarking, whatever the mode. kOlderKubelets: in no
// mode; what kubelets wrote, and later ones superseded.
enum class In : uint8_t { kLegacyMode, kBothModes, kBothModesLabelled, kOlderKubelets };
enum class For : uint8_t { kIPv4, kIPv6, kBothFamilies };
// A packet mark, or a connection label.
enum class Bit : uint8_t { kNone, kMasquerade, kDrop, kMasqueradeLabel, kDropLabel };
enum class Writer : uint8_t { kKubelet, kKubeletAndKubeProxy };

// Whether `row` counts in `mode`, with labels or without.
template <typename Row>
constexpr bool IsIn(const Row& row, Mode mode, bool labelled) {
  if (mode == Mode::kOff || row.in == In::kOlderKubelets) return false;
  return row.in == In::kBothModesLabelled ? labelled
                                          : row.in == In::kBothModes || mode == Mode::kLegacy;
}

template <typename Row>
constexpr bool IsFor(const Row& row, netlink::Family family) {
  return row.families == For::kBothFamilies ||
         (row.families == For::kIPv4) == (family == netlink::Family::kIPv4);
}

// Whether `row` is about `chain`, in whatever family.
template <typename Row>
bool IsOf(const Row& row, const netlink::ChainId& chain) {
  return row.table == chain.table && row.chain == chain.name;
}

constexpr bool IsLabel(Bit bit) { return bit == Bit::kMasqueradeLabel || bit == Bit::kDropLabel; }

// ---- table 1: the chains, in kubelet's order ----

struct ChainRow {
  In in;
  For families;
  Table table;
  absl::string_view chain;
  absl::string_view reason;
};

// The canary is kubelet's own tripwire. No kubelet stopped making it, but in the KEP's cleanup mode
// it does. We need none: the kernel reports changes.
inline constexpr ChainRow kChains[] = {
    {In::kBothModes, For::kBothFamilies, Table::kMangle, kHintChain,
     "tells other components which iptables mode this node uses (KEP-3178, since 1.24)"},
    {In::kBothModes, For::kIPv4, Table::kFilter, kFirewallChain, "holds the martian-packet rule"},
    {In::kLegacyMode, For::kIPv6, Table::kFilter, kFirewallChain, "holds the drop-mark rule"},
    {In::kLegacyMode, For::kBothFamilies, Table::kNat, kMarkDropChain,
     "kube-proxy up to 1.24 jumps here to have a packet dropped"},
    {In::kLegacyMode, For::kBothFamilies, Table::kNat, kMarkMasqChain,
     "kube-proxy and CNI plugins jump here to have a packet masqueraded"},
    {In::kLegacyMode, For::kBothFamilies, Table::kNat, kPostroutingChain,
     "masquerades what KUBE-MARK-MASQ marked"},
    {In::kLegacyMode, For::kBothFamilies, Table::kMangle, kCanaryChain,
     "kubelet's tripwire for flushed rules, since 1.17"},
    {In::kLegacyMode, For::kBothFamilies, Table::kNat, kCanaryChain,
     "kubelet's tripwire for flushed rules, since 1.17"},
    {In::kLegacyMode, For::kBothFamilies, Table::kFilter, kCanaryChain,
     "kubelet's tripwire for flushed rules, since 1.17"},
    // "IPTables Drop and Masquerade Marking" (KEP of 2020): each component has chains of its own,
    // and connection labels in place of the packet mark, which an encapsulated packet hands on.
    {In::kBothModesLabelled, For::kBothFamilies, Table::kNat, kLabelDropChain,
     "kubelet's own: labels the connection for KUBELET-FIREWALL"},
    {In::kBothModesLabelled, For::kBothFamilies, Table::kNat, kLabelMasqChain,
     "kubelet's own: labels the connection for KUBELET-POSTROUTING"},
    {In::kBothModesLabelled, For::kBothFamilies, Table::kNat, kLabelPostroutingChain,
     "masquerades what KUBELET-MARK-MASQ labelled"},
    {In::kBothModesLabelled, For::kBothFamilies, Table::kFilter, kLabelFirewallChain,
     "drops what KUBELET-MARK-DROP labelled"},
};

// ---- table 2: the rules in them, in order; then the forms that later kubelets superseded ----
// (another mark bit supersedes any form)

struct RuleRow {
  In in;
  For families;
  Table table;
  absl::string_view chain;
  Bit bit;
  RuleForm form;
  Writer writer;
  absl::string_view reason;
};

inline constexpr RuleRow kRules[] = {
    {In::kBothModes, For::kIPv4, Table::kFilter, kFirewallChain, Bit::kNone, DropMartians,
     Writer::kKubeletAndKubeProxy, "keeps neighbours from 127.0.0.1 (CVE-2020-8558)"},
    {In::kLegacyMode, For::kBothFamilies, Table::kFilter, kFirewallChain, Bit::kDrop, DropMarked,
     Writer::kKubelet, "drops what KUBE-MARK-DROP marked"},
    {In::kLegacyMode, For::kBothFamilies, Table::kNat, kMarkDropChain, Bit::kDrop, SetBit,
     Writer::kKubelet, "marks the packet for KUBE-FIREWALL"},
    {In::kLegacyMode, For::kBothFamilies, Table::kNat, kMarkMasqChain, Bit::kMasquerade, SetBit,
     Writer::kKubeletAndKubeProxy, "marks the packet for KUBE-POSTROUTING"},
    {In::kLegacyMode, For::kBothFamilies, Table::kNat, kPostroutingChain, Bit::kMasquerade,
     ReturnUnmarked, Writer::kKubeletAndKubeProxy, "leaves unmarked packets alone"},
    {In::kLegacyMode, For::kBothFamilies, Table::kNat, kPostroutingChain, Bit::kMasquerade,
     ClearBit, Writer::kKubeletAndKubeProxy,
     "clears the mark before an encapsulated packet can inherit it (kubernetes #78948)"},
    {In::kLegacyMode, For::kBothFamilies, Table::kNat, kPostroutingChain, Bit::kNone, MasqueradeAll,
     Writer::kKubeletAndKubeProxy, "masquerades marked packets"},
    {In::kBothModesLabelled, For::kBothFamilies, Table::kNat, kLabelDropChain, Bit::kDropLabel,
     SetLabel, Writer::kKubelet, "labels the connection for KUBELET-FIREWALL"},
    {In::kBothModesLabelled, For::kBothFamilies, Table::kNat, kLabelMasqChain,
     Bit::kMasqueradeLabel, SetLabel, Writer::kKubelet,
     "labels the connection for KUBELET-POSTROUTING"},
    {In::kBothModesLabelled, For::kBothFamilies, Table::kNat, kLabelPostroutingChain,
     Bit::kMasqueradeLabel, MasqueradeLabelled, Writer::kKubelet,
     "masquerades labelled connections"},
    {In::kBothModesLabelled, For::kBothFamilies, Table::kFilter, kLabelFirewallChain,
     Bit::kDropLabel, DropLabelled, Writer::kKubelet, "drops labelled connections"},
    {In::kOlderKubelets, For::kBothFamilies, Table::kNat, kPostroutingChain, Bit::kMasquerade,
     MasqueradeMarked, Writer::kKubeletAndKubeProxy,
     "the single masquerade rule of kubelet before 1.19"},
    {In::kOlderKubelets, For::kBothFamilies, Table::kNat, kPostroutingChain, Bit::kMasquerade,
     MasqueradeMarkedPlain, Writer::kKubeletAndKubeProxy,
     "the single masquerade rule of kubelet before 1.19, without --random-fully"},
    {In::kOlderKubelets, For::kBothFamilies, Table::kNat, kPostroutingChain, Bit::kNone,
     MasqueradeAllPlain, Writer::kKubeletAndKubeProxy,
     "masquerade without --random-fully (iptables before 1.6.2)"},
};

// ---- table 3: the jumps to them from base chains ----

struct JumpRow {
  In in;
  For families;
  Table table;
  absl::string_view chain;
  absl::string_view comment;
  absl::string_view to;
  absl::string_view reason;
};

// The IPv6 jumps exist in legacy mode although kubelet 1.25 to 1.27 forgot them: without them the
// IPv6 drop mark does nothing.
inline constexpr JumpRow kJumps[] = {
    {In::kBothModes, For::kIPv4, Table::kFilter, "INPUT", "", kFirewallChain,
     "packets to this node pass KUBE-FIREWALL"},
    {In::kBothModes, For::kIPv4, Table::kFilter, "OUTPUT", "", kFirewallChain,
     "packets from this node pass KUBE-FIREWALL"},
    {In::kLegacyMode, For::kIPv6, Table::kFilter, "INPUT", "", kFirewallChain,
     "packets to this node pass KUBE-FIREWALL"},
    {In::kLegacyMode, For::kIPv6, Table::kFilter, "OUTPUT", "", kFirewallChain,
     "packets from this node pass KUBE-FIREWALL"},
    {In::kLegacyMode, For::kBothFamilies, Table::kNat, "POSTROUTING", kPostroutingComment,
     kPostroutingChain, "packets that leave this node pass KUBE-POSTROUTING"},
    {In::kBothModesLabelled, For::kBothFamilies, Table::kNat, "POSTROUTING",
     kLabelPostroutingComment, kLabelPostroutingChain,
     "packets that leave this node pass KUBELET-POSTROUTING"},
    {In::kBothModesLabelled, For::kBothFamilies, Table::kFilter, "INPUT", "", kLabelFirewallChain,
     "packets to this node pass KUBELET-FIREWALL"},
    // Marked packets that are forwarded were never dropped: KUBE-FIREWALL has no such jump.
    {In::kBothModesLabelled, For::kBothFamilies, Table::kFilter, "FORWARD", "", kLabelFirewallChain,
     "packets that this node forwards pass KUBELET-FIREWALL"},
    {In::kBothModesLabelled, For::kBothFamilies, Table::kFilter, "OUTPUT", "", kLabelFirewallChain,
     "packets from this node pass KUBELET-FIREWALL"},
};

inline netlink::Rule RuleOf(const JumpRow& row) {
  return {.comment = std::string(row.comment), .target = netlink::Jump{std::string(row.to)}};
}

// ---- table 4: what kube-proxy alone makes, in iptables mode from 1.17 on, and in IPVS mode ----

// What the chain's existence shows about kube-proxy in its family (IsClaimedByKubeProxy,
// KubeProxyDropsByItself).
enum class Shows : uint8_t { kNothing, kLives, kDropsByItself };

struct KubeProxyRow {
  Table table;
  absl::string_view chain;  // "KUBE-SVC-*": all that begin so, one for each service or endpoint
  Shows tells = Shows::kNothing;
};

inline constexpr KubeProxyRow kKubeProxyChains[] = {
    // both modes
    {Table::kNat, "KUBE-SERVICES", Shows::kLives},
    {Table::kMangle, "KUBE-PROXY-CANARY", Shows::kLives},
    {Table::kNat, "KUBE-PROXY-CANARY", Shows::kLives},
    {Table::kFilter, "KUBE-PROXY-CANARY", Shows::kLives},
    {Table::kFilter, "KUBE-FORWARD"},
    {Table::kFilter, "KUBE-PROXY-FIREWALL", Shows::kDropsByItself},  // 1.25
    // iptables mode
    {Table::kFilter, "KUBE-SERVICES", Shows::kLives},
    {Table::kNat, "KUBE-NODEPORTS"},
    {Table::kFilter, "KUBE-EXTERNAL-SERVICES"},
    {Table::kFilter, "KUBE-NODEPORTS"},  // 1.21
    {Table::kNat, "KUBE-SVC-*"},
    {Table::kNat, "KUBE-SEP-*"},
    {Table::kNat, "KUBE-FW-*"},
    {Table::kNat, "KUBE-XLB-*"},  // to 1.23
    {Table::kNat, "KUBE-EXT-*"},  // 1.24
    {Table::kNat, "KUBE-SVL-*"},  // 1.24
    // IPVS mode
    {Table::kNat, "KUBE-FIREWALL"},  // to 1.24; kubelet's is in filter
    {Table::kNat, "KUBE-LOAD-BALANCER"},
    {Table::kNat, "KUBE-NODE-PORT"},
    {Table::kFilter, "KUBE-NODE-PORT"},               // 1.21
    {Table::kFilter, "KUBE-SOURCE-RANGES-FIREWALL"},  // 1.25
    {Table::kFilter, "KUBE-IPVS-FILTER"},             // 1.26
    {Table::kFilter, "KUBE-IPVS-OUT-FILTER"},         // 1.29
};

// ---- table 5: further base chains from which other programs jump ----

struct BaseChainRow {
  Table table;
  absl::string_view chain;
};

// CNI plugins (CNI-HOSTPORT-DNAT, cali-*, CILIUM_*) and kube-proxy. Table 3 has filter FORWARD.
inline constexpr BaseChainRow kOthersJumpFrom[] = {
    {Table::kNat, "PREROUTING"},
    {Table::kNat, "OUTPUT"},
};

}  // namespace kipt::agent::kep3178

#endif  // KIPT_AGENT_POLICY_POLICY_TABLES_H_
