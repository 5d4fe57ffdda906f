// SPDX-License-Identifier: Apache-2.0
//
// An HttpServer to be tested, and a client that sends it any bytes.
#ifndef KIPT_TESTS_AGENT_ENDPOINTS_RAW_HTTP_CLIENT_H_
#define KIPT_TESTS_AGENT_ENDPOINTS_RAW_HTTP_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "agent/config/value_texts.h"
#include "agent/endpoints/http_server.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {

// Speaks raw bytes.
class RawHttpClient {
 public:
  // From `source`, an address of the loopback network in host order.
  explicit RawHttpClient(const HttpServer& server, uint32_t source = INADDR_LOOPBACK)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(source);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&from), sizeof(from)), 0);
    // Whatever address of this machine it listens on.
    const std::string& address = server.address();
    Connect(absl::StrCat("127.0.0.1", address.substr(address.rfind(':'))));
  }
  explicit RawHttpClient(const std::string& address)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    Connect(address);
  }
  ~RawHttpClient() { close(fd_); }
  RawHttpClient(const RawHttpClient&) = delete;
  RawHttpClient& operator=(const RawHttpClient&) = delete;

  void Send(const std::string& text) {
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t now = send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (now <= 0) return;  // the server has closed: its answer is read nevertheless
      sent += static_cast<size_t>(now);
    }
  }

  // All that comes until the server closes, or `wait` has passed with nothing.
  std::string Receive(absl::Duration wait = absl::Seconds(5)) {
    std::string text;
    pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
    while (poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(wait))) > 0) {
      char piece[4096];
      const ssize_t got = recv(fd_, piece, sizeof(piece), 0);
      if (got <= 0) {
        closed_ = true;
        break;
      }
      text.append(piece, static_cast<size_t>(got));
    }
    return text;
  }
  // As Receive, but no further than `end`.
  std::string ReceiveUntil(const std::string& end) {
    std::string text;
    char byte = 0;
    pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
    while (!absl::EndsWith(text, end) && poll(&readable, 1, 5000) > 0 &&
           recv(fd_, &byte, 1, 0) == 1) {
      text += byte;
    }
    return text;
  }
  // The server has closed, as far as Receive saw.
  bool closed() const { return closed_; }

 private:
  void Connect(const std::string& address) const {
    absl::StatusOr<BindAddress> to = ParseBindAddress(address);
    EXPECT_THAT(to, IsOk());
    EXPECT_EQ(connect(fd_, to->get(), to->size), 0);
  }

  int fd_;
  bool closed_ = false;
};

inline std::string Get(const std::string& path) {
  return absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
}

inline HttpReply Answer(const HttpRequest& request) {
  if (request.path == "/throw") throw std::runtime_error("must not leave the callback");
  if (request.path == "/ok") {
    std::string body = request.verbose ? "ok, verbosely" : "ok";
    for (const std::string& name : request.excluded) body += " without " + name;
    return {.body = body};
  }
  return {.status = 404, .body = "none"};
}

inline std::unique_ptr<HttpServer> Serve(HttpHandler handler = Answer) {
  absl::StatusOr<std::unique_ptr<HttpServer>> server = HttpServer::Bind("127.0.0.1:0");
  EXPECT_THAT(server, IsOk());
  EXPECT_THAT((*server)->Serve(std::move(handler)), IsOk());
  return *std::move(server);
}

inline std::string Exchange(const HttpServer& server, const std::string& request) {
  RawHttpClient client(server);
  client.Send(request);
  return client.Receive();
}

}  // namespace kipt::agent

#endif  // KIPT_TESTS_AGENT_ENDPOINTS_RAW_HTTP_CLIENT_H_
