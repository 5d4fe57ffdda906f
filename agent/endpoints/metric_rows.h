// SPDX-License-Identifier: Apache-2.0
//
// Every metric as one row of a table: its name, help and kind, and how its values are read.
#ifndef KIPT_AGENT_ENDPOINTS_METRIC_ROWS_H_
#define KIPT_AGENT_ENDPOINTS_METRIC_ROWS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "agent/audit/node_audit.h"
#include "agent/config/config.h"
#include "agent/endpoints/conntrack.h"
#include "agent/loop/agent_state.h"
#include "agent/loop/round.h"
#include "agent/process/own_process.h"

namespace kipt::agent {

// The values of one metric, by labels.
using MetricSeries = std::map<std::map<std::string, std::string>, double>;

// When a row is read.
enum class MetricMoment {
  kStart,
  kConfig,
  kReload,
  kRound,
  kCheckDone,
  kLockWait,
  kAudit,
  kAuditEnd,
  kScrape
};

// What rows read. Each moment fills in its own; `config` is null after a reload that failed.
struct MetricFacts {
  absl::string_view version = {};
  const Config* config = nullptr;
  const Round* round = nullptr;
  const AgentState* state = nullptr;
  absl::Duration lock_wait = {};
  const NodeAudit* audit = nullptr;
  absl::Status audited = {};                     // how an audit ended
  const ProcessUsage* usage = nullptr;           // null where /proc cannot be read
  const ConntrackCounters* conntrack = nullptr;  // null where the kernel tracks no connections
  uint64_t log_lines_dropped = 0;
};

enum class MetricKind {
  kGauge,      // has exactly the series that were read last
  kCounter,    // has its series from the start, and adds to them what is read
  kTotal,      // a counter that the agent keeps itself
  kHistogram,  // observes what is read, in seconds
};

struct MetricRow {
  absl::string_view name;  // without kube_iptables_agent_
  const char* help;
  MetricKind kind;
  MetricMoment moment;
  // Both add to `series`.
  void (*read)(const MetricFacts& facts, MetricSeries& series);
  void (*first)(MetricSeries& series) = nullptr;  // before anything was read; null for none
};

extern const absl::Span<const MetricRow> kMetricRows;

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_METRIC_ROWS_H_
