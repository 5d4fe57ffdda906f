// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/native_martians.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter_ipv4.h>

#include <vector>

#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::NativeChain;
using netlink::NativeDrop;

// "None of RELATED, ESTABLISHED, DNAT" takes two rules: a packet without a connection has no status
// to test, and a rule that tests it passes such a packet on.
std::vector<NativeDrop> Rules() {
  const netlink::Rule martian = DropMartians(0);
  NativeDrop without_connection = {.source = martian.source, .destination = martian.destination};
  without_connection.comment = martian.comment;
  NativeDrop with_connection = without_connection;
  without_connection.state_any = NF_CT_STATE_INVALID_BIT | NF_CT_STATE_UNTRACKED_BIT;
  with_connection.state_none = NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED);
  with_connection.status_none = IPS_DST_NAT;
  return {without_connection, with_connection};
}

// A drop in any base chain is final, so anywhere on the hook would do; before iptables' filter, so
// that an admin's ACCEPT rules read as they do beside KUBE-FIREWALL, which stands first.
constexpr int32_t kPriority = NF_IP_PRI_FILTER - 1;

}  // namespace

netlink::NativeTable NativeMartians() {
  return {
      .family = netlink::Family::kIPv4,
      .name = std::string(kNativeTable),
      .chains = {
          NativeChain{
              .name = "input", .hook = NF_INET_LOCAL_IN, .priority = kPriority, .rules = Rules()},
          NativeChain{.name = "output",
                      .hook = NF_INET_LOCAL_OUT,
                      .priority = kPriority,
                      .rules = Rules()}}};
}

}  // namespace kipt::agent
