// SPDX-License-Identifier: Apache-2.0
//
// File: agent/endpoints/metric_rows.h
//
// Every metric as one row of a table: its name, help and kind, and how its values are read.
#ifndef KIPT_AGENT_ENDPOINTS_METRIC_ROWS_H_
#define KIPT_AGENT_ENDPOINTS_METRIC_ROWS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "agent/config/config.h"
#include "agent/loop/events.h"
#include "agent/loop/round.h"
#include "agent/process/own_process.h"

namespace kipt::agent {

// The values of one metric, by labels.
using MetricSeries = std::map<std::map<std::string, std::string>, double>;

enum class MetricMoment : uint8_t {
  kStart,
  kConfig,
  kReload,
  kRound,
  kLookDone,
  kLockWait,
  kScrape
};

// What rows read. A moment fills in what it has; `config` is null after a reload that failed.
struct MetricFacts {
  absl::string_view version = {};
  const Config* config = nullptr;
  const Round* round = nullptr;
  const AgentState* state = nullptr;
  absl::Duration lock_wait = {};
  // Null where /proc cannot be read.
  const ProcessUsage* usage = nullptr;
};

enum class MetricKind : uint8_t {
  kGauge,      // has exactly the series that were read last
  kCounter,    // has its series from the start, and adds to them what is read
  kTotal,      // a counter that the agent keeps itself
  kHistogram,  // observes what is read, in seconds
};

struct MetricRow {
  // Without kPrefix, except for what every program calls so.
  absl::string_view name;
  const char* help;
  MetricKind kind;
  MetricMoment moment;
  MetricSeries (*read)(const MetricFacts& facts);
  // The series before anything was read; null for none.
  MetricSeries (*first)() = nullptr;
};

extern const absl::Span<const MetricRow> kMetricRows;

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_METRIC_ROWS_H_
