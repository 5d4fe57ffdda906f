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

// The interfaces for which the kernel routes 127.0.0.0/8, sorted, without lo: their setting is 1.
// "default" means future interfaces; {"all"}, if that setting is 1, for every interface.
//
// `conf_directory` is that of the calling thread's namespace. NotFound: no IPv4 there. Other errors
// as absl::ErrnoToStatus.
absl::StatusOr<std::vector<std::string>> ReadRouteLocalnet(
    const std::string& conf_directory = "/proc/sys/net/ipv4/conf");

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_ROUTING_H_
