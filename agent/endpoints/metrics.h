// SPDX-License-Identifier: Apache-2.0
//
// File: agent/endpoints/metrics.h
//
// What the agent does, as numbers for Prometheus: a constant number of series, whose labels hold
// our own words only (chains, flags, status codes; never another program's name). Names begin with
// kube_iptables_agent_, but for kubernetes_feature_enabled and process_*, which are called what
// everybody calls them.
#ifndef KIPT_AGENT_ENDPOINTS_METRICS_H_
#define KIPT_AGENT_ENDPOINTS_METRICS_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "agent/config/config.h"
#include "agent/loop/events.h"
#include "agent/loop/round.h"

namespace kipt::agent {

// Safe for use by several threads at once: a text shows a round whole or not at all.
class Metrics {
 public:
  // `version`: of this program, "0.1.0".
  explicit Metrics(absl::string_view version);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Feature gates and deprecated flags as they are from now on. A gate that the configuration no
  // longer knows loses its series.
  void SetConfig(const Config& config);

  // A configuration was read and is not in force; the next SetConfig ends that.
  void ReloadFailed();

  // `state` is the one after `round`. Numbers that tell what stands in the kernel stay what they
  // were where the round could not look.
  void Record(const Round& round, const AgentState& state);

  // One wait for the lock of legacy iptables (/run/xtables.lock), until it was had or given up.
  void LockWaited(absl::Duration wait);

  // In Prometheus' text format, version 0.0.4: families and series in the order of their names.
  // process_* is read from /proc now, and left out where that cannot be done.
  std::string Serialize() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The value of the Content-Type header that belongs to Serialize().
inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_METRICS_H_
