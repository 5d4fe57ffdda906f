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
#include <memory>
#include <mutex>
#include <string>

#include "absl/time/time.h"
#include "agent/config/command_line.h"
#include "agent/config/config.h"
#include "agent/endpoints/http_server.h"
#include "agent/loop/events.h"
#include "agent/loop/clock.h"

namespace kipt::agent {

// Time, passed in so that tests need not wait.
struct EndpointClock {
  // The time of day, for people.
  std::function<absl::Time()> now;
  // Never set, only goes on; counts from anything.
  std::function<SteadyTime()> steady;
};
EndpointClock SystemEndpointClock();

// How long the event loop may be silent before the process counts as hung.
inline constexpr absl::Duration kDefaultHeartbeatLimit = absl::Minutes(2);

// The answers of /livez (and /healthz, which is its older name) and of /readyz. `silence`: since
// the loop last turned. A failure is 500 for the one, as Kubernetes has it, and 503 for the other,
// and always lists the checks:
//
//   [+]loop ok
//   [-]ip6 failed: since 2026-01-31T23:59:58Z, not permitted
//   readyz check failed
//
// A family that is degraded and ready all the same is "[+]ip ok: degraded since ..., REASON".
HttpReply LivezReply(const HttpRequest& request, absl::Duration silence, absl::Duration limit);
HttpReply ReadyzReply(const HttpRequest& request, const AgentState& state, absl::Duration silence,
                      absl::Duration limit);

// Safe for use by several threads at once: the loop's publishes, the servers' ask.
class Endpoints {
 public:
  struct Setup {
    std::string version;  // of this program
    Flags flags;
    Config config;
    // Metrics::Serialize; called on the server's thread.
    std::function<std::string()> metrics;
    // How late the loop may be. Where nothing happens it turns every --iptables-sync-period.
    absl::Duration heartbeat_limit = kDefaultHeartbeatLimit;
    EndpointClock clock = SystemEndpointClock();
  };

  Endpoints(Setup setup, AgentState state);

  // What is told from now on. To be called whenever the heartbeat moves, and soon after it moved:
  // from then on its age is taken by the steady clock, so that setting the time ends no process.
  void Publish(AgentState state);
  // The configuration as reloaded.
  void SetConfig(Config config);

  // The handlers of the two servers.
  HttpReply Health(const HttpRequest& request) const;
  HttpReply Inspect(const HttpRequest& request) const;

 private:
  // Immutable once published.
  struct Shown {
    AgentState state;
    SteadyTime steady_heartbeat;
  };

  std::shared_ptr<const Shown> MakeShown(AgentState state) const;
  std::shared_ptr<const Shown> shown() const;
  std::shared_ptr<const Config> config() const;
  HttpReply Index() const;

  const std::string version_;
  const Flags flags_;
  const std::function<std::string()> metrics_;
  const absl::Duration heartbeat_limit_;
  const EndpointClock clock_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Shown> shown_;
  std::shared_ptr<const Config> config_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_ENDPOINTS_H_
