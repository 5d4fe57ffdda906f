// SPDX-License-Identifier: Apache-2.0
//
// File: agent/endpoints/endpoints.h
//
// What the two HTTP addresses answer:
//
//   health address:  /healthz /livez /readyz, with ?verbose as Kubernetes' own
//   metrics address: /metrics /statusz /flagz /configz
//
// and an index at / on both. A reply repeats nothing of its request, and names other processes
// without their arguments, because every local user can read it. /statusz and /flagz have the shape
// of Kubernetes' z-pages (KEP-4827, KEP-4828).
#ifndef KIPT_AGENT_ENDPOINTS_ENDPOINTS_H_
#define KIPT_AGENT_ENDPOINTS_ENDPOINTS_H_

#include <functional>
#include <mutex>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/config/command_line.h"
#include "agent/config/config.h"
#include "agent/endpoints/http_server.h"
#include "agent/loop/clock.h"
#include "agent/loop/events.h"

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
  };

  Endpoints(Setup setup, AgentState state);

  // Call it whenever the heartbeat moves, soon after: the steady clock then measures its age, so
  // that setting the time ends no process.
  void Publish(AgentState state);
  // The configuration as reloaded.
  void SetConfig(Config config);

  // The handlers of the two servers. A failure of /readyz is 503 and always lists the checks:
  //
  //   [+]loop ok
  //   [-]ip6 failed: since 2026-01-31T23:59:58Z, not permitted
  //   readyz check failed
  //
  // A family that is degraded and still ready is "[+]ip ok: degraded since ..., REASON". /livez,
  // and /healthz, its older name, check the loop only, and fail with 500, as Kubernetes' do.
  HttpReply Health(const HttpRequest& request) const;
  // /flagz has every flag as NAME=VALUE: what was given, else the default. What a configuration
  // file sets is in /configz.
  HttpReply Inspect(const HttpRequest& request) const;

 private:
  HttpReply IndexOr404(const HttpRequest& request) const;

  mutable std::mutex mutex_;  // guards all below, except the functions of `setup_`
  Setup setup_;
  AgentState state_;
  SteadyTime heartbeat_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_ENDPOINTS_H_
