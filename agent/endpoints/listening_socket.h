// SPDX-License-Identifier: Apache-2.0
//
// The socket of an HTTP server: bound here, or by a service manager.
#ifndef KIPT_AGENT_ENDPOINTS_LISTENING_SOCKET_H_
#define KIPT_AGENT_ENDPOINTS_LISTENING_SOCKET_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/config/value_texts.h"
#include "agent/process/files.h"

namespace kipt::agent {

// The address of this end of a connection, or of a listening socket; empty where it is no IP
// address.
BindAddress OwnAddress(int fd);

struct ListeningSocket {
  OwnedFd fd;           // does not block
  std::string address;  // as in ToString(BindAddress), with the port that the kernel chose

  // Errors as in HttpServer::Bind.
  static absl::StatusOr<ListeningSocket> Bind(absl::string_view address);
  // Errors as in HttpServer::Adopt.
  static absl::StatusOr<ListeningSocket> Adopt(OwnedFd fd);
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_LISTENING_SOCKET_H_
