// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/http_server.h"

#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <limits>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/config/value_texts.h"
#include "agent/endpoints/listening_socket.h"
#include "agent/process/signal_mask.h"

namespace kipt::agent {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kMaxConnections = 32;
constexpr int kMaxPerAddress = 4;
constexpr uint32_t kMaxRequestBytes = uint32_t{16} * 1024;
constexpr size_t kMaxQueryBytes = 1024;
// A request must have arrived, and a reply must have been taken, within this time.
constexpr std::chrono::seconds kPatience(10);
// For replies that are not sent yet when the server ends.
constexpr std::chrono::seconds kFarewell(1);

// An address, or localhost; with or without a port. HTTP/1.0 knows no Host.
bool IsAddressOrLocalhost(absl::string_view host) {
  const size_t bracket = host.rfind(']');
  const size_t colon = host.rfind(':');
  if (colon != host.npos && (bracket == host.npos || colon > bracket)) host = host.substr(0, colon);
  return absl::EqualsIgnoreCase(host, "localhost") ||
         ParseBindAddress(absl::StrCat(host, ":0")).ok();
}

absl::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

using Parser = http::request_parser<http::empty_body>;

// The answer to the headers alone, whatever the path.
std::optional<HttpReply> Refusal(const Parser& parser, int fd) {
  const auto& request = parser.get();
  const size_t hosts = request.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && request.version() >= 11)) {
    return HttpReply{.status = 400, .body = "one Host header is needed\n"};
  }
  if (hosts == 1 && !IsAddressOrLocalhost(View(request[http::field::host])) &&
      IsLoopback(OwnAddress(fd))) {
    return HttpReply{.status = 403,
                     .body = "the Host header must be an IP address or localhost here\n"};
  }
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    return HttpReply{.status = 405, .body = "only GET and HEAD\n"};
  }
  if (parser.content_length().value_or(0) != 0 ||
      request.count(http::field::transfer_encoding) != 0) {
    return HttpReply{.status = 413, .body = "no body is read\n"};
  }
  const absl::string_view target = View(request.target());
  if (target.size() - std::min(target.size(), target.find('?')) > kMaxQueryBytes) {
    return HttpReply{.status = 414, .body = "the query is too long\n"};
  }
  return std::nullopt;
}

// The answer to a request that cannot be read; none if the client has closed or was too slow.
std::optional<HttpReply> Refusal(const Parser& parser, error_code error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    const bool in_request_line = parser.get().target().empty();
    return HttpReply{.status = in_request_line ? 414 : 431, .body = "the request is too large\n"};
  }
  if (error == http::error::end_of_stream || error == http::error::partial_message ||
      error.category() != error_code(http::error::bad_value).category()) {
    return std::nullopt;
  }
  return HttpReply{.status = 400, .body = "not an HTTP request\n"};
}

// Escapes are not decoded: no path and no value of ours needs one.
HttpRequest RequestOf(absl::string_view target) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(target, absl::MaxSplits('?', 1));
  HttpRequest request = {.path = std::string(parts.first)};
  for (absl::string_view argument : absl::StrSplit(parts.second, '&')) {
    if (argument == "verbose" || absl::StartsWith(argument, "verbose=")) request.verbose = true;
    if (argument == "output=json") request.json = true;
    if (absl::ConsumePrefix(&argument, "exclude=")) request.excluded.emplace_back(argument);
  }
  return request;
}

class Connection;

// What the connections of a server share. Only on its thread.
struct Service {
  HttpHandler handler;
  // The one that has been silent for the longest time comes first.
  std::vector<Connection*> connections;
  bool ending = false;
};

// One client. Lives as long as it waits for something.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Service& service, asio::io_context& loop, OwnedFd fd, const BindAddress& peer)
      : service_(service), address_(ToString(peer)), stream_(loop) {
    address_.resize(std::min(address_.size(), address_.rfind(':')));
    error_code refused;
    stream_.socket().assign(peer.family() == AF_INET6 ? tcp::v6() : tcp::v4(), fd.get(), refused);
    if (!refused) fd.Release();
    service.connections.push_back(this);
  }
  ~Connection() { Leave(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Without the port.
  const std::string& address() const { return address_; }
  bool answering() const { return answering_; }

  void ReadRequest() {
    parser_.emplace();
    parser_->header_limit(kMaxRequestBytes);
    parser_->body_limit(std::numeric_limits<uint64_t>::max());
    stream_.expires_after(kPatience);
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code error, size_t) { self->OnRequest(error); });
  }

  // What it waits for ends with an error.
  void Close() {
    Leave();
    stream_.close();
  }

 private:
  void Leave() { std::erase(service_.connections, this); }

  void OnRequest(error_code error) {
    std::optional<HttpReply> refusal =
        error ? Refusal(*parser_, error) : Refusal(*parser_, stream_.socket().native_handle());
    if (error && !refusal) return;
    const auto self = absl::c_find(service_.connections, this);
    if (self == service_.connections.end()) return;
    std::rotate(self, self + 1, service_.connections.end());
    if (refusal) return Send(*std::move(refusal), /*keep=*/false);
    const bool keep = parser_->get().version() >= 11 && parser_->get().keep_alive();
    HttpReply reply = {.status = 500, .body = ""};
    try {
      reply = service_.handler(RequestOf(View(parser_->get().target())));
    } catch (...) {
      // The others' requests are answered all the same.
    }
    Send(std::move(reply), keep);
  }

  void Send(HttpReply reply, bool keep) {
    reply_ = {};
    reply_.result(static_cast<unsigned>(reply.status));
    reply_.set(http::field::date,
               absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now(), absl::UTCTimeZone()));
    reply_.set(http::field::content_type, reply.content_type);
    reply_.set(http::field::cache_control, "no-store");
    reply_.set("X-Content-Type-Options", "nosniff");
    if (reply.status == 405) reply_.set(http::field::allow, "GET, HEAD");
    reply_.content_length(reply.body.size());
    reply_.keep_alive(keep);
    if (parser_->get().method() != http::verb::head) reply_.body() = std::move(reply.body);
    answering_ = true;
    stream_.expires_after(kPatience);
    http::async_write(stream_, reply_, [self = shared_from_this(), keep](error_code error, size_t) {
      self->answering_ = false;
      if (error || self->service_.ending) return;
      if (keep) return self->ReadRequest();
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, error);
      self->stream_.expires_after(kPatience);
      self->ReadToTheEnd();
    });
  }

  // A socket that is closed with unread data resets the connection, and the reply may be lost.
  void ReadToTheEnd() {
    stream_.async_read_some(asio::buffer(rest_),
                            [self = shared_from_this()](error_code error, size_t) {
                              if (!error) self->ReadToTheEnd();
                            });
  }

  Service& service_;
  std::string address_;
  boost::beast::basic_stream<tcp, asio::io_context::executor_type> stream_;
  boost::beast::flat_buffer buffer_{kMaxRequestBytes + 1};
  std::optional<Parser> parser_;
  http::response<http::string_body> reply_;
  std::array<char, 4096> rest_{};
  bool answering_ = false;
};

// A client that takes places and says nothing must not keep out newcomers, such as kubelet's
// probes: the one that was silent for the longest time is disconnected instead.
void MakeRoom(std::vector<Connection*>& connections, const std::string& newcomer) {
  const auto neighbour = [&](const Connection* one) { return one->address() == newcomer; };
  if (absl::c_count_if(connections, neighbour) > kMaxPerAddress) {
    (*absl::c_find_if(connections, neighbour))->Close();
  } else if (connections.size() > kMaxConnections) {
    connections.front()->Close();
  }
}

class ServerThread {
 public:
  // Throws if there is no memory, descriptor or thread.
  ServerThread(HttpHandler handler, OwnedFd& listener)
      : service_({.handler = std::move(handler), .connections = {}}),
        end_(loop_, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        listener_(loop_, listener.get()) {
    listener.Release();
    end_.async_wait(asio::posix::stream_descriptor::wait_read,
                    [this](error_code /*error*/) { loop_.stop(); });
    WaitForClient();
    thread_ = std::thread([this] {
      Work([this] { loop_.run(); });
      service_.ending = true;
      listener_.close();
      for (Connection* one : std::vector(service_.connections)) {
        if (!one->answering()) one->Close();
      }
      loop_.restart();
      Work([this] { loop_.run_for(kFarewell); });
    });
  }
  ~ServerThread() {
    eventfd_write(end_.native_handle(), 1);
    thread_.join();
  }
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;

 private:
  // Where there is no memory for one connection, the others go on.
  static void Work(const std::function<void()>& run) {
    for (bool done = false; !done;) {
      try {
        run();
        done = true;
      } catch (const std::exception&) {
      }
    }
  }

  void WaitForClient() {
    listener_.async_wait(asio::posix::stream_descriptor::wait_read, [this](error_code error) {
      if (error) return;
      WaitForClient();
      Accept();
    });
  }

  // Asio's own accept would let the programs that the agent starts inherit the connection.
  void Accept() {
    BindAddress peer;
    peer.size = sizeof(peer.storage);
    OwnedFd fd(
        accept4(listener_.native_handle(), peer.get(), &peer.size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) {
      const auto client = std::make_shared<Connection>(service_, loop_, std::move(fd), peer);
      MakeRoom(service_.connections, client->address());
      client->ReadRequest();
    } else if (errno == EMFILE || errno == ENFILE) {
      // The client stays in the queue, and the next wait ends at once.
      absl::SleepFor(absl::Milliseconds(100));
    }
  }

  Service service_;
  // Destroyed before what its connections use.
  asio::io_context loop_ = asio::io_context(1);
  // Readable: the thread is to end. Asio ignores it when its own way to wake a thread could not be
  // made.
  asio::posix::stream_descriptor end_;
  asio::posix::stream_descriptor listener_;
  std::thread thread_;
};

class BeastServer : public HttpServer {
 public:
  explicit BeastServer(ListeningSocket socket)
      : HttpServer(std::move(socket.address)), listener_(std::move(socket.fd)) {}

  absl::Status Serve(HttpHandler handler) override {
    try {
      const AllSignalsBlocked inherited;
      thread_ = std::make_unique<ServerThread>(std::move(handler), listener_);
    } catch (const std::exception& error) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot serve ", address(), ": ", error.what()));
    }
    return absl::OkStatus();
  }

 private:
  // Until the thread owns it.
  OwnedFd listener_;
  std::unique_ptr<ServerThread> thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Bind(absl::string_view address) {
  absl::StatusOr<ListeningSocket> socket = ListeningSocket::Bind(address);
  if (!socket.ok()) return socket.status();
  return std::make_unique<BeastServer>(*std::move(socket));
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Adopt(OwnedFd fd) {
  absl::StatusOr<ListeningSocket> socket = ListeningSocket::Adopt(std::move(fd));
  if (!socket.ok()) return socket.status();
  return std::make_unique<BeastServer>(*std::move(socket));
}

}  // namespace kipt::agent
