// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/http_server.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/config/value_texts.h"

namespace kipt::agent {
namespace {

constexpr unsigned int kMaxConnections = 32;
constexpr int kMaxPerAddress = 4;
constexpr size_t kMaxRequestBytes = size_t{16} * 1024;
// Each argument takes memory of the request; without any left, MHD cannot even refuse.
constexpr size_t kMaxQueryBytes = 1024;
constexpr int64_t kMaxArguments = 32;
constexpr unsigned int kIdleSeconds = 10;
constexpr int kBacklog = 64;

// Our end's address (getsockname), or the peer's (getpeername); empty where it is no IP address.
BindAddress AddressOf(int fd, decltype(&getsockname) ask) {
  BindAddress address;
  address.size = sizeof(address.storage);
  return ask(fd, address.get(), &address.size) == 0 ? address : BindAddress();
}

MHD_socket SocketOf(MHD_Connection* connection) {
  const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info == nullptr ? MHD_INVALID_SOCKET : info->connect_fd;
}

// Owned by MHD's reference count as soon as it is queued.
using Response =
    std::unique_ptr<MHD_Response,
                    decltype([](MHD_Response* response) { MHD_destroy_response(response); })>;

MHD_Result Send(MHD_Connection* connection, const HttpReply& reply) {
  // MHD takes a pointer to what it only copies.
  void* body = const_cast<char*>(reply.body.data());
  const Response response(
      MHD_create_response_from_buffer(reply.body.size(), body, MHD_RESPMEM_MUST_COPY));
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response.get(), MHD_HTTP_HEADER_CONTENT_TYPE, reply.content_type.c_str());
  MHD_add_response_header(response.get(), MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
  MHD_add_response_header(response.get(), "X-Content-Type-Options", "nosniff");
  if (reply.status == MHD_HTTP_METHOD_NOT_ALLOWED) {
    MHD_add_response_header(response.get(), MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  }
  return MHD_queue_response(connection, static_cast<unsigned int>(reply.status), response.get());
}

bool HasBody(MHD_Connection* connection) {
  const char* length =
      MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
  return (length != nullptr && std::strcmp(length, "0") != 0) ||
         MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
                                     MHD_HTTP_HEADER_TRANSFER_ENCODING) != nullptr;
}

// An address, or localhost; with or without a port. HTTP/1.0 knows no Host.
bool IsAddressOrLocalhost(absl::string_view host) {
  const size_t bracket = host.rfind(']');
  const size_t colon = host.rfind(':');
  if (colon != host.npos && (bracket == host.npos || colon > bracket)) host = host.substr(0, colon);
  return absl::EqualsIgnoreCase(host, "localhost") ||
         ParseBindAddress(absl::StrCat(host, ":0")).ok();
}

bool NamesAnotherHost(MHD_Connection* connection) {
  const char* host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
  return host != nullptr && !IsAddressOrLocalhost(host) &&
         IsLoopback(AddressOf(SocketOf(connection), getsockname));
}

// The answer to the headers alone, whatever the path.
std::optional<HttpReply> Refusal(MHD_Connection* connection, const char* method) {
  if (NamesAnotherHost(connection)) {
    return HttpReply{.status = MHD_HTTP_FORBIDDEN,
                     .body = "the Host header must be an IP address or localhost here\n"};
  }
  if (std::strcmp(method, MHD_HTTP_METHOD_GET) != 0 &&
      std::strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
    return HttpReply{.status = MHD_HTTP_METHOD_NOT_ALLOWED, .body = "only GET and HEAD\n"};
  }
  if (HasBody(connection)) {
    return HttpReply{.status = MHD_HTTP_CONTENT_TOO_LARGE, .body = "no body is read\n"};
  }
  return std::nullopt;
}

// Called with the whole target of a request, before MHD splits it in place.
void* CheckQuery(void* too_long, const char* target, MHD_Connection* /*connection*/) {
  char* const query = const_cast<char*>(std::strchr(target, '?'));
  if (query == nullptr) return nullptr;
  const absl::string_view text = query;
  if (text.size() <= kMaxQueryBytes && absl::c_count(text, '&') < kMaxArguments) return nullptr;
  // Leaves nothing to split; OnRequest refuses the request.
  query[1] = '\0';
  return too_long;
}

// Paths are not decoded: none of ours needs an escape, and a decoded %00 would end the path early.
size_t KeepEscapes(void* /*unused*/, MHD_Connection* /*connection*/, char* text) {
  return std::strlen(text);
}

MHD_Result AddExcluded(void* excluded, MHD_ValueKind /*kind*/, const char* key, const char* value) {
  if (absl::string_view(key) == "exclude" && value != nullptr) {
    static_cast<std::vector<std::string>*>(excluded)->emplace_back(value);
  }
  return MHD_YES;
}

// MHD's idle time restarts with each byte, so a client that sends one byte now and then could keep
// its connection for hours, and MHD's own limit per address would reject newcomers, such as
// kubelet's probes. So the peer that was silent for the longest time is disconnected instead.
class MhdServer : public HttpServer {
 public:
  MhdServer(OwnedFd listener, std::string address)
      : HttpServer(std::move(address)), listener_(std::move(listener)) {}
  // Waits up to a second for replies that are not sent yet, which MHD would drop.
  ~MhdServer() override {
    for (int i = 0; i < 100 && answering_ > 0; ++i) absl::SleepFor(absl::Milliseconds(10));
  }

  absl::Status Serve(HttpHandler handler) override {
    handler_ = std::move(handler);
    // Signals are the event loop's; MHD's thread inherits this thread's mask.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    daemon_.reset(MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC, 0, nullptr, nullptr,
                                   &OnRequest, this, MHD_OPTION_LISTEN_SOCKET, listener_.get(),  //
                                   MHD_OPTION_CONNECTION_LIMIT, kMaxConnections,                 //
                                   MHD_OPTION_CONNECTION_MEMORY_LIMIT, kMaxRequestBytes,         //
                                   MHD_OPTION_CONNECTION_TIMEOUT, kIdleSeconds,                  //
                                   MHD_OPTION_STRICT_FOR_CLIENT, 1,                              //
                                   MHD_OPTION_UNESCAPE_CALLBACK, &KeepEscapes, nullptr,          //
                                   MHD_OPTION_URI_LOG_CALLBACK, &CheckQuery, &too_long_,         //
                                   MHD_OPTION_NOTIFY_COMPLETED, &OnRequestEnded, this,           //
                                   MHD_OPTION_NOTIFY_CONNECTION, &OnConnection, this,            //
                                   MHD_OPTION_END));
    const int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (daemon_ == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot serve ", address(), ": ", ErrorText(error)));
    }
    // MHD closes the socket when it stops.
    listener_.Release();
    return absl::OkStatus();
  }

 private:
  struct Peer {
    MHD_socket fd;
    std::string address;  // without the port
  };

  static MHD_Result OnRequest(void* context, MHD_Connection* connection, const char* url,
                              const char* method, const char* /*version*/, const char* /*upload*/,
                              size_t* /*upload_size*/, void** request) {
    auto* self = static_cast<MhdServer*>(context);
    // The caller is C, where no exception may arrive.
    try {
      if (*request == nullptr || *request == &self->too_long_) {
        // The first of two calls; an answer here also closes the connection.
        std::optional<HttpReply> refusal = Refusal(connection, method);
        if (*request == &self->too_long_ && !refusal) {
          refusal = {.status = MHD_HTTP_URI_TOO_LONG, .body = "the query is too long\n"};
        }
        *request = self;
        self->Touch(SocketOf(connection));
        return refusal ? Send(connection, *refusal) : MHD_YES;
      }
      ++self->answering_;
      *request = &self->answering_;
      const bool verbose = MHD_lookup_connection_value_n(connection, MHD_GET_ARGUMENT_KIND,
                                                         "verbose", 7, nullptr, nullptr) == MHD_YES;
      const char* output = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "output");
      const bool json = output != nullptr && absl::string_view(output) == "json";
      HttpRequest asked = {.path = url, .verbose = verbose, .json = json};
      MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, &AddExcluded, &asked.excluded);
      return Send(connection, self->handler_(asked));
    } catch (...) {
      return Send(connection, HttpReply{.status = MHD_HTTP_INTERNAL_SERVER_ERROR, .body = ""});
    }
  }

  static void OnRequestEnded(void* context, MHD_Connection* /*connection*/, void** request,
                             MHD_RequestTerminationCode /*why*/) {
    auto* self = static_cast<MhdServer*>(context);
    if (*request == &self->answering_) --self->answering_;
  }

  static void OnConnection(void* context, MHD_Connection* connection, void** /*unused*/,
                           MHD_ConnectionNotificationCode what) {
    auto* self = static_cast<MhdServer*>(context);
    const MHD_socket fd = SocketOf(connection);
    if (what != MHD_CONNECTION_NOTIFY_STARTED) {
      std::erase_if(self->peers_, [fd](const Peer& peer) { return peer.fd == fd; });
      return;
    }
    try {
      std::string from = ToString(AddressOf(fd, getpeername));
      from.resize(std::min(from.size(), from.rfind(':')));
      self->MakeRoom(from);
      self->peers_.push_back({fd, std::move(from)});
    } catch (...) {
      // No memory to remember it: MHD's own limits remain.
    }
  }

  void MakeRoom(const std::string& newcomer) {
    const auto neighbour = [&](const Peer& peer) { return peer.address == newcomer; };
    auto leaver = peers_.end();
    if (absl::c_count_if(peers_, neighbour) >= kMaxPerAddress) {
      leaver = absl::c_find_if(peers_, neighbour);
    } else if (peers_.size() + 1 >= kMaxConnections) {
      // Before MHD itself is full and accepts no connection.
      leaver = peers_.begin();
    }
    if (leaver == peers_.end()) return;
    // MHD then closes it.
    shutdown(leaver->fd, SHUT_RDWR);
    peers_.erase(leaver);
  }

  void Touch(MHD_socket fd) {
    const auto peer = absl::c_find_if(peers_, [fd](const Peer& one) { return one.fd == fd; });
    if (peer != peers_.end()) std::rotate(peer, peer + 1, peers_.end());
  }

  HttpHandler handler_;
  // Until MHD owns it.
  OwnedFd listener_;
  // Its address marks a request whose query is not read.
  char too_long_ = 0;
  // Only on MHD's thread. Longest silent first.
  std::vector<Peer> peers_;
  // Requests of the handler whose reply is not sent yet.
  std::atomic<int> answering_ = 0;
  // Destroyed first: this ends the thread.
  std::unique_ptr<MHD_Daemon, decltype([](MHD_Daemon* daemon) { MHD_stop_daemon(daemon); })>
      daemon_;
};

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

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Bind(absl::string_view address) {
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
  return std::make_unique<MhdServer>(std::move(owned), ToString(AddressOf(fd, getsockname)));
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Adopt(OwnedFd fd) {
  int type = 0;
  int listens = 0;
  socklen_t size = sizeof(int);
  const bool usable = getsockopt(fd.get(), SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
                      getsockopt(fd.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 &&
                      type == SOCK_STREAM && listens != 0;
  std::string address = usable ? ToString(AddressOf(fd.get(), getsockname)) : "";
  if (address.empty()) return absl::InvalidArgumentError("not a TCP socket that listens");
  if (fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) return SocketError(address, errno);
  return std::make_unique<MhdServer>(std::move(fd), std::move(address));
}

}  // namespace kipt::agent
