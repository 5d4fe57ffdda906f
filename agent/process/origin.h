// SPDX-License-Identifier: Apache-2.0
//
// Where a record was made: in which boot of the node, and in which network namespace.
#ifndef KIPT_AGENT_PROCESS_ORIGIN_H_
#define KIPT_AGENT_PROCESS_ORIGIN_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace kipt::agent {

struct NetworkNamespaceId {
  uint64_t device = 0;
  uint64_t inode = 0;  // as `readlink /proc/PID/ns/net` shows it
  // SO_NETNS_COOKIE. The kernel reuses the inode of a namespace that has ended, but not its cookie.
  // Nothing before Linux 5.14.
  std::optional<uint64_t> cookie = {};

  bool operator==(const NetworkNamespaceId&) const = default;
};

struct Origin {
  std::string boot_id;
  NetworkNamespaceId network_namespace;

  bool operator==(const Origin&) const = default;
};

struct OriginPaths {
  std::string boot_id = "/proc/sys/kernel/random/boot_id";
  // Not /proc/self, which is the main thread's.
  std::string netns = "/proc/thread-self/ns/net";
};

// The calling thread's. Any error means that the origin is unknown.
absl::StatusOr<Origin> ReadOrigin(const OriginPaths& paths = {});

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_ORIGIN_H_
