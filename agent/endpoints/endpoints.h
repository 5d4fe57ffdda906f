// SPDX-License-Identifier: Apache-2.0
//
// The two HTTP addresses, and what they answer:
//
//   health address:  /healthz /livez /readyz, with ?verbose as Kubernetes' own
//   metrics address: /metrics /statusz /auditz /flagz /configz; /auditz?output=json
//
// and an index at / on both. Every local user can read a reply, so it repeats nothing of its
// request and names other processes without their arguments. /statusz and /flagz have the shape of
// Kubernetes' z-pages (KEP-4827, KEP-4828).
#ifndef KIPT_AGENT_ENDPOINTS_ENDPOINTS_H_
#define KIPT_AGENT_ENDPOINTS_ENDPOINTS_H_

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/log_severity.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/audit/node_audit.h"
#include "agent/config/config.h"
#include "agent/endpoints/conntrack.h"
#include "agent/endpoints/http_server.h"
#include "agent/loop/clock.h"
#include "agent/loop/event_loop.h"
#include "agent/process/files.h"
#include "agent/report/daemon_state.h"

namespace kipt::agent {

// Safe for use by several threads at once.
class Endpoints {
 public:
  struct Setup {
    std::string version = {};  // of this program
    Flags flags = {};
    Config config;
    std::function<std::string()> metrics = {};  // Metrics::Serialize, on the server's thread
    // The time of day, for people; and the steady time. Tests give their own.
    std::function<absl::Time()> now = absl::Now;
    std::function<SteadyTime()> steady_now = SteadyNow;
    std::function<std::optional<ConntrackCounters>()> conntrack = [] { return ReadConntrack(); };
  };

  Endpoints(Setup setup, DaemonState state);

  // Call it soon after the heartbeat moves: the steady clock then measures its age, so that setting
  // the time ends no process.
  void Publish(DaemonState state);
  // The configuration as reloaded.
  void SetConfig(Config config);
  // The last audit, for /auditz; null: none.
  void PublishAudit(std::shared_ptr<const NodeAudit> audit);

  // The handlers of the two servers. A failure of /readyz is 503 and always lists the checks:
  //
  //   [+]loop ok
  //   [-]ip6 failed: since 2026-01-31T23:59:58Z, not permitted
  //   readyz check failed
  //
  // A family that is degraded and still ready is "[+]ip ok: degraded since ..., REASON". /livez and
  // its older name /healthz check the loop only, and fail with 500.
  HttpReply Health(const HttpRequest& request) const;
  // /flagz has every flag as NAME=VALUE: what was given, else the default. What a configuration
  // file sets is in /configz.
  HttpReply Inspect(const HttpRequest& request) const;

 private:
  HttpReply IndexOr404(const HttpRequest& request) const;

  mutable std::mutex mutex_;  // guards all below, except the functions of `setup_`
  Setup setup_;
  DaemonState state_;
  SteadyTime heartbeat_ = SteadyTime::InfinitePast();
  std::shared_ptr<const NodeAudit> audit_;
};

// The sockets of these addresses. The daemon works without an address that it cannot bind, and
// tries it again every five seconds.
//
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

  // Opens the missing sockets: call it while the process has its privileges and is in the
  // right network namespace. Uses sockets among `passed` that listen on an endpoint's address;
  // closes the others.
  void Listen(std::vector<OwnedFd> passed);
  // Starts a thread for each socket that has none, and tries again what failed as long as the loop
  // turns.
  void Serve();

  // "cannot listen on 127.0.0.1:10270: Address already in use"; empty where every address answers.
  std::string problem() const;

 private:
  struct Slot {
    Endpoint endpoint;
    absl::Status failure = {};
    std::unique_ptr<HttpServer> server = {};
    bool serves = false;
  };

  void Warn(const std::string& sentence) const;
  void Adopt(OwnedFd fd);
  void Fail(Slot& slot, const absl::Status& status);

  EventLoop& loop_;
  const Handlers handlers_;
  std::unique_ptr<Timer> timer_;  // created when it is needed
  std::vector<Slot> slots_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_ENDPOINTS_H_
