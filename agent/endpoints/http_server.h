// SPDX-License-Identifier: Apache-2.0
//
// A small HTTP/1.1 server for health and metrics: GET and HEAD, no bodies, one thread, bounded in
// connections, memory and time. Wraps Boost.Beast.
#ifndef KIPT_AGENT_ENDPOINTS_HTTP_SERVER_H_
#define KIPT_AGENT_ENDPOINTS_HTTP_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/process/files.h"

namespace kipt::agent {

struct HttpReply {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

struct HttpRequest {
  std::string path;                        // without the query
  bool verbose = false;                    // "?verbose", with or without a value
  bool json = false;                       // "?output=json"
  std::vector<std::string> excluded = {};  // "?exclude=NAME", each
};

// Called on the server's thread.
using HttpHandler = std::function<HttpReply(const HttpRequest&)>;

// One address and the thread that answers there.
class HttpServer {
 public:
  // Binds, and serves nothing yet: call it while the process has its privileges and is in the right
  // network namespace. `address` is as in ParseBindAddress; port 0 is any free one.
  //
  // InvalidArgument: not such an address. FailedPrecondition: it is in use, or not this machine's.
  // PermissionDenied: a port below 1024.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Bind(absl::string_view address);

  // A service manager's socket. InvalidArgument: it is no listening TCP socket.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Adopt(OwnedFd fd);

  // Starts the thread; call once. At most 32 connections at once, 4 from one address; 16 KiB of
  // request, which must arrive within 10 s, as the next one on the same connection must; a reply
  // must be taken within 10 s. Answers 405 to methods other than GET and HEAD, and 400, 413, 414 or
  // 431 to a request that is broken or too large, without `handler`.
  //
  // ResourceExhausted: no descriptors, memory or threads.
  //
  // A request to a loopback address whose Host is no IP address and not localhost gets 403: a web
  // page whose name points at 127.0.0.1 (DNS rebinding) must not read what is served there.
  virtual absl::Status Serve(HttpHandler handler) = 0;

  // Finishes the replies that it is sending, then ends the thread.
  virtual ~HttpServer() = default;
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // With the port that the kernel chose.
  const std::string& address() const { return address_; }

 protected:
  explicit HttpServer(std::string address) : address_(std::move(address)) {}

 private:
  const std::string address_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_HTTP_SERVER_H_
