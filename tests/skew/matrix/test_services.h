// SPDX-License-Identifier: Apache-2.0
//
// The services of the test node, and the questions asked of them: what a sound node answers.
#ifndef KIPT_TESTS_SKEW_MATRIX_TEST_SERVICES_H_
#define KIPT_TESTS_SKEW_MATRIX_TEST_SERVICES_H_

#include <string>
#include <vector>

#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/probes/probe.h"

namespace kipt::skew {

// What a probe is about: the key of the table of facts, not its name.
enum class About {
  // Served through an address of a service: masqueraded, or with the caller's own address.
  kService,
  // The same, from the node itself: through OUTPUT.
  kServiceFromNode,
  // Past all services, from a client to a pod: not masqueraded.
  kDirect,
  // The service has no endpoint at all.
  kNoEndpoints,
  // To be dropped: a source outside a load balancer's ranges, to an address that the node has, or
  // routes on; a node port with externalTrafficPolicy Local without an endpoint here; a cluster
  // address with internalTrafficPolicy Local without one here.
  kRefusedBoundVip,
  kRefusedRoutedVip,
  kNoLocalEndpoint,
  kNoInternalEndpoint,
  // What the hairpin rule of IPVS mode masquerades, although nothing has marked it.
  kIpvsHairpin,
  // To 127.0.0.1, from a neighbour, and by the node itself through a node port.
  kMartian,
  kLocalhostNodePort,
  // Through chains of third parties.
  kUserDrop,
  kUserMasq,
};

struct Question {
  Probe probe;
  About about = About::kService;
  Outcome sound = Outcome::kServed;
  // Each of so many endpoints gets its share, within five standard deviations; 1: all go to one.
  int balanced_over = 0;
};

// Holds all cluster addresses.
std::string ServiceCidr(testing::IpFamily family);
// Of the services with both protocols.
std::vector<ServicePort> TestServices(testing::IpFamily family);
// Those asked next to a kube-proxy of iptables mode.
std::vector<Question> ServiceQuestions(testing::IpFamily family);
// Those asked on every node.
std::vector<Question> DirectQuestions(testing::IpFamily family);
// Next to a kube-proxy of IPVS mode. Without IPVS no packet comes back to its sender, so a client's
// connection to a pod is what the IP set names, by these lines for `ipset restore`.
std::vector<Question> HairpinQuestions(testing::IpFamily family);
std::string HairpinSetElements(testing::IpFamily family);
// To 127.0.0.1: IPv4.
std::vector<Question> MartianQuestions();
// Next to third parties.
std::vector<Question> UserQuestions(testing::IpFamily family);

// Ports of the third parties' rules.
inline constexpr int kUserDropPort = 9100;
inline constexpr int kUserMasqPort = 9101;

// For streams: services of their own.
struct StreamQuestion {
  Probe probe;
  About about = About::kService;
  // "every packet must be served", "none may reach the host".
  const char* rule = "";
};
std::vector<ServicePort> StreamServices(testing::IpFamily family);
std::vector<StreamQuestion> StreamQuestions(testing::IpFamily family);

// The listeners: the endpoints, and on the node and beyond it programs that should get nothing.
std::vector<ListenerPorts> TestListeners();
std::vector<ListenerPorts> StreamListeners();

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_MATRIX_TEST_SERVICES_H_
