// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/metric_series.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "agent/endpoints/process_usage.h"

namespace kipt::agent {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

constexpr absl::string_view kPrefix = "kube_iptables_agent_";

Histogram::BucketBoundaries Buckets() {
  return {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
          0.1,    0.25,    0.5,    1,     2.5,    5,     10,   30};
}

prometheus::MetricFamily Single(absl::string_view name, absl::string_view help,
                                prometheus::MetricType type, double value) {
  prometheus::ClientMetric metric;
  metric.gauge.value = value;
  metric.counter.value = value;
  return {.name = Text(name), .help = Text(help), .type = type, .metric = {metric}};
}

}  // namespace

prometheus::Family<Counter>& Counters(prometheus::Registry& registry, absl::string_view name,
                                      absl::string_view help) {
  return prometheus::BuildCounter()
      .Name(absl::StrCat(kPrefix, name))
      .Help(Text(help))
      .Register(registry);
}
prometheus::Family<Gauge>& Gauges(prometheus::Registry& registry, absl::string_view name,
                                  absl::string_view help) {
  return prometheus::BuildGauge()
      .Name(absl::StrCat(kPrefix, name))
      .Help(Text(help))
      .Register(registry);
}
Histogram& OneHistogram(prometheus::Registry& registry, absl::string_view name,
                        absl::string_view help) {
  return prometheus::BuildHistogram()
      .Name(absl::StrCat(kPrefix, name))
      .Help(Text(help))
      .Register(registry)
      .Add({}, Buckets());
}

void GaugeSet::Set(const std::map<Labels, double>& wanted) {
  for (auto series = gauges_.begin(); series != gauges_.end();) {
    if (wanted.contains(series->first)) {
      ++series;
    } else {
      family_.Remove(series->second);
      series = gauges_.erase(series);
    }
  }
  for (const auto& [labels, value] : wanted) {
    Gauge*& gauge = gauges_[labels];
    if (gauge == nullptr) gauge = &family_.Add(labels);
    gauge->Set(value);
  }
}

void AppendProcess(std::vector<prometheus::MetricFamily>& families) {
  const std::optional<ProcessUsage> usage = ReadProcessUsage();
  if (!usage) return;
  using prometheus::MetricType;
  families.push_back(Single("process_start_time_seconds",
                            "Start time of the process since the epoch in seconds.",
                            MetricType::Gauge, usage->start_time_seconds));
  families.push_back(Single("process_cpu_seconds_total",
                            "User and system CPU time spent, in seconds.", MetricType::Counter,
                            usage->cpu_seconds));
  families.push_back(Single("process_resident_memory_bytes", "Resident memory, in bytes.",
                            MetricType::Gauge, usage->resident_bytes));
  families.push_back(Single("process_open_fds", "Number of open file descriptors.",
                            MetricType::Gauge, usage->open_fds));
}

}  // namespace kipt::agent
