// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/metrics.h"

#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/endpoints/metric_rows.h"
#include "agent/process/own_process.h"

namespace kipt::agent {
namespace {

using prometheus::MetricType;

constexpr absl::string_view kPrefix = "kube_iptables_agent_";

// From a tenth of a millisecond (a warm check) to half a minute.
constexpr double kBuckets[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                               0.1,    0.25,    0.5,    1,     2.5,    5,     10,   30};

}  // namespace

struct Metrics::Impl {
  struct Metric {
    const MetricRow* row = nullptr;
    MetricSeries series;
    prometheus::Histogram histogram{{std::begin(kBuckets), std::end(kBuckets)}};
  };

  void Read(const std::vector<MetricMoment>& moments, const MetricFacts& facts) {
    const std::lock_guard<std::mutex> lock(mutex);
    for (auto& [name, metric] : metrics) {
      const MetricRow& row = *metric.row;
      if (!absl::c_linear_search(moments, row.moment)) continue;
      MetricSeries read;
      row.read(facts, read);
      if (row.kind == MetricKind::kGauge || row.kind == MetricKind::kTotal) {
        metric.series = std::move(read);
        continue;
      }
      for (const auto& [labels, value] : read) {
        if (row.kind == MetricKind::kHistogram) metric.histogram.Observe(value);
        // Other labels than the first series' are not kubelet's.
        const auto counter = metric.series.find(labels);
        if (counter != metric.series.end()) counter->second += value;
      }
    }
  }

  MetricsOfProgram program;
  std::mutex mutex;
  std::map<std::string, Metric> metrics;  // by their names
};

Metrics::Metrics(MetricsOfProgram program) : impl_(std::make_unique<Impl>()) {
  impl_->program = std::move(program);
  for (const MetricRow& row : kMetricRows) {
    const bool shared =
        absl::StartsWith(row.name, "kubernetes_") || absl::StartsWith(row.name, "process_");
    Impl::Metric& metric = impl_->metrics[absl::StrCat(shared ? "" : kPrefix, row.name)];
    metric.row = &row;
    if (row.first != nullptr) row.first(metric.series);
  }
  impl_->Read({MetricMoment::kStart}, {.version = impl_->program.version});
}
Metrics::~Metrics() = default;

void Metrics::SetConfig(const Config& config) {
  impl_->Read({MetricMoment::kConfig, MetricMoment::kReload}, {.config = &config});
}

void Metrics::ReloadFailed() { impl_->Read({MetricMoment::kReload}, {}); }

void Metrics::Record(const Round& round, const AgentState& state) {
  std::vector<MetricMoment> moments = {MetricMoment::kRound};
  if (round.report.status.ok()) moments.push_back(MetricMoment::kCheckDone);
  impl_->Read(moments, {.round = &round, .state = &state});
}

void Metrics::LockWaited(absl::Duration wait) {
  impl_->Read({MetricMoment::kLockWait}, {.lock_wait = wait});
}

void Metrics::SetAudit(const NodeAudit& audit) {
  impl_->Read({MetricMoment::kAudit}, {.audit = &audit});
}

void Metrics::AuditEnded(const absl::Status& how) {
  impl_->Read({MetricMoment::kAuditEnd}, {.audited = how});
}

std::string Metrics::Serialize() const {
  const std::optional<ProcessUsage> usage = ReadProcessUsage();
  const std::optional<ConntrackCounters> conntrack = ReadConntrack();
  const std::function<uint64_t()>& dropped = impl_->program.log_lines_dropped;
  impl_->Read({MetricMoment::kScrape}, {.usage = usage ? &*usage : nullptr,
                                        .conntrack = conntrack ? &*conntrack : nullptr,
                                        .log_lines_dropped = dropped ? dropped() : 0});
  std::vector<prometheus::MetricFamily> families;
  std::unique_lock<std::mutex> lock(impl_->mutex);
  for (const auto& [name, metric] : impl_->metrics) {
    const MetricKind kind = metric.row->kind;
    prometheus::MetricFamily family = {.name = name,
                                       .help = metric.row->help,
                                       .type = kind == MetricKind::kGauge ? MetricType::Gauge
                                               : kind == MetricKind::kHistogram
                                                   ? MetricType::Histogram
                                                   : MetricType::Counter,
                                       .metric = {}};
    if (kind == MetricKind::kHistogram) family.metric.push_back(metric.histogram.Collect());
    for (const auto& [labels, value] : metric.series) {
      prometheus::ClientMetric& client = family.metric.emplace_back();
      for (const auto& [label, text] : labels) client.label.push_back({label, text});
      client.gauge.value = client.counter.value = value;
    }
    if (!family.metric.empty()) families.push_back(std::move(family));
  }
  lock.unlock();
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace kipt::agent
