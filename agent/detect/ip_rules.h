// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/ip_rules.h
//
// Routing rules that look at the packet mark (`ip rule add fwmark ...`): they react to the bits
// that kubelet's chains set, and kubelet's chains react to theirs.
#ifndef KIPT_AGENT_DETECT_IP_RULES_H_
#define KIPT_AGENT_DETECT_IP_RULES_H_

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

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_IP_RULES_H_
