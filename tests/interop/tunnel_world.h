// SPDX-License-Identifier: Apache-2.0
//
// Two nodes, a pod behind each, and a VXLAN tunnel between them; and a neighbour of the one node
// without a tunnel. The calling thread's own network namespace is that node. Who asks whom, over
// each way that a packet can take through the node.
#ifndef KIPT_TESTS_INTEROP_TUNNEL_WORLD_H_
#define KIPT_TESTS_INTEROP_TUNNEL_WORLD_H_

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "tests/support/echo_call.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/netns.h"

namespace kipt::testing {

inline constexpr uint16_t kVxlanPort = 4789;
// What the interface on the tunnel is called.
inline constexpr char kTunnelInterface[] = "tunnel";

enum class Way : uint8_t {
  kToNode,     // from the pod to an address of the node
  kFromNode,   // from the node to the neighbour, from an address that is not the nearest
  kForwarded,  // from the pod to the neighbour
  kTunnelled,  // from the pod to the other node's pod
  kFromTunnel  // from the other node's pod to the pod
};
inline const std::vector<Way> kAllWays = {Way::kToNode, Way::kFromNode, Way::kForwarded,
                                          Way::kTunnelled, Way::kFromTunnel};

// "tunnelled ipv6 tcp 7001" and so on, with what the other end took the caller for; empty where no
// answer came.
using Answers = std::map<std::string, std::string>;

class TunnelWorld {
 public:
  // All answer at each of `ports`. What goes wrong fails the test.
  explicit TunnelWorld(const std::vector<uint16_t>& ports);

  // The connections of `ways`, both families, UDP and TCP, to `port`: to be asked again and again.
  std::map<std::string, EchoCall> Open(const std::vector<Way>& ways, uint16_t port) const;
  // Opens them anew and asks once.
  Answers Ask(const std::vector<Way>& ways, uint16_t port, absl::Duration patience) const;

  // What is answered where nobody interferes, or where the node masquerades (which it cannot do
  // with what is for itself), or where nothing gets through.
  static Answers Unchanged(const std::vector<Way>& ways, uint16_t port);
  static Answers Masqueraded(const std::vector<Way>& ways, uint16_t port);
  static Answers Nothing(const std::vector<Way>& ways, uint16_t port);

 private:
  const Netns pod_;
  const Netns neighbour_;
  const Netns other_node_;
  const Netns other_pod_;
  // In their namespaces.
  std::list<EchoServer> servers_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_INTEROP_TUNNEL_WORLD_H_
