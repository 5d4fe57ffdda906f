// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/routing.h
//
// What the node's routing has to do with kubelet's rules:
//
//   * Routing rules that read the packet mark (`ip rule add fwmark ...`): they react to the bits
//     that kubelet's chains set, and kubelet's chains react to theirs.
//   * net.ipv4.conf.*.route_localnet: where it is 1, the kernel takes packets for 127.0.0.0/8 from
//     that interface's neighbours (CVE-2020-8558). kube-proxy's iptables mode sets it for all, and
//     never resets it.
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
  uint32_t priority = 0;
  uint32_t mark = 0;
  uint32_t mask = 0xffffffff;
  // "32765: from all fwmark 0x4000/0x4000 lookup 100", as `ip rule` prints it, as far as we know.
  std::string text;

  bool operator==(const FwmarkRule&) const = default;
};

// Those of the calling thread's network namespace that have a fwmark, of both families, over
// rtnetlink (RTM_GETRULE, rtnetlink(7)). Needs no privilege. Errors as errno says.
absl::StatusOr<std::vector<FwmarkRule>> ReadFwmarkRules();

// The interfaces for which the kernel routes 127.0.0.0/8 (its own setting or that of "all" is 1; lo
// is left out), sorted. "default" is among them where interfaces to come will inherit it. {"all"}
// stands for every interface.
//
// `conf_directory` is the calling thread's namespace's. NotFound: no IPv4 there. Other errors as
// errno says.
absl::StatusOr<std::vector<std::string>> ReadRouteLocalnet(
    const std::string& conf_directory = "/proc/sys/net/ipv4/conf");

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_ROUTING_H_
