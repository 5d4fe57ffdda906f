// SPDX-License-Identifier: Apache-2.0
//
// A node out of network namespaces, which connects pods and clients, IPv4 and IPv6.
//
//   refused  192.168.50.9 ---+                     +--- pod_a  10.180.0.1
//   allowed  203.0.113.9  ---+--- node 192.168.50.2 ---+--- pod_b  10.180.0.2
//   beyond   (1.2.3.5)    ---+                     +--- second 192.168.51.3 --- pod_r 10.180.1.1
#ifndef KIPT_TESTS_SKEW_NODE_TEST_NODE_H_
#define KIPT_TESTS_SKEW_NODE_TEST_NODE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/netns.h"

namespace kipt::skew {

enum class Place {
  kNode,
  // A client outside the load balancers' source ranges, and one inside.
  kRefusedClient,
  kAllowedClient,
  // The next hop for addresses that the node does not have: it has the routed load balancer
  // address.
  kBeyond,
  kPodA,
  kPodB,
  // The second node, and its pod.
  kSecondNode,
  kRemotePod,
};
inline constexpr Place kAllPlaces[] = {
    Place::kNode, Place::kRefusedClient, Place::kAllowedClient, Place::kBeyond,
    Place::kPodA, Place::kPodB,          Place::kSecondNode,    Place::kRemotePod};
const char* NameOf(Place place);

// Its own address. The node has one per neighbour; this is the one clients know.
std::string AddressOf(Place place, testing::IpFamily family);

// Load balancer addresses: one that the node has itself (on lo), one that it routes to kBeyond.
std::string BoundVip(testing::IpFamily family);
std::string RoutedVip(testing::IpFamily family);
// 203.0.113.0/24 and its like of IPv6: holds kAllowedClient alone.
std::string AllowedRange(testing::IpFamily family);
// 10.180.0.0/16: holds all pods.
std::string PodCidr(testing::IpFamily family);

class TestNode {
 public:
  // Made in well under a second. Forwarding is on, routes lead everywhere, replies too; IPv6
  // addresses are usable at once. No iptables rules. The calling thread stays where it is. Nothing
  // has a name in the file system: all is removed with this object, or with the process.
  //
  // PermissionDenied: CAP_SYS_ADMIN is missing. NotFound: ip(8) is missing. Internal: ip's error.
  static absl::StatusOr<std::unique_ptr<TestNode>> Create();

  const testing::Netns& At(Place place) const;
  // All addresses that the node has there, as inet_ntop writes them: a packet with one of them as
  // its source was masqueraded.
  const std::vector<std::string>& NodeAddresses(testing::IpFamily family) const;
  // The 6 bytes of the hardware address of the node's interface towards that neighbour.
  std::string NodeMacTowards(Place neighbour) const;

 private:
  TestNode() = default;
  std::vector<testing::Netns> places_;
  std::vector<std::string> addresses_v4_;
  std::vector<std::string> addresses_v6_;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_NODE_TEST_NODE_H_
