// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/endpoints/process_usage.h"
#include "agent/endpoints/round_counts.h"

namespace kipt::agent {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

constexpr absl::string_view kPrefix = "kube_iptables_agent_";
constexpr absl::string_view kDeprecatedFlags[] = {"iptables-masquerade-bit", "iptables-drop-bit"};

// A tenth of a millisecond, what a warm look takes, to half a minute.
Histogram::BucketBoundaries Buckets() {
  return {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
          0.1,    0.25,    0.5,    1,     2.5,    5,     10,   30};
}

std::string Text(absl::string_view text) { return std::string(text); }
std::string FamilyLabel(netlink::Family family) { return Text(netlink::FamilyName(family)); }

std::string ReasonLabel(absl::StatusCode code) {
  return absl::AsciiStrToLower(absl::StatusCodeToString(code));
}

Labels ChainLabels(const netlink::ChainId& chain) {
  return {{"family", FamilyLabel(chain.family)},
          {"table", Text(netlink::TableName(chain.table))},
          {"chain", chain.name}};
}

Labels DriftLabels(const Drift& drift) {
  return {{"family", FamilyLabel(drift.chain.family)},
          {"table", Text(netlink::TableName(drift.chain.table))},
          {"chain", drift.chain.name},
          {"kind", Text(DamageKindName(drift.kind))}};
}

// ---- registration ----

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

// Gauges whose labels come and go.
class GaugeSet {
 public:
  explicit GaugeSet(prometheus::Family<Gauge>& family) : family_(family) {}

  // Exactly these series from now on.
  void Set(const std::map<Labels, double>& wanted) {
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

 private:
  prometheus::Family<Gauge>& family_;
  std::map<Labels, Gauge*> gauges_;
};

// ---- the process ----

prometheus::MetricFamily Single(absl::string_view name, absl::string_view help,
                                prometheus::MetricType type, double value) {
  prometheus::ClientMetric metric;
  metric.gauge.value = value;
  metric.counter.value = value;
  return {.name = Text(name), .help = Text(help), .type = type, .metric = {metric}};
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

}  // namespace

struct Metrics::Impl {
  explicit Impl(absl::string_view version);
  void Count(const Round& round);
  void ShowState(const AgentState& state);
  // Claims, references, and martian packets.
  void ShowOwnership(const AgentState& state);
  // After a look that succeeded.
  void ShowStanding(const Round& round, const AgentState& state);

  mutable std::mutex mutex;
  prometheus::Registry registry;

  Histogram& sync_duration =
      OneHistogram(registry, "sync_duration_seconds",
                   "Time of one round, from its look to the end of its repair.");
  prometheus::Family<Counter>& sync_errors =
      Counters(registry, "sync_errors_total",
               "Rounds that ended with an error, by the code of the first one.");
  Counter& syncs = Counters(registry, "syncs_total", "Rounds, successful or not.").Add({});
  Gauge& last_success =
      Gauges(registry, "last_success_timestamp_seconds",
             "When everything wanted was last known to stand, since the epoch; 0 before the first "
             "time.")
          .Add({});
  prometheus::Family<Counter>& drift =
      Counters(registry, "drift_detected_total",
               "Damage by others to what was in place, by chain and kind; refills left out.");
  Histogram& repair_latency =
      OneHistogram(registry, "repair_latency_seconds",
                   "Time from the notice of damage until its repair was committed.");
  Counter& refills =
      Counters(registry, "refills_total",
               "Rules put back into KUBE-FIREWALL after kube-proxy emptied it on a sync.")
          .Add({});
  Counter& external_changes =
      Counters(registry, "external_changes_total", "Commits of other programs that were noticed.")
          .Add({});
  Counter& fights = Counters(registry, "ownership_fights_total",
                             "Times that another program began to undo repairs again and again.")
                        .Add({});
  Histogram& lock_wait = OneHistogram(registry, "lock_wait_seconds",
                                      "Time spent waiting for the lock of legacy iptables.");
  Counter& events_overrun =
      Counters(registry, "events_overrun_total",
               "Events that the kernel could not deliver; a look followed all the same.")
          .Add({});
  Counter& duplicates = Counters(registry, "duplicates_removed_total",
                                 "Second copies of our own rules and jumps that were removed.")
                            .Add({});
  Gauge& martian_rule =
      Gauges(registry, "martian_rule_present",
             "Whether the rule that keeps neighbours from 127.0.0.1 stands (CVE-2020-8558).")
          .Add({});
  Gauge& route_localnet_exposed =
      Gauges(
          registry, "route_localnet_exposed",
          "Whether the kernel takes packets for 127.0.0.0/8 from neighbours (route_localnet) and "
          "no rule stands against them.")
          .Add({});
  Counter& martians_dropped =
      Counters(registry, "martian_dropped_packets_total",
               "Packets that the martian rule dropped while this process looked; those of a rule "
               "that was removed before the next look are lost.")
          .Add({});
  prometheus::Family<Counter>& retired = Counters(
      registry, "retired_total",
      "Chains, rules and jumps of kubelet's that were stale, used by nobody, and removed.");
  GaugeSet stale_claims{Gauges(registry, "stale_claims",
                               "Claims on what is stale, by chain and kind: why it is kept. Known "
                               "with --stale-chains=retire only.")};
  GaugeSet foreign_references{
      Gauges(registry, "foreign_references",
             "Rules of others, kube-proxy aside, that jump to a chain of kubelet's, when all rules "
             "were last looked at. Known with --stale-chains=retire only.")};
  GaugeSet hint_present{Gauges(registry, "hint_present",
                               "Whether mangle/KUBE-IPTABLES-HINT stands, in the iptables mode in "
                               "use.")};
  GaugeSet mode_info{Gauges(registry, "mode_info", "The modes in use, as labels; always 1.")};
  GaugeSet stale_chains{
      Gauges(registry, "stale_chains",
             "Chains of kubelet's that the configuration does not want, and that are kept.")};
  GaugeSet shadowed_jumps{
      Gauges(registry, "shadowed_jumps",
             "Jumps of ours below a rule that no packet passes: they do nothing.")};
  GaugeSet family_ready{Gauges(registry, "family_ready",
                               "Whether the family does not keep the agent from readiness.")};
  GaugeSet deprecated_flags{Gauges(registry, "deprecated_flag_in_use",
                                   "Whether the flag is given where it has no effect any more.")};
  GaugeSet features{prometheus::BuildGauge()
                        .Name("kubernetes_feature_enabled")
                        .Help("Whether a feature gate is enabled, by its name and stage.")
                        .Register(registry)};

  // AgentState::martians_dropped as counted.
  uint64_t martians_counted = 0;
  // Of retired, by table and chain.
  std::map<netlink::ChainId, Counter*> retired_by_chain;
  // Of sync_errors and drift.
  std::map<absl::StatusCode, Counter*> errors_by_code;
  std::map<Drift, Counter*> drift_by_item;
};

Metrics::Impl::Impl(absl::string_view version) {
  Gauges(registry, "build_info", "The program's version, as a label; always 1.")
      .Add({{"version", Text(version)}})
      .Set(1);
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    const auto status = static_cast<absl::StatusCode>(code);
    errors_by_code[status] = &sync_errors.Add({{"reason", ReasonLabel(status)}});
  }
  for (const Drift& item : EveryDrift()) {
    drift_by_item[item] = &drift.Add(DriftLabels(item));
    Counter*& counter = retired_by_chain[item.chain];
    if (counter == nullptr) counter = &retired.Add(ChainLabels(item.chain));
  }
}

Metrics::Metrics(absl::string_view version) : impl_(std::make_unique<Impl>(version)) {}
Metrics::~Metrics() = default;

void Metrics::SetConfig(const Config& config) {
  std::map<Labels, double> features;
  for (const featuregates::GateState& gate : config.gates.States()) {
    features[{{"name", gate.name}, {"stage", Text(featuregates::StageLabel(gate.stage))}}] =
        gate.enabled ? 1 : 0;
  }
  std::map<Labels, double> flags;
  for (const absl::string_view flag : kDeprecatedFlags) {
    const std::string warning = absl::StrCat("Flag --", flag, " has been deprecated");
    flags[{{"flag", Text(flag)}}] =
        std::any_of(config.warnings.begin(), config.warnings.end(),
                    [&](const std::string& one) { return absl::StartsWith(one, warning); })
            ? 1
            : 0;
  }
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->features.Set(features);
  impl_->deprecated_flags.Set(flags);
}

void Metrics::Impl::Count(const Round& round) {
  syncs.Increment();
  sync_duration.Observe(absl::ToDoubleSeconds(round.duration));
  const auto error = errors_by_code.find(round.report.FirstError().code());
  if (error != errors_by_code.end()) error->second->Increment();
  if (round.incident) {
    repair_latency.Observe(absl::ToDoubleSeconds(round.incident->latency));
    for (const DamagedItem& item : round.incident->damage) {
      // What is not there is not kubelet's, and is none of our labels.
      const auto found = drift_by_item.find({item.chain, item.kind});
      if (found != drift_by_item.end()) found->second->Increment();
    }
  }
  refills.Increment(round.refills);
  external_changes.Increment(static_cast<double>(round.external_changes));
  events_overrun.Increment(static_cast<double>(round.lost_events));
  fights.Increment(static_cast<double>(round.fights_begun.size()));
  duplicates.Increment(DuplicatesRemoved(round.report));
  if (!round.retirement || !round.retirement->applied) return;
  for (const Change& change : round.retirement->plan.changes) {
    const auto found = retired_by_chain.find(netlink::ChainOf(change.operation));
    if (found != retired_by_chain.end()) found->second->Increment();
  }
}

void Metrics::Impl::ShowOwnership(const AgentState& state) {
  route_localnet_exposed.Set(ExposedBecause(state).empty() ? 0 : 1);
  martians_dropped.Increment(static_cast<double>(state.martians_dropped - martians_counted));
  martians_counted = state.martians_dropped;
  std::map<Labels, double> claims;
  for (const Claimed& claimed : state.claimed) {
    for (const Claim& claim : claimed.claims) {
      Labels labels = ChainLabels(claimed.standing.chain);
      labels["claim"] = Text(ClaimKindName(claim.kind));
      claims[labels] = 1;
    }
  }
  stale_claims.Set(claims);
  std::map<Labels, double> references;
  for (const auto& [chain, count] : state.foreign_references) {
    references[ChainLabels(chain)] = static_cast<double>(count);
  }
  foreign_references.Set(references);
}

void Metrics::Impl::ShowStanding(const Round& round, const AgentState& state) {
  martian_rule.Set(state.martian_protection ? 1 : 0);
  std::map<Labels, double> hints;
  std::map<Labels, double> stale;
  std::map<Labels, double> shadowed;
  for (const FamilyState& one : state.families) {
    if (state.iptables_mode.empty()) break;
    hints[{{"mode", state.iptables_mode}, {"family", FamilyLabel(one.family)}}] =
        HintStands(round.report, state, one.family) ? 1 : 0;
  }
  for (const netlink::Family family : netlink::kFamilies) {
    const Labels labels = {{"family", FamilyLabel(family)}};
    stale[labels] = StaleChains(state, family);
    shadowed[labels] = ShadowedJumps(state, family);
  }
  hint_present.Set(hints);
  stale_chains.Set(stale);
  shadowed_jumps.Set(shadowed);
}

void Metrics::Impl::ShowState(const AgentState& state) {
  if (state.last_success != absl::InfinitePast()) {
    last_success.Set(absl::ToDoubleSeconds(state.last_success - absl::UnixEpoch()));
  }
  mode_info.Set(
      {{{{"mode", Text(ModeName(state.mode))},
         {"emulated_version", featuregates::ToString(state.emulated_version)},
         {"iptables_mode", state.iptables_mode.empty() ? "unknown" : state.iptables_mode}},
        1}});
  std::map<Labels, double> ready;
  for (const FamilyState& one : state.families) {
    ready[{{"family", FamilyLabel(one.family)}}] = NotReadyBecause(state, one).empty() ? 1 : 0;
  }
  family_ready.Set(ready);
}

void Metrics::Record(const Round& round, const AgentState& state) {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->Count(round);
  impl_->ShowState(state);
  impl_->ShowOwnership(state);
  if (round.report.status.ok()) impl_->ShowStanding(round, state);
}

void Metrics::LockWaited(absl::Duration wait) {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->lock_wait.Observe(absl::ToDoubleSeconds(wait));
}

std::string Metrics::Serialize() const {
  std::vector<prometheus::MetricFamily> families;
  {
    const std::lock_guard<std::mutex> lock(impl_->mutex);
    families = impl_->registry.Collect();
  }
  AppendProcess(families);
  std::sort(families.begin(), families.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  for (prometheus::MetricFamily& family : families) {
    std::sort(family.metric.begin(), family.metric.end(),
              [](const auto& a, const auto& b) { return a.label < b.label; });
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace kipt::agent
