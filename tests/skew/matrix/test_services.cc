// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/matrix/test_services.h"

#include "absl/strings/str_cat.h"
#include "tests/skew/node/test_node.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;

constexpr Protocol kBothProtocols[] = {Protocol::kTcp, Protocol::kUdp};

// One service: its cluster address is 172.30.0.N, or its like of IPv6, and its endpoints listen at
// port 8000 + N.
struct Service {
  const char* name;
  int number;
  std::vector<Place> endpoints;
  int node_port = 0;
  int affinity_seconds = 0;
  bool external_local = false;
  bool internal_local = false;
  enum class Vip { kNone, kBound, kRouted } vip = Vip::kNone;
  int port = 80;
};

std::vector<Service> Table() {
  using Vip = Service::Vip;
  const Place a = Place::kPodA;
  const Place b = Place::kPodB;
  const Place remote = Place::kRemotePod;
  return {
      {.name = "web", .number = 1, .endpoints = {a, b, remote}},
      {.name = "sticky", .number = 2, .endpoints = {a, b, remote}, .affinity_seconds = 10800},
      {.name = "self", .number = 3, .endpoints = {a}},
      {.name = "spread", .number = 4, .endpoints = {b, remote}, .node_port = 30004},
      {.name = "here",
       .number = 5,
       .endpoints = {b, remote},
       .node_port = 30005,
       .external_local = true},
      {.name = "elsewhere",
       .number = 6,
       .endpoints = {remote},
       .node_port = 30006,
       .external_local = true},
      {.name = "bound", .number = 7, .endpoints = {a}, .node_port = 30007, .vip = Vip::kBound},
      {.name = "routed", .number = 8, .endpoints = {a}, .node_port = 30008, .vip = Vip::kRouted},
      {.name = "empty", .number = 9, .endpoints = {}, .node_port = 30009},
      {.name = "inside", .number = 10, .endpoints = {remote}, .internal_local = true},
  };
}

// Separate ports, so that the receiver of a packet that was not served is known.
constexpr int kStreamServicePort = 82;
constexpr int kStreamVipPort = 81;

std::vector<Service> StreamTable() {
  return {
      {.name = "stream-web",
       .number = 21,
       .endpoints = {Place::kPodA, Place::kRemotePod},
       .port = kStreamServicePort},
      {.name = "stream-bound",
       .number = 22,
       .endpoints = {Place::kPodA},
       .node_port = 30022,
       .vip = Service::Vip::kBound,
       .port = kStreamVipPort},
  };
}

constexpr int kMartianPort = 9090;
constexpr int kMartianStreamPort = 9091;

std::string ClusterIp(IpFamily family, int number) {
  return family == IpFamily::kIpv4 ? absl::StrCat("172.30.0.", number)
                                   : absl::StrCat("fd00:30::", absl::Hex(number));
}

std::vector<ServicePort> PortsOf(const std::vector<Service>& services, IpFamily family) {
  std::vector<ServicePort> ports;
  for (const Service& service : services) {
    for (const Protocol protocol : kBothProtocols) {
      ports.push_back({.service = absl::StrCat("skew/", service.name),
                       .port_name = NameOf(protocol),
                       .protocol = protocol,
                       .cluster_ip = ClusterIp(family, service.number),
                       .port = service.port,
                       .node_port = service.node_port,
                       .external_local = service.external_local,
                       .internal_local = service.internal_local,
                       .affinity_seconds = service.affinity_seconds});
      ServicePort& port = ports.back();
      if (service.vip != Service::Vip::kNone) {
        const bool bound = service.vip == Service::Vip::kBound;
        port.load_balancer_ips = {bound ? BoundVip(family) : RoutedVip(family)};
        port.source_ranges = {AllowedRange(family)};
      }
      for (const Place place : service.endpoints) {
        port.endpoints.push_back(
            {AddressOf(place, family), 8000 + service.number, place != Place::kRemotePod});
      }
    }
  }
  return ports;
}

// A question of both protocols.
struct Row {
  const char* name;
  Place from;
  std::string address;
  int port;
  About about;
  Outcome sound;
  int connections = 1;
  int balanced_over = 0;
};

std::vector<Question> Questions(const std::vector<Row>& rows, IpFamily family) {
  std::vector<Question> questions;
  for (const Row& row : rows) {
    for (const Protocol protocol : kBothProtocols) {
      const Probe probe = {
          absl::StrCat(row.name, "/", NameOf(protocol), "/", testing::NameOf(family)),
          row.about == About::kMartian ? ProbeKind::kMartian : ProbeKind::kConnect,
          family,
          protocol,
          row.from,
          row.address,
          row.port,
          row.connections};
      questions.push_back({probe, row.about, row.sound, row.balanced_over});
    }
  }
  return questions;
}

}  // namespace

std::string ServiceCidr(IpFamily family) {
  return family == IpFamily::kIpv4 ? "172.30.0.0/16" : "fd00:30::/112";
}

std::vector<ServicePort> TestServices(IpFamily family) { return PortsOf(Table(), family); }

std::vector<ServicePort> StreamServices(IpFamily family) { return PortsOf(StreamTable(), family); }

std::vector<Question> ServiceQuestions(IpFamily family) {
  const auto ip = [family](int number) { return ClusterIp(family, number); };
  const std::string node = AddressOf(Place::kNode, family);
  const std::string bound = BoundVip(family);
  const std::string routed = RoutedVip(family);
  const Place client = Place::kRefusedClient;
  const Place allowed = Place::kAllowedClient;
  const Place pod = Place::kPodA;
  const Outcome masqueraded = Outcome::kServedMasqueraded;
  return Questions(
      {
          {"cluster-ip-from-client", client, ip(1), 80, About::kService, masqueraded, 60, 3},
          {"cluster-ip-from-pod", pod, ip(4), 80, About::kService, Outcome::kServed},
          {"cluster-ip-from-node", Place::kNode, ip(4), 80, About::kServiceFromNode, masqueraded},
          {"affinity", client, ip(2), 80, About::kService, masqueraded, 10, 1},
          {"hairpin", pod, ip(3), 80, About::kService, masqueraded},
          {"node-port-cluster", client, node, 30004, About::kService, masqueraded},
          {"node-port-local-here", client, node, 30005, About::kService, Outcome::kServed},
          {"node-port-local-elsewhere", client, node, 30006, About::kNoLocalEndpoint,
           Outcome::kDropped},
          {"load-balancer-allowed", allowed, bound, 80, About::kService, masqueraded},
          {"load-balancer-refused", client, bound, 80, About::kRefusedBoundVip, Outcome::kDropped},
          {"load-balancer-routed-allowed", allowed, routed, 80, About::kService, masqueraded},
          {"load-balancer-routed-refused", client, routed, 80, About::kRefusedRoutedVip,
           Outcome::kDropped},
          {"no-endpoints", client, ip(9), 80, About::kNoEndpoints, Outcome::kRejected},
          {"no-endpoints-node-port", client, node, 30009, About::kNoEndpoints, Outcome::kRejected},
          {"internal-local-elsewhere", pod, ip(10), 80, About::kNoInternalEndpoint,
           Outcome::kDropped},
      },
      family);
}

std::vector<Question> DirectQuestions(IpFamily family) {
  return Questions({{"pod-directly", Place::kRefusedClient, AddressOf(Place::kPodA, family), 8001,
                     About::kDirect, Outcome::kServed}},
                   family);
}

std::vector<Question> HairpinQuestions(IpFamily family) {
  return Questions({{"hairpin", Place::kAllowedClient, AddressOf(Place::kPodA, family), 8001,
                     About::kIpvsHairpin, Outcome::kServedMasqueraded}},
                   family);
}

std::string HairpinSetElements(IpFamily family) {
  std::string lines;
  for (const Question& question : HairpinQuestions(family)) {
    absl::StrAppend(&lines, "add KUBE-", family == IpFamily::kIpv6 ? "6-" : "", "LOOP-BACK ",
                    question.probe.address, ",", NameOf(question.probe.protocol), ":",
                    question.probe.port, ",", AddressOf(question.probe.from, family), "\n");
  }
  return lines;
}

std::vector<Question> MartianQuestions() {
  return Questions({{"martian", Place::kRefusedClient, "127.0.0.1", kMartianPort, About::kMartian,
                     Outcome::kDropped},
                    {"localhost-node-port", Place::kNode, "127.0.0.1", 30004,
                     About::kLocalhostNodePort, Outcome::kServedMasqueraded}},
                   IpFamily::kIpv4);
}

std::vector<Question> UserQuestions(IpFamily family) {
  const std::string node = AddressOf(Place::kNode, family);
  return Questions({{"user-of-mark-drop", Place::kRefusedClient, node, kUserDropPort,
                     About::kUserDrop, Outcome::kDropped},
                    {"user-of-mark-masq", Place::kRefusedClient, AddressOf(Place::kPodA, family),
                     kUserMasqPort, About::kUserMasq, Outcome::kServedMasqueraded}},
                   family);
}

std::vector<StreamQuestion> StreamQuestions(IpFamily family) {
  const auto probe = [family](const char* name, const std::string& address, int port) {
    return Probe{.name = absl::StrCat(name, "/", testing::NameOf(family)),
                 .family = family,
                 .protocol = Protocol::kUdp,
                 .from = Place::kRefusedClient,
                 .address = address,
                 .port = port};
  };
  std::vector<StreamQuestion> questions = {
      {probe("stream-service", ClusterIp(family, 21), kStreamServicePort), About::kService,
       "every packet is served, masqueraded"},
      {probe("stream-refused", BoundVip(family), kStreamVipPort), About::kRefusedBoundVip,
       "no packet reaches a program on the node"},
  };
  if (family == IpFamily::kIpv4) {
    questions.push_back({probe("stream-martian", "127.0.0.1", kMartianStreamPort), About::kMartian,
                         "no packet reaches a program on the node"});
    questions.back().probe.kind = ProbeKind::kMartian;
  }
  return questions;
}

std::vector<ListenerPorts> TestListeners() {
  std::vector<int> endpoints;
  for (const Service& service : Table()) endpoints.push_back(8000 + service.number);
  std::vector<ListenerPorts> listeners;
  for (const Place place : {Place::kPodA, Place::kPodB, Place::kRemotePod}) {
    listeners.push_back({place, endpoints});
  }
  listeners[0].ports.push_back(kUserMasqPort);
  ListenerPorts node = {Place::kNode, {80, kMartianPort, kUserDropPort}};
  for (const Service& service : Table()) {
    if (service.node_port != 0) node.ports.push_back(service.node_port);
  }
  listeners.push_back(node);
  listeners.push_back({Place::kBeyond, {80}});
  return listeners;
}

std::vector<ListenerPorts> StreamListeners() {
  return {{Place::kPodA, {8021, 8022}},
          {Place::kRemotePod, {8021}},
          {Place::kNode, {kStreamVipPort, kMartianStreamPort}},
          {Place::kBeyond, {kStreamVipPort, kStreamServicePort}}};
}

}  // namespace kipt::skew
