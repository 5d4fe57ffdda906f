// SPDX-License-Identifier: Apache-2.0
//
// What interfaces do with the packet mark, which no firewall rule shows:
//
//   * WireGuard gives the packets that it sends to its peers the mark `fwmark` of the interface.
//   * Filters and actions of traffic control (tc) test and set the mark of passing packets.
//
// Not seen, because the kernel does not list it: sockets with SO_MARK (a WireGuard that is a
// program is one), BPF programs that are attached without a filter (tcx, netkit, cgroups), the
// output mark of IPsec states, and a WireGuard interface that was made here and moved to another
// namespace.
#ifndef KIPT_AGENT_DETECT_DEVICE_MARKS_H_
#define KIPT_AGENT_DETECT_DEVICE_MARKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "agent/detect/routing.h"
#include "agent/policy/dependents.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

struct DeviceMark {
  // "the WireGuard interface wg0", "a tc filter of eth0 ingress".
  std::string place;
  // "fwmark 0xca6c"; of a filter like `tc filter show`: "pref 1 fw 0x8000/0xffff skbedit mark 0x1".
  std::string text;
  // Labels mean nothing.
  netlink::Marks marks = {};
  // Bits that every packet has that the filter selects.
  uint32_t carried = 0;
  // Packets on their way out of an interface: what follows sees the mark only if they come back, as
  // from a tunnel or a bridge.
  bool egress = false;
  // Packets of which families it sees.
  bool ipv4 = true;
  bool ipv6 = true;

  bool operator==(const DeviceMark&) const = default;
};

struct DeviceMarks {
  std::vector<DeviceMark> found = {};
  // What could not be read, and why: "WireGuard interfaces: ...".
  std::vector<std::string> problems = {};

  bool operator==(const DeviceMarks&) const = default;
};

// Reads the calling thread's network namespace (rtnetlink; generic netlink only where there is a
// WireGuard interface, which needs CAP_NET_ADMIN over the namespace). Loads no module.
DeviceMarks ReadDeviceMarks();

// The same as retirement's claims on marks (claims.h); a problem claims all bits. A routing rule or
// filter that selects packets with a bit shows that something sets it.
std::vector<Marking> MarkingsOf(const DeviceMarks& devices, absl::Span<const FwmarkRule> rules);
// Reads the calling thread's network namespace.
std::vector<Marking> ReadMarkingsWithoutRules();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_DEVICE_MARKS_H_
