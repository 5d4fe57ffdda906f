// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/retirer.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "agent/policy/diff.h"
#include "agent/policy/rule_forms.h"
#include "netlink/kernel_error.h"

namespace kipt::agent {
namespace {

// A survey takes up to a second with 10,000 services.
constexpr absl::Duration kSurveyPause = absl::Minutes(10);
// Where others wrote meanwhile.
constexpr absl::Duration kShortestPause = absl::Milliseconds(50);

// Plans and applies until the kernel finds no more chains in use.
absl::Status RetireUnused(netlink::Backend& backend, const RetireRequest& request,
                          const netlink::Snapshot& snapshot, const Diff& diff,
                          RetireReport& report) {
  for (;;) {
    report.plan = PlanRetirement(request.input, snapshot, diff, report.dependents, request.options);
    if (!request.apply || report.plan.empty()) return absl::OkStatus();
    absl::Status status = backend.Apply(ToTransaction(report.plan.changes, snapshot.generation));
    const auto refused = absl::c_find_if(report.plan.changes, [&](const Change& change) {
      const auto* remove = std::get_if<netlink::DeleteChain>(&change.operation);
      return remove != nullptr && netlink::ToString(remove->chain) == netlink::ChainInUse(status);
    });
    // Each refusal keeps one more chain.
    if (refused == report.plan.changes.end()) {
      report.applied = status.ok();
      return status;
    }
    report.dependents.references.push_back({netlink::ChainOf(refused->operation),
                                            "a use that no rule shows",
                                            "the kernel reports that it is in use"});
  }
}

absl::Status RetireOnce(netlink::Backend& backend, const RetireRequest& request,
                        RetireReport& report) {
  const auto observed = backend.Read(ChainsToRead(), &NativeMartians());
  if (!observed.ok()) return observed.status();
  const netlink::Snapshot& snapshot = *observed;
  report.generation = snapshot.generation;
  const Diff diff = ComputeDiff(request.input, snapshot, request.support);
  if (MayRetire(request.input, snapshot, diff, request.options)) {
    DependentsCollector collector;
    const absl::StatusOr<netlink::Survey> survey = backend.TakeSurvey(collector.ManagedMode());
    if (!survey.ok()) return survey.status();
    if (survey->generation != snapshot.generation) {
      return absl::AbortedError("the ruleset changed while it was surveyed");
    }
    collector.NoteManagedMode(*survey);
    request.sources.other_mode(collector);
    for (const Marking& each : request.sources.without_rules()) collector.Note(each);
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
  // In a family that waits for a repair, claims were not examined.
  const bool judged = !report.status.ok() || report.plan.unsettled.empty();
  if (report.surveyed && !report.applied && !again && judged) next_survey_ = end + kSurveyPause;
  return report;
}

}  // namespace kipt::agent
