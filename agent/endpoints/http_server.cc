// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/http_server.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <iterator>
#include <list>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/config/value_texts.h"

namespace kipt::agent {
namespace {

constexpr unsigned int kMaxConnections = 32;
constexpr int kMaxPerAddress = 4;
constexpr size_t kMaxRequestBytes = size_t{16} * 1024;
// Each argument takes memory of the request's, and where that is used up MHD cannot even refuse.
constexpr size_t kMaxQueryBytes = 1024;
constexpr int64_t kMaxArguments = 32;
constexpr unsigned int kIdleSeconds = 10;
constexpr std::chrono::seconds kPatienceAtEnd(1);

// Who is at the other end, without the port.
std::string PeerAddress(const sockaddr* address) {
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET6) {
    const auto* ipv6 = reinterpret_cast<const sockaddr_in6*>(address);
    return {reinterpret_cast<const char*>(&ipv6->sin6_addr), sizeof(ipv6->sin6_addr)};
  }
  const auto* ipv4 = reinterpret_cast<const sockaddr_in*>(address);
  return {reinterpret_cast<const char*>(&ipv4->sin_addr), sizeof(ipv4->sin_addr)};
}

// Owned by MHD's reference count as soon as it is queued.
struct DestroyResponse {
  void operator()(MHD_Response* response) const { MHD_destroy_response(response); }
};

MHD_Result Send(MHD_Connection* connection, const HttpReply& reply) {
  // MHD takes a pointer to what it only copies.
  void* body = const_cast<char*>(reply.body.data());
  const std::unique_ptr<MHD_Response, DestroyResponse> response(
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

// Whether the connection came to an address that only this machine reaches.
bool CameToLoopback(MHD_Connection* connection) {
  const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  BindAddress local;
  local.size = sizeof(local.storage);
  return info != nullptr && getsockname(info->connect_fd, local.get(), &local.size) == 0 &&
         IsLoopback(local);
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
  return host != nullptr && !IsAddressOrLocalhost(host) && CameToLoopback(connection);
}

// What is answered as soon as the headers are there, whatever the path.
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

// Called with the whole target of a request, before MHD takes it apart in place.
void* CheckQuery(void* too_long, const char* target, MHD_Connection* /*connection*/) {
  char* const query = const_cast<char*>(std::strchr(target, '?'));
  if (query == nullptr) return nullptr;
  const absl::string_view text = query;
  if (text.size() <= kMaxQueryBytes && std::count(text.begin(), text.end(), '&') < kMaxArguments) {
    return nullptr;
  }
  // Nothing is left to take apart; the request is refused when its headers are there.
  query[1] = '\0';
  return too_long;
}

// Paths are compared as they come: none of ours has a character that needs an escape, and a decoded
// %00 would end the path early.
size_t KeepEscapes(void* /*unused*/, MHD_Connection* /*connection*/, char* text) {
  return std::strlen(text);
}

}  // namespace

// MHD's idle time begins anew with each byte, so a client that sends one byte now and then could
// keep its place for hours; and MHD's own limit per address would then turn away the newcomer: a
// kubelet that probes, say. So the one who gives way is whoever has not sent a whole request for
// the longest time.
struct HttpServer::Impl {
  struct Peer {
    std::string address;
    MHD_socket fd;
    std::list<Peer>::iterator self;
    // Told to go; MHD has not noticed yet.
    bool leaving = false;
  };
  struct StopDaemon {
    void operator()(MHD_Daemon* stopped) const { MHD_stop_daemon(stopped); }
  };

  static MHD_Result OnRequest(void* context, MHD_Connection* connection, const char* url,
                              const char* method, const char* version, const char* upload,
                              size_t* upload_size, void** request);
  static void OnRequestEnded(void* context, MHD_Connection* connection, void** request,
                             MHD_RequestTerminationCode why);
  static void OnConnection(void* context, MHD_Connection* connection, void** peer,
                           MHD_ConnectionNotificationCode what);
  HttpReply Answer(MHD_Connection* connection, const char* url) const;
  void NoteAnswering(int change);
  // Until nothing is, but not for long.
  void AwaitAnswers();
  void MakeRoom(const std::string& newcomer);
  void Add(MHD_Connection* connection, void** peer);
  void Touch(MHD_Connection* connection);

  HttpHandler handler;
  std::string address;
  // Its address marks a request whose query is not read.
  char too_long = 0;
  // Only on MHD's thread. Who has been silent for the longest time comes first.
  std::list<Peer> peers;
  // Requests that came to the handler and whose reply is not sent yet.
  int answering = 0;
  std::mutex mutex;  // of `answering`
  std::condition_variable answered;
  // Destroyed first: this ends the thread.
  std::unique_ptr<MHD_Daemon, StopDaemon> daemon;
};

HttpReply HttpServer::Impl::Answer(MHD_Connection* connection, const char* url) const {
  HttpRequest request{.path = url};
  request.verbose = MHD_lookup_connection_value_n(connection, MHD_GET_ARGUMENT_KIND, "verbose", 7,
                                                  nullptr, nullptr) == MHD_YES;
  return handler(request);
}

MHD_Result HttpServer::Impl::OnRequest(void* context, MHD_Connection* connection, const char* url,
                                       const char* method, const char* /*version*/,
                                       const char* /*upload*/, size_t* /*upload_size*/,
                                       void** request) {
  auto* impl = static_cast<Impl*>(context);
  // A C library calls, and knows no exceptions.
  try {
    if (*request == nullptr || *request == &impl->too_long) {
      // The first of two calls. An answer given here ends the connection, which a refusal should.
      std::optional<HttpReply> refusal = Refusal(connection, method);
      if (*request == &impl->too_long && !refusal) {
        refusal = {.status = MHD_HTTP_URI_TOO_LONG, .body = "the query is too long\n"};
      }
      *request = impl;
      impl->Touch(connection);
      return refusal ? Send(connection, *refusal) : MHD_YES;
    }
    impl->NoteAnswering(1);
    *request = &impl->answering;
    return Send(connection, impl->Answer(connection, url));
  } catch (...) {
    return Send(connection, HttpReply{.status = MHD_HTTP_INTERNAL_SERVER_ERROR, .body = ""});
  }
}

void HttpServer::Impl::OnRequestEnded(void* context, MHD_Connection* /*connection*/, void** request,
                                      MHD_RequestTerminationCode /*why*/) {
  auto* impl = static_cast<Impl*>(context);
  if (*request == &impl->answering) impl->NoteAnswering(-1);
}

void HttpServer::Impl::NoteAnswering(int change) {
  const std::lock_guard<std::mutex> lock(mutex);
  answering += change;
  answered.notify_all();
}

void HttpServer::Impl::AwaitAnswers() {
  std::unique_lock<std::mutex> lock(mutex);
  answered.wait_for(lock, kPatienceAtEnd, [this] { return answering == 0; });
}

void HttpServer::Impl::OnConnection(void* context, MHD_Connection* connection, void** peer,
                                    MHD_ConnectionNotificationCode what) {
  auto* impl = static_cast<Impl*>(context);
  try {
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
      impl->Add(connection, peer);
    } else if (*peer != nullptr) {
      impl->peers.erase(static_cast<Peer*>(*peer)->self);
      *peer = nullptr;
    }
  } catch (...) {
    // No memory to remember it: it lives by MHD's limits alone.
    *peer = nullptr;
  }
}

void HttpServer::Impl::MakeRoom(const std::string& newcomer) {
  const auto staying = [](const Peer& peer) { return !peer.leaving; };
  const auto neighbour = [&newcomer](const Peer& peer) {
    return !peer.leaving && peer.address == newcomer;
  };
  auto leaver = peers.end();
  if (std::count_if(peers.begin(), peers.end(), neighbour) >= kMaxPerAddress) {
    leaver = std::find_if(peers.begin(), peers.end(), neighbour);
  } else if (std::count_if(peers.begin(), peers.end(), staying) + 1 >=
             static_cast<int>(kMaxConnections)) {
    // One before MHD itself is full: it would let nobody in.
    leaver = std::find_if(peers.begin(), peers.end(), staying);
  }
  if (leaver == peers.end()) return;
  leaver->leaving = true;
  shutdown(leaver->fd, SHUT_RDWR);
}

void HttpServer::Impl::Add(MHD_Connection* connection, void** peer) {
  const auto* client = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  const auto* fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  if (client == nullptr || fd == nullptr) return;
  std::string from = PeerAddress(client->client_addr);
  MakeRoom(from);
  peers.push_back({.address = std::move(from), .fd = fd->connect_fd, .self = {}});
  peers.back().self = std::prev(peers.end());
  *peer = &peers.back();
}

void HttpServer::Impl::Touch(MHD_Connection* connection) {
  const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  if (info == nullptr || info->socket_context == nullptr) return;
  peers.splice(peers.end(), peers, static_cast<Peer*>(info->socket_context)->self);
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpListener listener,
                                                              HttpHandler handler) {
  auto impl = std::make_unique<Impl>();
  impl->handler = std::move(handler);
  impl->address = listener.address();
  // Signals are the event loop's; MHD's thread inherits this thread's mask.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  impl->daemon.reset(MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC, 0, nullptr, nullptr, &Impl::OnRequest,
      impl.get(), MHD_OPTION_LISTEN_SOCKET, listener.fd_.get(),        //
      MHD_OPTION_CONNECTION_LIMIT, kMaxConnections,                    //
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, kMaxRequestBytes,            //
      MHD_OPTION_CONNECTION_TIMEOUT, kIdleSeconds,                     //
      MHD_OPTION_STRICT_FOR_CLIENT, 1,                                 //
      MHD_OPTION_UNESCAPE_CALLBACK, &KeepEscapes, nullptr,             //
      MHD_OPTION_URI_LOG_CALLBACK, &CheckQuery, &impl->too_long,       //
      MHD_OPTION_NOTIFY_COMPLETED, &Impl::OnRequestEnded, impl.get(),  //
      MHD_OPTION_NOTIFY_CONNECTION, &Impl::OnConnection, impl.get(),   //
      MHD_OPTION_END));
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (impl->daemon == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot serve ", impl->address, ": ", std::generic_category().message(error)));
  }
  // MHD's from now on: it closes the socket when it stops.
  listener.fd_.Release();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
// MHD drops at once what it has not sent yet.
HttpServer::~HttpServer() { impl_->AwaitAnswers(); }

const std::string& HttpServer::address() const { return impl_->address; }

}  // namespace kipt::agent
