// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for kube-apiserver, as far as kube-proxy asks: plain HTTP on 127.0.0.1, get, list and
// watch of nodes, services, endpointslices (discovery.k8s.io/v1 and v1beta1) and servicecidrs, in
// JSON. A list may also be asked as a watch that begins with it (sendInitialEvents). Selectors are
// not evaluated: all objects fit those that kube-proxy gives.
#ifndef KIPT_TESTS_SKEW_API_SERVER_API_SERVER_H_
#define KIPT_TESTS_SKEW_API_SERVER_API_SERVER_H_

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/skew/kube_proxy/proxy_rules.h"

namespace kipt::skew {

// A cluster of one node as objects of the Kubernetes API.

enum class Resource { kNodes, kServices, kEndpointSlices, kServiceCidrs };

struct ClusterSettings {
  std::string node_name;
  // Of IPv4, then IPv6.
  std::vector<std::string> node_ips;
  std::vector<std::string> pod_cidrs;
  std::vector<std::string> service_cidrs;
};

// By resource, then by "namespace/name"; without apiVersion and resourceVersion, which depend on
// who asks, and when.
using Objects = std::map<Resource, std::map<std::string, nlohmann::json>>;

// A ServicePort of either family is a port of one Service with addresses of both, and of one
// EndpointSlice per family. Endpoints that are not local are on another node.
Objects ObjectsOf(const ClusterSettings& cluster, const std::vector<ServicePort>& ipv4,
                  const std::vector<ServicePort>& ipv6);

class ApiServer {
 public:
  // In the calling thread's network namespace, on a port of the kernel's choice. Its threads end
  // with it.
  static absl::StatusOr<std::unique_ptr<ApiServer>> Start();
  virtual ~ApiServer() = default;

  virtual int port() const = 0;
  // These are all that there are from now on. Who watches is sent the difference: ADDED, MODIFIED,
  // DELETED.
  virtual void Set(const Objects& objects) = 0;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_API_SERVER_API_SERVER_H_
