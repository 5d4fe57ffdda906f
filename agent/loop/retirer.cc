// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/retirer.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "agent/loop/plan.h"
#include "netlink/kernel_error.h"

namespace kipt::agent {
namespace {

// A survey costs up to a second with 10,000 services.
constexpr absl::Duration kSurveyPause = absl::Minutes(10);
// Where others wrote meanwhile.
constexpr absl::Duration kShortestPause = absl::Milliseconds(50);

// Plans and applies until the kernel finds no more chains in use.
absl::Status RetireUnused(netlink::Backend& backend, const RetireRequest& request,
                          const netlink::Snapshot& snapshot, const Diff& diff,
                          RetireReport& report) {
  // Each refusal keeps one chain more.
  for (size_t i = 0;
       i <= EveryKubeletChain(netlink::Family::kIPv4).size() * netlink::kFamilies.size(); ++i) {
    report.plan = PlanRetirement(request.input, snapshot, diff, report.dependents, request.options);
    if (!request.apply || report.plan.empty()) return absl::OkStatus();
    absl::Status status = backend.Apply(ToTransaction(report.plan.changes, snapshot.generation));
    const std::optional<std::string> used = netlink::ChainInUse(status);
    if (!used) {
      report.applied = status.ok();
      return status;
    }
    const auto refused = absl::c_find_if(report.plan.changes, [&](const Change& change) {
      return netlink::ToString(netlink::ChainOf(change.operation)) == *used;
    });
    if (refused == report.plan.changes.end()) continue;
    report.dependents.references.push_back({netlink::ChainOf(refused->operation),
                                            "something that no rule shows",
                                            "the kernel says that it is in use"});
  }
  return absl::InternalError("the kernel refused to remove more chains than there are");
}

absl::Status RetireOnce(netlink::Backend& backend, const RetireRequest& request,
                        RetireReport& report) {
  const absl::StatusOr<Observation> observed = Observe(backend, ChainsToRead());
  if (!observed.ok()) return observed.status();
  const netlink::Snapshot& snapshot = observed->snapshot;
  report.generation = snapshot.generation;
  const Diff diff =
      ComputeDiff(request.input, snapshot, observed->native, Proven(request.support, snapshot));
  if (MayRetire(request.input, snapshot, diff, request.options)) {
    DependentsCollector collector;
    const absl::StatusOr<netlink::Survey> survey = backend.TakeSurvey(collector.ManagedMode());
    if (!survey.ok()) return survey.status();
    if (survey->generation != snapshot.generation) {
      return absl::AbortedError("the ruleset changed while it was surveyed");
    }
    request.sources.other_mode(collector);
    report.dependents = collector.Finish(request.sources.cni(), request.sources.route_localnet());
    report.surveyed = true;
  }
  return RetireUnused(backend, request, snapshot, diff, report);
}

}  // namespace

RetireReport TryRetire(netlink::Backend& backend, const RetireRequest& request) {
  RetireReport report = {.iptables_mode = std::string(netlink::BackendKindName(backend.kind()))};
  report.status = RetireOnce(backend, request, report);
  return report;
}

RetireReport Retire(netlink::Backend& backend, const Clock& clock, const RetireRequest& request) {
  RetireReport report;
  report.status = RetryAborted(clock, [&] {
    report = TryRetire(backend, request);
    return report.status;
  });
  return report;
}

void Retirer::SetSources(std::optional<RetirementSources> sources) {
  *this = Retirer();
  sources_ = std::move(sources);
}

std::optional<RetireReport> Retirer::Run(netlink::Backend& backend, const Clock& clock,
                                         const PolicyInput& input, const RuleSupport& support,
                                         bool quiet) {
  const SteadyTime start = clock.now();
  const bool is_time = quiet || start >= next_try_;
  if (!sources_ || !is_time || start < next_survey_) return std::nullopt;
  RetireReport report =
      TryRetire(backend, {.input = input, .support = support, .sources = *sources_, .apply = true});
  const SteadyTime end = clock.now();
  const bool again = absl::IsAborted(report.status);
  next_try_ =
      again ? end + std::max(kShortestPause, 10 * (end - start)) : SteadyTime::InfiniteFuture();
  // A family that waits for a repair was not judged.
  const bool judged = !report.status.ok() || report.plan.unsettled.empty();
  if (report.surveyed && !report.applied && !again && judged) next_survey_ = end + kSurveyPause;
  return report;
}

}  // namespace kipt::agent
