// SPDX-License-Identifier: Apache-2.0
//
// A cluster of one node as objects of the Kubernetes API.
#ifndef KIPT_TESTS_SKEW_API_SERVER_OBJECTS_H_
#define KIPT_TESTS_SKEW_API_SERVER_OBJECTS_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/skew/kube_proxy/services.h"

namespace kipt::skew {

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

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_API_SERVER_OBJECTS_H_
