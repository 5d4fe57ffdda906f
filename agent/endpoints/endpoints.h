// SPDX-License-Identifier: Apache-2.0
//
// File: agent/endpoints/endpoints.h
//
// What the two HTTP addresses answer, from values to replies.
//
//   health address:  /healthz /livez /readyz, with ?verbose as Kubernetes' own
//   metrics address: /metrics /statusz /flagz /configz
//
// and an index at / on both. Nothing of a request comes back in a reply. Other processes are named
// without their arguments: whoever reaches the address reads it.
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

// The two pages for people, in the shape of Kubernetes' z-pages (KEP-4827, KEP-4828).
//
// What the agent is, what it wants, what stands and what went wrong, at `now`. `version`: of this
// program.
std::string StatuszText(const AgentState& state, absl::string_view version, absl::Time now);
// Every flag as NAME=VALUE, in the order of --help: what was given, else the default. What a
// configuration file sets is /configz's affair.
std::string FlagzText(const Flags& flags);

// The answer of /readyz. `silence`: since the loop last turned. A failure is 503, and always lists
// the checks:
//
//   [+]loop ok
//   [-]ip6 failed: since 2026-01-31T23:59:58Z, not permitted
//   readyz check failed
//
// A family that is degraded and ready all the same is "[+]ip ok: degraded since ..., REASON".
HttpReply ReadyzReply(const HttpRequest& request, const AgentState& state, absl::Duration silence,
                      absl::Duration limit);

// Safe for use by several threads at once: the loop's publishes, the servers' ask.
class Endpoints {
 public:
  struct Setup {
    std::string version = {};  // of this program
    Flags flags = {};
    Config config;
    // Metrics::Serialize; called on the server's thread.
    std::function<std::string()> metrics = {};
    // The time of day, for people; and the steady time. Passed in so that tests need not wait.
    std::function<absl::Time()> now = absl::Now;
    std::function<SteadyTime()> steady_now = SteadyNow;
  };

  Endpoints(Setup setup, AgentState state);

  // What is told from now on. To be called whenever the heartbeat moves, and soon after it moved:
  // from then on its age is taken by the steady clock, so that setting the time ends no process.
  void Publish(AgentState state);
  // The configuration as reloaded.
  void SetConfig(Config config);

  // The handlers of the two servers. /livez, and /healthz, which is its older name, list the loop's
  // check only, and their failure is 500, as Kubernetes has it.
  HttpReply Health(const HttpRequest& request) const;
  HttpReply Inspect(const HttpRequest& request) const;

 private:
  HttpReply IndexOr404(const HttpRequest& request) const;

  mutable std::mutex mutex_;  // of all below, but for the functions of `setup_`
  Setup setup_;
  AgentState state_;
  SteadyTime heartbeat_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_ENDPOINTS_H_
