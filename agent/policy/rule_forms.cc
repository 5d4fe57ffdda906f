// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/rule_forms.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter_ipv4.h>

#include <cstdint>
#include <string>

namespace kipt::agent {
namespace {

using netlink::Rule;

constexpr absl::string_view kMartianComment = "block incoming localnet connections";
constexpr absl::string_view kDropComment = "kubernetes firewall for dropping marked packets";
constexpr absl::string_view kSnatComment = "kubernetes service traffic requiring SNAT";

netlink::MarkMatch HasBit(int bit, bool negated = false) {
  const uint32_t mask = uint32_t{1} << bit;
  return {.value = mask, .mask = mask, .negated = negated};
}

netlink::ConnLabelMatch Label(int label, bool set = false) {
  return {.label = static_cast<uint8_t>(label), .set = set};
}

// "None of RELATED, ESTABLISHED, DNAT" takes two rules: a packet without a connection has no status
// to test, and a rule that tests it passes such a packet on.
std::vector<netlink::NativeDrop> NativeDrops() {
  const Rule martian = DropMartians(0);
  netlink::NativeDrop without_connection = {
      .source = martian.source, .destination = martian.destination, .comment = martian.comment};
  netlink::NativeDrop with_connection = without_connection;
  without_connection.state_any = NF_CT_STATE_INVALID_BIT | NF_CT_STATE_UNTRACKED_BIT;
  with_connection.state_none = NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED);
  with_connection.status_none = IPS_DST_NAT;
  return {without_connection, with_connection};
}

// A drop in any base chain is final, so any place on the hook would do; before iptables' filter, as
// KUBE-FIREWALL is before an administrator's ACCEPT rules.
constexpr int32_t kPriority = NF_IP_PRI_FILTER - 1;

}  // namespace

// Each form follows the iptables arguments that kubelet runs; B is 1 << bit.

// -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
// CVE-2020-8558: route_localnet, which kube-proxy sets, lets neighbours reach 127.0.0.1. Not on
// IPv6, where the kernel never routes ::1. In kubelet since 1.19 (and 1.18.4, 1.17.7, 1.16.11).
Rule DropMartians(int) {
  const netlink::Prefix loopback{.address = {127}, .length = 8};
  return {.source = netlink::PrefixMatch{.prefix = loopback, .negated = true},
          .destination = netlink::PrefixMatch{.prefix = loopback},
          .comment = std::string(kMartianComment),
          .ct_state = netlink::CtStateMatch{.states = netlink::kCtRelated |
                                                      netlink::kCtEstablished | netlink::kCtDnat,
                                            .negated = true},
          .target = netlink::Drop{}};
}

// -m mark --mark B/B -j DROP
Rule DropMarked(int bit) {
  return {.comment = std::string(kDropComment), .mark = HasBit(bit), .target = netlink::Drop{}};
}

// -j MARK --or-mark B. Up to 1.18 --set-xmark B/B: the same to the kernel.
Rule SetBit(int bit) {
  return {.target = netlink::SetMark{.value = uint32_t{1} << bit, .mask = uint32_t{1} << bit}};
}

// -m mark ! --mark B/B -j RETURN
Rule ReturnUnmarked(int bit) {
  return {.mark = HasBit(bit, /*negated=*/true), .target = netlink::Return{}};
}

// -j MARK --xor-mark B: the mark has done its work, and must not reach an outer packet
// (kubernetes #78948).
Rule ClearBit(int bit) {
  return {.target = netlink::SetMark{.value = uint32_t{1} << bit, .mask = 0}};
}

// -j MASQUERADE --random-fully
Rule MasqueradeAll(int) {
  return {.comment = std::string(kSnatComment),
          .target = netlink::Masquerade{.random_fully = true}};
}

// -m connlabel --label L --set
Rule SetLabel(int label) {
  return {.conn_label = Label(label, /*set=*/true), .target = netlink::NoTarget{}};
}

// -m connlabel --label L -j MASQUERADE --random-fully
Rule MasqueradeLabelled(int label) {
  return {.conn_label = Label(label), .target = netlink::Masquerade{.random_fully = true}};
}

// -m connlabel --label L -j DROP
Rule DropLabelled(int label) { return {.conn_label = Label(label), .target = netlink::Drop{}}; }

// -j MASQUERADE, where iptables before 1.6.2 wrote it.
Rule MasqueradeAllPlain(int) {
  return {.comment = std::string(kSnatComment), .target = netlink::Masquerade{}};
}

// -m mark --mark B/B -j MASQUERADE --random-fully
Rule MasqueradeMarked(int bit) {
  Rule rule = MasqueradeAll(bit);
  rule.mark = HasBit(bit);
  return rule;
}

Rule MasqueradeMarkedPlain(int bit) {
  Rule rule = MasqueradeAllPlain(bit);
  rule.mark = HasBit(bit);
  return rule;
}

const netlink::NativeTable& NativeMartians() {
  static const auto* const kTable =
      new netlink::NativeTable{.family = netlink::Family::kIPv4,
                               .name = std::string(kNativeTable),
                               .chains = {{"input", NF_INET_LOCAL_IN, kPriority, NativeDrops()},
                                          {"output", NF_INET_LOCAL_OUT, kPriority, NativeDrops()}}};
  return *kTable;
}

}  // namespace kipt::agent
