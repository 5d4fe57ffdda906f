// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/rule_forms.h"

#include <cstdint>
#include <string>

namespace kipt::agent {
namespace {

using netlink::Rule;

constexpr absl::string_view kMartianComment = "block incoming localnet connections";
constexpr absl::string_view kDropComment = "kubernetes firewall for dropping marked packets";
constexpr absl::string_view kSnatComment = "kubernetes service traffic requiring SNAT";

netlink::MarkMatch HasBit(int bit) {
  const uint32_t mask = uint32_t{1} << bit;
  return {.value = mask, .mask = mask};
}

}  // namespace

// Each form stands below the iptables arguments that kubelet runs; B is 1 << bit.

// -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
// CVE-2020-8558: route_localnet, which kube-proxy sets, lets neighbours reach 127.0.0.1. Not on
// IPv6, where the kernel never routes ::1. In kubelet since 1.19 (and 1.18.4, 1.17.7, 1.16.11).
Rule DropMartians(int) {
  netlink::Prefix loopback{.address = {127}, .length = 8};
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
  Rule rule;
  rule.comment = std::string(kDropComment);
  rule.mark = HasBit(bit);
  rule.target = netlink::Drop{};
  return rule;
}

// -j MARK --or-mark B. Up to 1.18 --set-xmark B/B: the same to the kernel.
Rule SetBit(int bit) {
  Rule rule;
  rule.target = netlink::SetMark{.value = uint32_t{1} << bit, .mask = uint32_t{1} << bit};
  return rule;
}

// -m mark ! --mark B/B -j RETURN
Rule ReturnUnmarked(int bit) {
  Rule rule;
  rule.mark = HasBit(bit);
  rule.mark->negated = true;
  rule.target = netlink::Return{};
  return rule;
}

// -j MARK --xor-mark B: the mark has done its work, and must not reach an outer packet
// (kubernetes #78948).
Rule ClearBit(int bit) {
  Rule rule;
  rule.target = netlink::SetMark{.value = uint32_t{1} << bit, .mask = 0};
  return rule;
}

// -j MASQUERADE --random-fully
Rule MasqueradeAll(int) {
  Rule rule;
  rule.comment = std::string(kSnatComment);
  rule.target = netlink::Masquerade{.random_fully = true};
  return rule;
}

// -m connlabel --label L --set
Rule SetLabel(int label) {
  Rule rule;
  rule.conn_label =
      netlink::ConnLabelMatch{.label = static_cast<uint8_t>(label), .set = true, .negated = false};
  rule.target = netlink::NoTarget{};
  return rule;
}

// -m connlabel --label L -j MASQUERADE --random-fully
Rule MasqueradeLabelled(int label) {
  Rule rule;
  rule.conn_label = netlink::ConnLabelMatch{.label = static_cast<uint8_t>(label)};
  rule.target = netlink::Masquerade{.random_fully = true};
  return rule;
}

// -m connlabel --label L -j DROP
Rule DropLabelled(int label) {
  Rule rule;
  rule.conn_label = netlink::ConnLabelMatch{.label = static_cast<uint8_t>(label)};
  rule.target = netlink::Drop{};
  return rule;
}

// The same where iptables before 1.6.2 wrote it.
Rule MasqueradeAllPlain(int) {
  Rule rule = MasqueradeAll(0);
  rule.target = netlink::Masquerade{.random_fully = false};
  return rule;
}

// -m mark --mark B/B -j MASQUERADE --random-fully
Rule MasqueradeMarked(int bit) {
  Rule rule = MasqueradeAll(0);
  rule.mark = HasBit(bit);
  return rule;
}

Rule MasqueradeMarkedPlain(int bit) {
  Rule rule = MasqueradeAllPlain(0);
  rule.mark = HasBit(bit);
  return rule;
}

}  // namespace kipt::agent
