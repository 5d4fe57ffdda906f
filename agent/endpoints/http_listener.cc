// SPDX-License-Identifier: Apache-2.0
//
// HttpListener of http_server.h.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/config/value_texts.h"
#include "agent/endpoints/http_server.h"

namespace kipt::agent {
namespace {

constexpr int kBacklog = 64;

// The address that `fd` is bound to; empty where that is no IP address.
std::string BoundAddress(int fd) {
  BindAddress endpoint;
  endpoint.size = sizeof(endpoint.storage);
  return getsockname(fd, endpoint.get(), &endpoint.size) == 0 ? ToString(endpoint) : "";
}

absl::Status SocketError(absl::string_view address, int error) {
  const std::string message =
      absl::StrCat("cannot listen on ", address, ": ", std::generic_category().message(error));
  switch (error) {
    case EADDRINUSE:
      return absl::FailedPreconditionError(
          absl::StrCat(message, "; stop what listens there, or choose another address"));
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
      return absl::FailedPreconditionError(
          absl::StrCat(message, "; choose an address of this machine"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          absl::StrCat(message, "; ports below 1024 need CAP_NET_BIND_SERVICE"));
    default:
      return absl::ResourceExhaustedError(message);
  }
}

}  // namespace

absl::StatusOr<HttpListener> HttpListener::Bind(absl::string_view address) {
  absl::StatusOr<BindAddress> endpoint = ParseBindAddress(address);
  if (!endpoint.ok()) return endpoint.status();
  const int family = endpoint->storage.ss_family;
  OwnedFd owned(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!owned.valid()) return SocketError(address, errno);
  const int fd = owned.get();
  // A restart must not wait for the connections of the process before it.
  const int on = 1;
  const int off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // [::] is both families, as everywhere in Kubernetes, whatever net.ipv6.bindv6only says.
  if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(fd, endpoint->get(), endpoint->size) != 0 || listen(fd, kBacklog) != 0) {
    return SocketError(address, errno);
  }
  return HttpListener(std::move(owned), BoundAddress(fd));
}

absl::StatusOr<HttpListener> HttpListener::Adopt(OwnedFd fd) {
  int type = 0;
  int listens = 0;
  socklen_t size = sizeof(int);
  const bool usable = getsockopt(fd.get(), SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
                      getsockopt(fd.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 &&
                      type == SOCK_STREAM && listens != 0;
  std::string address = usable ? BoundAddress(fd.get()) : "";
  if (address.empty()) return absl::InvalidArgumentError("not a TCP socket that listens");
  if (fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) return SocketError(address, errno);
  return HttpListener(std::move(fd), std::move(address));
}

}  // namespace kipt::agent
