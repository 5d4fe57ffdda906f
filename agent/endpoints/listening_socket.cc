// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/listening_socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace kipt::agent {
namespace {

constexpr int kBacklog = 64;

absl::Status SocketError(absl::string_view address, int error) {
  const std::string message = absl::StrCat("cannot listen on ", address, ": ", ErrorText(error));
  if (error == EADDRINUSE) {
    return absl::FailedPreconditionError(
        absl::StrCat(message, "; stop what listens there, or choose another address"));
  }
  if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) {
    return absl::FailedPreconditionError(
        absl::StrCat(message, "; choose an address of this machine"));
  }
  if (error == EACCES || error == EPERM) {
    int port = 0;
    const bool privileged =
        absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port) && port < 1024;
    return absl::PermissionDeniedError(absl::StrCat(
        message, privileged ? "; ports below 1024 need CAP_NET_BIND_SERVICE"
                            : "; a security module or a filter of system calls forbids it"));
  }
  return absl::ResourceExhaustedError(message);
}

}  // namespace

BindAddress OwnAddress(int fd) {
  BindAddress address;
  address.size = sizeof(address.storage);
  return getsockname(fd, address.get(), &address.size) == 0 ? address : BindAddress();
}

absl::StatusOr<ListeningSocket> ListeningSocket::Bind(absl::string_view address) {
  absl::StatusOr<BindAddress> endpoint = ParseBindAddress(address);
  if (!endpoint.ok()) return endpoint.status();
  const int family = endpoint->family();
  OwnedFd owned(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!owned.valid()) return SocketError(address, errno);
  const int fd = owned.get();
  // A restart must not wait for the connections of the previous process.
  const int on = 1;
  const int off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // [::] is both families, as everywhere in Kubernetes, whatever net.ipv6.bindv6only is.
  if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(fd, endpoint->get(), endpoint->size) != 0 || listen(fd, kBacklog) != 0) {
    return SocketError(address, errno);
  }
  return ListeningSocket{std::move(owned), ToString(OwnAddress(fd))};
}

absl::StatusOr<ListeningSocket> ListeningSocket::Adopt(OwnedFd fd) {
  int type = 0;
  int listens = 0;
  socklen_t size = sizeof(int);
  const bool usable = getsockopt(fd.get(), SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
                      getsockopt(fd.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 &&
                      type == SOCK_STREAM && listens != 0;
  std::string address = usable ? ToString(OwnAddress(fd.get())) : "";
  if (address.empty()) return absl::InvalidArgumentError("not a TCP socket that listens");
  if (fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) return SocketError(address, errno);
  return ListeningSocket{std::move(fd), std::move(address)};
}

}  // namespace kipt::agent
