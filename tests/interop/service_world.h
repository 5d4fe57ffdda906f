// SPDX-License-Identifier: Apache-2.0
//
// A node with pods behind it and a client before it, for the services of the captured rulesets: who
// is reached through them, and from which address.
#ifndef KIPT_TESTS_INTEROP_SERVICE_WORLD_H_
#define KIPT_TESTS_INTEROP_SERVICE_WORLD_H_

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/netns.h"

namespace kipt::testing {

// The services of fixture A (tests/agent/testdata/rulesets/README.md), and who asks for them.
struct Call {
  enum class From { kClient, kAllowedClient, kPod };
  From from = From::kClient;
  const char* address = "";
  int port = 80;
};
inline constexpr Call kClusterIp = {Call::From::kClient, "172.30.0.41"};
inline constexpr Call kClusterIpFromAPod = {Call::From::kPod, "172.30.0.41"};
inline constexpr Call kNodePort = {Call::From::kClient, "192.168.50.2", 30002};
// externalTrafficPolicy Local, no endpoint on the node.
inline constexpr Call kLocalNodePort = {Call::From::kClient, "192.168.50.2", 30001};
// Its source ranges are 203.0.113.0/24. The node has the address, as some load balancers want it.
inline constexpr Call kLoadBalancer = {Call::From::kAllowedClient, "1.2.3.4"};
inline constexpr Call kLoadBalancerRefused = {Call::From::kClient, "1.2.3.4"};
inline constexpr Call kHostPort = {Call::From::kClient, "192.168.50.2", 8080};

// What becomes of one.
inline constexpr char kPodMasqueraded[] = "a pod, from the node's address";
inline constexpr char kPodUnchanged[] = "a pod, from the caller's own address";
// Nothing took it and nothing dropped it: a program on the node has it.
inline constexpr char kHost[] = "the node";
inline constexpr char kNobody[] = "nobody";

class ServiceWorld {
 public:
  // The calling thread's network namespace is the node.
  ServiceWorld();
  ~ServiceWorld();
  ServiceWorld(const ServiceWorld&) = delete;
  ServiceWorld& operator=(const ServiceWorld&) = delete;

  // Opens a TCP connection. Whoever it reaches within `patience`, as above.
  std::string Reaches(const Call& call, absl::Duration patience);

 private:
  void Connect();
  void Listen();
  int Dial(const Call& call);
  // Of whoever has accepted a connection, or nobody.
  std::string Accepted(const Call& call);

  Netns client_;
  Netns pods_;
  Netns other_pod_;
  std::vector<int> pod_listeners_;
  std::vector<int> host_listeners_;
};

// Rules of IPv4's filter that drop, with the packets they have dropped: "-A KUBE-FIREWALL ...".
std::map<std::string, int> DropsOf(const Iptables& iptables);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_INTEROP_SERVICE_WORLD_H_
