// SPDX-License-Identifier: Apache-2.0
//
// File: agent/policy/policy_tables.h
//
// KEP-3178 as tables. This is the whole policy; policy.cc only filters it by mode and family.
// Not installed: policy.h is the promise.
#ifndef KIPT_AGENT_POLICY_POLICY_TABLES_H_
#define KIPT_AGENT_POLICY_POLICY_TABLES_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"
#include "netlink/ruleset.h"

// Words that only make sense inside these tables.
namespace kipt::agent::kep3178 {

using netlink::Table;

// kBothModesLabelled: with the gate ConnLabelMarking, whatever the mode.
enum class In : uint8_t { kLegacyMode, kBothModes, kBothModesLabelled };
enum class For : uint8_t { kIPv4, kIPv6, kBothFamilies };
// Of the mark, or a label of the connection.
enum class Bit : uint8_t { kNone, kMasquerade, kDrop, kMasqueradeLabel, kDropLabel };
enum class Writer : uint8_t { kKubelet, kKubeletAndKubeProxy };

constexpr bool Holds(In in, Mode mode, bool labelled) {
  if (mode == Mode::kOff || (in == In::kBothModesLabelled && !labelled)) return false;
  return mode == Mode::kLegacy || in != In::kLegacyMode;
}

constexpr bool IsLabel(Bit bit) { return bit == Bit::kMasqueradeLabel || bit == Bit::kDropLabel; }

constexpr bool Holds(For families, netlink::Family family) {
  return families == For::kBothFamilies ||
         (families == For::kIPv4) == (family == netlink::Family::kIPv4);
}

// ---- table 1: the chains, in kubelet's order ----

struct ChainRow {
  In in;
  For families;
  Table table;
  absl::string_view name;
  bool ordered;
  absl::string_view reason;
};

// The canary is kubelet's own tripwire. No kubelet ever stopped making it, but the KEP says that
// cleanup mode does, and so we do. We need none: the kernel tells us of changes.
inline constexpr std::array kChains = {
    ChainRow{In::kBothModes, For::kBothFamilies, Table::kMangle, kHintChain, false,
             "tells other components which iptables mode this node uses (KEP-3178, since 1.24)"},
    ChainRow{In::kBothModes, For::kIPv4, Table::kFilter, kFirewallChain, false,
             "holds the martian-packet rule"},
    ChainRow{In::kLegacyMode, For::kIPv6, Table::kFilter, kFirewallChain, false,
             "holds the drop-mark rule"},
    ChainRow{In::kLegacyMode, For::kBothFamilies, Table::kNat, kMarkDropChain, false,
             "kube-proxy up to 1.24 jumps here to have a packet dropped"},
    ChainRow{In::kLegacyMode, For::kBothFamilies, Table::kNat, kMarkMasqChain, false,
             "kube-proxy and CNI plugins jump here to have a packet masqueraded"},
    ChainRow{In::kLegacyMode, For::kBothFamilies, Table::kNat, kPostroutingChain, true,
             "masquerades what KUBE-MARK-MASQ marked"},
    ChainRow{In::kLegacyMode, For::kBothFamilies, Table::kMangle, kCanaryChain, false,
             "kubelet's tripwire for flushed rules, since 1.17"},
    ChainRow{In::kLegacyMode, For::kBothFamilies, Table::kNat, kCanaryChain, false,
             "kubelet's tripwire for flushed rules, since 1.17"},
    ChainRow{In::kLegacyMode, For::kBothFamilies, Table::kFilter, kCanaryChain, false,
             "kubelet's tripwire for flushed rules, since 1.17"},
    // "IPTables Drop and Masquerade Marking" (KEP of 2020): each component has chains of its own,
    // and labels of the connection in place of the packet's mark, which an encapsulated packet
    // hands on to the outer one.
    ChainRow{In::kBothModesLabelled, For::kBothFamilies, Table::kNat, kLabelDropChain, false,
             "kubelet's own: labels the connection for KUBELET-FIREWALL"},
    ChainRow{In::kBothModesLabelled, For::kBothFamilies, Table::kNat, kLabelMasqChain, false,
             "kubelet's own: labels the connection for KUBELET-POSTROUTING"},
    ChainRow{In::kBothModesLabelled, For::kBothFamilies, Table::kNat, kLabelPostroutingChain, false,
             "masquerades what KUBELET-MARK-MASQ labelled"},
    ChainRow{In::kBothModesLabelled, For::kBothFamilies, Table::kFilter, kLabelFirewallChain, false,
             "drops what KUBELET-MARK-DROP labelled"},
};

// ---- table 2: the rules in them, in order ----

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

inline constexpr std::array kRules = {
    RuleRow{In::kBothModes, For::kIPv4, Table::kFilter, kFirewallChain, Bit::kNone, DropMartians,
            Writer::kKubeletAndKubeProxy, "keeps neighbours from 127.0.0.1 (CVE-2020-8558)"},
    RuleRow{In::kLegacyMode, For::kBothFamilies, Table::kFilter, kFirewallChain, Bit::kDrop,
            DropMarked, Writer::kKubelet, "drops what KUBE-MARK-DROP marked"},
    RuleRow{In::kLegacyMode, For::kBothFamilies, Table::kNat, kMarkDropChain, Bit::kDrop, SetBit,
            Writer::kKubelet, "marks the packet for KUBE-FIREWALL"},
    RuleRow{In::kLegacyMode, For::kBothFamilies, Table::kNat, kMarkMasqChain, Bit::kMasquerade,
            SetBit, Writer::kKubeletAndKubeProxy, "marks the packet for KUBE-POSTROUTING"},
    RuleRow{In::kLegacyMode, For::kBothFamilies, Table::kNat, kPostroutingChain, Bit::kMasquerade,
            ReturnUnmarked, Writer::kKubeletAndKubeProxy, "leaves unmarked packets alone"},
    RuleRow{In::kLegacyMode, For::kBothFamilies, Table::kNat, kPostroutingChain, Bit::kMasquerade,
            ClearBit, Writer::kKubeletAndKubeProxy,
            "clears the mark before an encapsulated packet can inherit it (kubernetes #78948)"},
    RuleRow{In::kLegacyMode, For::kBothFamilies, Table::kNat, kPostroutingChain, Bit::kNone,
            MasqueradeAll, Writer::kKubeletAndKubeProxy, "masquerades marked packets"},
    RuleRow{In::kBothModesLabelled, For::kBothFamilies, Table::kNat, kLabelDropChain,
            Bit::kDropLabel, SetLabel, Writer::kKubelet,
            "labels the connection for KUBELET-FIREWALL"},
    RuleRow{In::kBothModesLabelled, For::kBothFamilies, Table::kNat, kLabelMasqChain,
            Bit::kMasqueradeLabel, SetLabel, Writer::kKubelet,
            "labels the connection for KUBELET-POSTROUTING"},
    RuleRow{In::kBothModesLabelled, For::kBothFamilies, Table::kNat, kLabelPostroutingChain,
            Bit::kMasqueradeLabel, MasqueradeLabelled, Writer::kKubelet,
            "masquerades labelled connections"},
    RuleRow{In::kBothModesLabelled, For::kBothFamilies, Table::kFilter, kLabelFirewallChain,
            Bit::kDropLabel, DropLabelled, Writer::kKubelet, "drops labelled connections"},
};

// ---- table 3: the jumps to them from base chains ----

struct JumpRow {
  In in;
  For families;
  Table table;
  absl::string_view base_chain;
  absl::string_view comment;
  absl::string_view chain;
  absl::string_view reason;
};

// The IPv6 jumps exist in legacy mode although kubelet 1.25 to 1.27 forgot them: without them the
// IPv6 drop mark does nothing.
inline constexpr std::array kJumps = {
    JumpRow{In::kBothModes, For::kIPv4, Table::kFilter, "INPUT", "", kFirewallChain,
            "packets to this node pass KUBE-FIREWALL"},
    JumpRow{In::kBothModes, For::kIPv4, Table::kFilter, "OUTPUT", "", kFirewallChain,
            "packets from this node pass KUBE-FIREWALL"},
    JumpRow{In::kLegacyMode, For::kIPv6, Table::kFilter, "INPUT", "", kFirewallChain,
            "packets to this node pass KUBE-FIREWALL"},
    JumpRow{In::kLegacyMode, For::kIPv6, Table::kFilter, "OUTPUT", "", kFirewallChain,
            "packets from this node pass KUBE-FIREWALL"},
    JumpRow{In::kLegacyMode, For::kBothFamilies, Table::kNat, "POSTROUTING", kPostroutingComment,
            kPostroutingChain, "packets that leave this node pass KUBE-POSTROUTING"},
    JumpRow{In::kBothModesLabelled, For::kBothFamilies, Table::kNat, "POSTROUTING",
            kLabelPostroutingComment, kLabelPostroutingChain,
            "packets that leave this node pass KUBELET-POSTROUTING"},
    JumpRow{In::kBothModesLabelled, For::kBothFamilies, Table::kFilter, "INPUT", "",
            kLabelFirewallChain, "packets to this node pass KUBELET-FIREWALL"},
    // Marked packets that are forwarded were never dropped: KUBE-FIREWALL has no such jump.
    JumpRow{In::kBothModesLabelled, For::kBothFamilies, Table::kFilter, "FORWARD", "",
            kLabelFirewallChain, "packets that this node forwards pass KUBELET-FIREWALL"},
    JumpRow{In::kBothModesLabelled, For::kBothFamilies, Table::kFilter, "OUTPUT", "",
            kLabelFirewallChain, "packets from this node pass KUBELET-FIREWALL"},
};

// ---- table 4: forms that later kubelets superseded (another mark bit supersedes any form) ----

struct SupersededRow {
  Table table;
  absl::string_view chain;
  RuleForm form;
  absl::string_view description;
};

inline constexpr std::array kSuperseded = {
    SupersededRow{Table::kNat, kPostroutingChain, MasqueradeMarked,
                  "the single masquerade rule of kubelet before 1.19"},
    SupersededRow{Table::kNat, kPostroutingChain, MasqueradeMarkedPlain,
                  "the single masquerade rule of kubelet before 1.19, without --random-fully"},
    SupersededRow{Table::kNat, kPostroutingChain, MasqueradeAllPlain,
                  "masquerade without --random-fully (iptables before 1.6.2)"},
};

// ---- table 5: what kube-proxy alone makes ----

struct KubeProxyRow {
  Table table;
  absl::string_view chain;
};

inline constexpr std::array kKubeProxyChains = {
    KubeProxyRow{Table::kNat, "KUBE-SERVICES"},
    KubeProxyRow{Table::kFilter, "KUBE-SERVICES"},
    KubeProxyRow{Table::kMangle, "KUBE-PROXY-CANARY"},
    KubeProxyRow{Table::kNat, "KUBE-PROXY-CANARY"},
    KubeProxyRow{Table::kFilter, "KUBE-PROXY-CANARY"},
};

// Since 1.25 kube-proxy drops by itself, here, and needs neither KUBE-MARK-DROP nor the rule that
// acts on its mark.
inline constexpr absl::string_view kKubeProxyFirewallChain = "KUBE-PROXY-FIREWALL";

// ---- table 6: where others' jumps stand, beside the base chains of table 3 ----

struct BaseChainRow {
  Table table;
  absl::string_view chain;
};

// CNI plugins (CNI-HOSTPORT-DNAT, cali-*, CILIUM_*) and kube-proxy. Only looked at. Theirs in
// filter FORWARD are seen with table 3.
inline constexpr std::array kOthersJumpFrom = {
    BaseChainRow{Table::kNat, "PREROUTING"},
    BaseChainRow{Table::kNat, "OUTPUT"},
};

}  // namespace kipt::agent::kep3178

#endif  // KIPT_AGENT_POLICY_POLICY_TABLES_H_
