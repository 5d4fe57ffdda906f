// SPDX-License-Identifier: Apache-2.0
//
// Services as kube-proxy sees them: one value per port of a Service, with its endpoints.
#ifndef KIPT_TESTS_SKEW_KUBE_PROXY_SERVICES_H_
#define KIPT_TESTS_SKEW_KUBE_PROXY_SERVICES_H_

#include <string>
#include <vector>

namespace kipt::skew {

enum class Protocol { kTcp, kUdp };
const char* NameOf(Protocol protocol);

struct Endpoint {
  // As inet_ntop writes it, without brackets.
  std::string address;
  int port = 0;
  // On this node.
  bool local = false;

  bool operator==(const Endpoint&) const = default;
};

struct ServicePort {
  // "namespace/service", and the port's name, which may be empty.
  std::string service;
  std::string port_name = {};
  Protocol protocol = Protocol::kTcp;
  std::string cluster_ip;
  int port = 0;
  // 0: none.
  int node_port = 0;
  std::vector<std::string> external_ips = {};
  std::vector<std::string> load_balancer_ips = {};
  // loadBalancerSourceRanges, as prefixes.
  std::vector<std::string> source_ranges = {};
  // externalTrafficPolicy and internalTrafficPolicy.
  bool external_local = false;
  bool internal_local = false;
  // 0: none.
  int health_check_node_port = 0;
  // sessionAffinity ClientIP; 0: none.
  int affinity_seconds = 0;
  std::vector<Endpoint> endpoints = {};

  bool operator==(const ServicePort&) const = default;
};

// The first 16 characters of the text's SHA-256 in base 32 (RFC 4648, upper case): its first ten
// bytes.
std::string ChainHash(const std::string& text);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_KUBE_PROXY_SERVICES_H_
