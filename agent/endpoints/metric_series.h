// SPDX-License-Identifier: Apache-2.0
//
// File: agent/endpoints/metric_series.h
//
// The kinds of series that metrics.cc is made of, over prometheus-cpp: names begin with
// kube_iptables_agent_, help is one sentence.
#ifndef KIPT_AGENT_ENDPOINTS_METRIC_SERIES_H_
#define KIPT_AGENT_ENDPOINTS_METRIC_SERIES_H_

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace kipt::agent {

inline std::string Text(absl::string_view text) { return std::string(text); }

prometheus::Family<prometheus::Counter>& Counters(prometheus::Registry& registry,
                                                  absl::string_view name, absl::string_view help);
prometheus::Family<prometheus::Gauge>& Gauges(prometheus::Registry& registry,
                                              absl::string_view name, absl::string_view help);
// Of seconds: from a tenth of a millisecond, what a warm look takes, to half a minute.
prometheus::Histogram& OneHistogram(prometheus::Registry& registry, absl::string_view name,
                                    absl::string_view help);

// Gauges whose labels come and go.
class GaugeSet {
 public:
  explicit GaugeSet(prometheus::Family<prometheus::Gauge>& family) : family_(family) {}

  // Exactly these series from now on.
  void Set(const std::map<prometheus::Labels, double>& wanted);

 private:
  prometheus::Family<prometheus::Gauge>& family_;
  std::map<prometheus::Labels, prometheus::Gauge*> gauges_;
};

// process_*, read from /proc now; nothing where that cannot be done.
void AppendProcess(std::vector<prometheus::MetricFamily>& families);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_METRIC_SERIES_H_
