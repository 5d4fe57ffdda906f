// SPDX-License-Identifier: Apache-2.0
//
// The node's routing, as far as it concerns kubelet's rules:
//
//   * Routing rules that read the packet mark (`ip rule add fwmark ...`) react to the bits that
//     kubelet's chains set, and kubelet's chains react to theirs.
//   * With net.ipv4.conf.*.route_localnet, the kernel takes packets for 127.0.0.0/8 from that
//     interface's neighbours (CVE-2020-8558). kube-proxy's iptables mode sets it for all
//     interfaces, and never resets it.
#ifndef KIPT_AGENT_DETECT_ROUTING_H_
#define KIPT_AGENT_DETECT_ROUTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/policy/dependents.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

struct FwmarkRule {
  netlink::Family family = netlink::Family::kIPv4;
  uint32_t mark = 0;
  uint32_t mask = 0xffffffff;
  bool inverted = false;  // for all other packets: "not from all fwmark ..."
  // As `ip rule` prints it: "32765: from all fwmark 0x4000/0x4000 lookup 100".
  std::string text;

  bool operator==(const FwmarkRule&) const = default;
};

// The routing rules with a fwmark, of both families, in the calling thread's network namespace
// (RTM_GETRULE, rtnetlink(7)). Needs no privilege. Errors as netlink::Socket's.
absl::StatusOr<std::vector<FwmarkRule>> ReadFwmarkRules();

// Each network namespace's first interface, "lo" unless it was renamed; empty where that cannot be
// asked.
std::string LoopbackName();

// What cannot be read may be 1, and is RouteLocalnet::unread. The namespace's own loopback is left
// out, whatever its name. `sysctls` is /proc/sys/net of the calling thread's namespace.
RouteLocalnet ReadRouteLocalnet(const std::string& sysctls = "/proc/sys/net");

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_ROUTING_H_
