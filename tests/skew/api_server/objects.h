// SPDX-License-Identifier: Apache-2.0
//
// A cluster of one node as objects of the Kubernetes API.
#ifndef KIPT_TESTS_SKEW_API_SERVER_OBJECTS_H_
#define KIPT_TESTS_SKEW_API_SERVER_OBJECTS_H_

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
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

// What there is now, and what has happened to it: resource versions count events.

class EventLog {
 public:
  struct Event {
    Resource resource;
    // "ADDED", "MODIFIED", "DELETED".
    const char* type;
    nlohmann::json object;
  };
  struct Snapshot {
    std::vector<nlohmann::json> items;
    // How many events led to it.
    size_t version = 0;
  };

  void Set(const Objects& objects);
  Snapshot Of(Resource resource) const;
  // The events after `version`, of all resources: waits for the first. Empty: the end.
  std::vector<Event> After(size_t version) const;
  // Ends all waiting.
  void Close();

 private:
  void Add(Resource resource, const char* type, nlohmann::json object)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  Objects objects_ ABSL_GUARDED_BY(mutex_);
  // What objects_ has, with resourceVersion.
  Objects versioned_ ABSL_GUARDED_BY(mutex_);
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_API_SERVER_OBJECTS_H_
