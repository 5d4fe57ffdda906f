// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/route_localnet.h
//
// net.ipv4.conf.*.route_localnet: where it is 1, the kernel takes packets for 127.0.0.0/8 from that
// interface's neighbours (CVE-2020-8558). kube-proxy's iptables mode sets it for all, and never
// resets it.
#ifndef KIPT_AGENT_DETECT_ROUTE_LOCALNET_H_
#define KIPT_AGENT_DETECT_ROUTE_LOCALNET_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kipt::agent {

// The interfaces for which the kernel routes 127.0.0.0/8 (its own setting or that of "all" is 1; lo
// is left out), sorted. "default" is among them where interfaces to come will inherit it. {"all"}
// stands for every interface.
//
// `conf_directory` is the calling thread's namespace's. NotFound: no IPv4 there. Other errors as
// errno says.
absl::StatusOr<std::vector<std::string>> ReadRouteLocalnet(
    const std::string& conf_directory = "/proc/sys/net/ipv4/conf");

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_ROUTE_LOCALNET_H_
