// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/network_namespace.h
#ifndef KIPT_AGENT_PROCESS_NETWORK_NAMESPACE_H_
#define KIPT_AGENT_PROCESS_NETWORK_NAMESPACE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/process/owned_fd.h"

namespace kipt::agent {

// Moves the calling thread, and no other, into the network namespace at `path` (as /run/netns/NAME
// or /proc/PID/ns/net): setns(2). Sockets opened before stay where they were.
//
// NotFound: nothing is at `path`. InvalidArgument: what is there is no network namespace.
// PermissionDenied: CAP_SYS_ADMIN is missing, in either of the two namespaces.
absl::Status EnterNetworkNamespace(const std::string& path);

// The two halves of it. Of what is open at `namespace_fd`, `path` is for the message.
absl::StatusOr<OwnedFd> OpenNetworkNamespace(const std::string& path);
absl::Status EnterNetworkNamespace(const OwnedFd& namespace_fd, const std::string& path);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_NETWORK_NAMESPACE_H_
