// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/skew/api_server/api_server.h"

namespace kipt::skew {
namespace {

using Json = nlohmann::json;

constexpr char kOtherNode[] = "another-node";

std::string ProtocolOf(const ServicePort& port) {
  return absl::AsciiStrToUpper(NameOf(port.protocol));
}

void AddOnce(Json& list, const Json& value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

Json Metadata(const std::string& service) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(service, absl::MaxSplits('/', 1));
  return {{"namespace", parts.first}, {"name", parts.second}, {"uid", service}};
}

Json NewService(const ServicePort& port) {
  const bool outside = port.node_port != 0 || !port.load_balancer_ips.empty();
  Json spec = {{"type", !port.load_balancer_ips.empty() ? "LoadBalancer"
                        : outside                       ? "NodePort"
                                                        : "ClusterIP"},
               {"clusterIP", port.cluster_ip},
               {"clusterIPs", Json::array()},
               {"ipFamilies", Json::array()},
               {"ports", Json::array()},
               {"sessionAffinity", port.affinity_seconds > 0 ? "ClientIP" : "None"},
               {"internalTrafficPolicy", port.internal_local ? "Local" : "Cluster"}};
  if (port.affinity_seconds > 0) {
    spec["sessionAffinityConfig"] = {{"clientIP", {{"timeoutSeconds", port.affinity_seconds}}}};
  }
  if (outside) spec["externalTrafficPolicy"] = port.external_local ? "Local" : "Cluster";
  if (port.health_check_node_port > 0) spec["healthCheckNodePort"] = port.health_check_node_port;
  return {{"kind", "Service"}, {"metadata", Metadata(port.service)}, {"spec", std::move(spec)}};
}

void AddPort(const ServicePort& port, const char* family, Json& service) {
  Json& spec = service["spec"];
  AddOnce(spec["clusterIPs"], port.cluster_ip);
  AddOnce(spec["ipFamilies"], family);
  Json described = {{"name", port.port_name}, {"protocol", ProtocolOf(port)}, {"port", port.port}};
  if (port.node_port > 0) described["nodePort"] = port.node_port;
  AddOnce(spec["ports"], described);
  for (const std::string& ip : port.external_ips) AddOnce(spec["externalIPs"], ip);
  for (const std::string& range : port.source_ranges) {
    AddOnce(spec["loadBalancerSourceRanges"], range);
  }
  for (const std::string& ip : port.load_balancer_ips) {
    AddOnce(service["status"]["loadBalancer"]["ingress"], Json{{"ip", ip}});
  }
}

// One port of a service and its endpoints. Ports of one service may have other endpoints, so each
// has a slice of its own.
Json SliceOf(const ServicePort& port, const char* family, const std::string& name,
             const std::string& node_name) {
  Json metadata = Metadata(port.service);
  metadata["labels"] = {{"kubernetes.io/service-name", metadata["name"]}};
  metadata["name"] = name;
  metadata["uid"] = name;
  Json endpoints = Json::array();
  for (const Endpoint& endpoint : port.endpoints) {
    const std::string node = endpoint.local ? node_name : kOtherNode;
    endpoints.push_back(
        {{"addresses", {endpoint.address}},
         {"conditions", {{"ready", true}, {"serving", true}, {"terminating", false}}},
         {"nodeName", node},
         // Of v1beta1.
         {"topology", {{"kubernetes.io/hostname", node}}}});
  }
  const int target = port.endpoints.empty() ? port.port : port.endpoints.front().port;
  return {{"kind", "EndpointSlice"},
          {"metadata", std::move(metadata)},
          {"addressType", family},
          {"endpoints", std::move(endpoints)},
          {"ports",
           Json::array(
               {{{"name", port.port_name}, {"protocol", ProtocolOf(port)}, {"port", target}}})}};
}

Json NodeOf(const ClusterSettings& cluster) {
  Json addresses = Json::array({{{"type", "Hostname"}, {"address", cluster.node_name}}});
  for (const std::string& ip : cluster.node_ips) {
    addresses.push_back({{"type", "InternalIP"}, {"address", ip}});
  }
  Json spec = {{"podCIDRs", cluster.pod_cidrs}};
  if (!cluster.pod_cidrs.empty()) spec["podCIDR"] = cluster.pod_cidrs.front();
  return {{"kind", "Node"},
          {"metadata",
           {{"name", cluster.node_name},
            {"uid", cluster.node_name},
            {"labels", {{"kubernetes.io/hostname", cluster.node_name}}}}},
          {"spec", std::move(spec)},
          {"status", {{"addresses", std::move(addresses)}}}};
}

}  // namespace

Objects ObjectsOf(const ClusterSettings& cluster, const std::vector<ServicePort>& ipv4,
                  const std::vector<ServicePort>& ipv6) {
  Objects objects;
  objects[Resource::kNodes][cluster.node_name] = NodeOf(cluster);
  objects[Resource::kServiceCidrs]["kubernetes"] = {{"kind", "ServiceCIDR"},
                                                    {"metadata", {{"name", "kubernetes"}}},
                                                    {"spec", {{"cidrs", cluster.service_cidrs}}}};
  auto& services = objects[Resource::kServices];
  auto& slices = objects[Resource::kEndpointSlices];
  for (const auto& [ports, family] : {std::pair(&ipv4, "IPv4"), std::pair(&ipv6, "IPv6")}) {
    for (const ServicePort& port : *ports) {
      const auto service = services.try_emplace(port.service, NewService(port)).first;
      AddPort(port, family, service->second);
      const std::string name = absl::StrCat(service->second["metadata"]["name"].get<std::string>(),
                                            "-", absl::AsciiStrToLower(family), "-",
                                            port.port_name.empty() ? "port" : port.port_name);
      slices[absl::StrCat(port.service, "/", name)] =
          SliceOf(port, family, name, cluster.node_name);
    }
  }
  return objects;
}

}  // namespace kipt::skew
