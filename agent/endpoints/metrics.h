// SPDX-License-Identifier: Apache-2.0
//
// What the agent does, as numbers for Prometheus: a constant number of series, whose labels hold
// our own words only (chains, flags, status codes). Names begin with kube_iptables_agent_, except
// kubernetes_feature_enabled and process_*, which every program calls so.
#ifndef KIPT_AGENT_ENDPOINTS_METRICS_H_
#define KIPT_AGENT_ENDPOINTS_METRICS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/audit/node_audit.h"
#include "agent/config/config.h"
#include "agent/loop/agent_state.h"
#include "agent/loop/round.h"

namespace kipt::agent {

// What the program knows of itself.
struct MetricsOfProgram {
  std::string version = {};  // "0.1.0"
  // Called at each scrape, by any thread; may be empty.
  std::function<uint64_t()> log_lines_dropped = {};
};

// Safe for use by several threads at once: a text shows a round whole or not at all.
class Metrics {
 public:
  explicit Metrics(MetricsOfProgram program);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // A gate that the configuration no longer knows loses its series.
  void SetConfig(const Config& config);

  // A configuration was read and is not in force, until the next SetConfig.
  void ReloadFailed();

  // `state` is the one after `round`. Where the round could not read the kernel, its numbers stay.
  void Record(const Round& round, const AgentState& state);

  // One wait for /run/xtables.lock, successful or not.
  void LockWaited(absl::Duration wait);

  // The last audit; one without a time: none.
  void SetAudit(const NodeAudit& audit);
  // An audit has ended: Aborted where the rules changed meanwhile.
  void AuditEnded(const absl::Status& how);

  // Prometheus' text format, version 0.0.4, sorted by names. Reads process_* from /proc now; leaves
  // it out where that fails.
  std::string Serialize() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The Content-Type of Serialize().
inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_METRICS_H_
