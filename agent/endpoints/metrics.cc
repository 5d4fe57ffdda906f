// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/metrics.h"

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
#include "agent/endpoints/metric_series.h"
#include "agent/endpoints/round_counts.h"

namespace kipt::agent {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

constexpr absl::string_view kDeprecatedFlags[] = {"iptables-masquerade-bit", "iptables-drop-bit"};

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
             "When a round last ended without an error, since the epoch; 0 before the first.")
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
  Gauge& observing = Gauges(registry, "observing",
                            "Whether nothing is written, only looked at and planned (--observe).")
                         .Add({});
  GaugeSet pending_changes{
      Gauges(registry, "pending_changes",
             "Changes that the last look found wanting and that were not made: while observing, or "
             "held back in a fight.")};
  GaugeSet findings{
      Gauges(registry, "findings",
             "What the last look found, by condition; what the agent mends by itself is left "
             "out.")};
  GaugeSet fighting{Gauges(registry, "ownership_fights",
                           "Items of ours that another program keeps undoing now, by chain.")};
  Gauge& sync_period = Gauges(registry, "sync_period_seconds",
                              "The longest time between two looks (--iptables-sync-period).")
                           .Add({});
  Gauge& reload_successful =
      Gauges(registry, "config_last_reload_successful",
             "Whether the running configuration is the one that was last read.")
          .Add({});
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
  impl_->observing.Set(config.observe ? 1 : 0);
  impl_->sync_period.Set(absl::ToDoubleSeconds(config.iptables_sync_period));
  impl_->reload_successful.Set(1);
  impl_->features.Set(features);
  impl_->deprecated_flags.Set(flags);
}

void Metrics::ReloadFailed() {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->reload_successful.Set(0);
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
  std::map<Labels, double> found;
  for (const ConditionRow& row : Conditions()) {
    for (const netlink::Family family : netlink::kFamilies) {
      found[{{"family", FamilyLabel(family)}, {"condition", Text(row.name)}}] =
          Unmended(state, row.condition, family);
    }
  }
  findings.Set(found);
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
  std::map<Labels, double> pending;
  for (const FamilyState& one : state.families) {
    const Labels labels = {{"family", FamilyLabel(one.family)}};
    ready[labels] = NotReadyBecause(state, one).empty() ? 1 : 0;
    pending[labels] = one.pending_changes;
  }
  family_ready.Set(ready);
  pending_changes.Set(pending);
  std::map<Labels, double> fights_now;
  for (const Fight& fight : state.fights) ++fights_now[ChainLabels(fight.chain)];
  fighting.Set(fights_now);
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
