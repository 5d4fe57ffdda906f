// SPDX-License-Identifier: Apache-2.0
//
// File: agent/endpoints/served_addresses.h
//
// The addresses that the daemon answers on. The daemon works without an address that it cannot
// have, because another program has taken the port, say, and tries it again every five seconds.
#ifndef KIPT_AGENT_ENDPOINTS_SERVED_ADDRESSES_H_
#define KIPT_AGENT_ENDPOINTS_SERVED_ADDRESSES_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/log_severity.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "agent/endpoints/http_server.h"
#include "agent/loop/clock.h"
#include "agent/process/files.h"

namespace kipt::agent {

// Not safe for use by several threads at once. Must be destroyed before its loop.
class ServedAddresses {
 public:
  struct Endpoint {
    std::string address;  // as ParseBindAddress takes it
    HttpHandler handler;  // called on a thread of its own, from Serve() on
  };
  // Called on the thread that uses this; both are required.
  struct Handlers {
    // One sentence for the log, at each change.
    std::function<void(absl::LogSeverity, absl::string_view)> notice;
    // problem() has changed, after Serve().
    std::function<void()> changed;
  };

  ServedAddresses(EventLoop& loop, std::vector<Endpoint> endpoints, Handlers handlers);

  // Opens the sockets: call it while the process has its privileges and is in the right network
  // namespace. Uses sockets among `passed` that listen on an endpoint's address; closes the others.
  void Listen(std::vector<OwnedFd> passed);
  // Starts a thread for each socket, and tries again what failed as long as the loop turns.
  void Serve();

  // "cannot listen on 127.0.0.1:10270: Address already in use"; empty where every address answers.
  std::string problem() const;

 private:
  struct Slot {
    Endpoint endpoint;
    absl::Status failure = {};
    std::unique_ptr<HttpServer> server = {};
  };

  void Warn(const std::string& sentence) const;
  void Adopt(OwnedFd fd);
  void Bind(Slot& slot);
  void Start(Slot& slot);
  void Fail(Slot& slot, const absl::Status& status);
  void TryAgain();
  void TryAgainLater();

  EventLoop& loop_;
  const Handlers handlers_;
  std::unique_ptr<EventSource> timer_;  // created when it is needed
  std::vector<Slot> slots_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_SERVED_ADDRESSES_H_
