// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/retirer.h"

#include <algorithm>
#include <utility>

namespace kipt::agent {
namespace {

// A survey costs up to a second beside 10,000 services.
constexpr absl::Duration kSurveyPause = absl::Minutes(10);
// Where others wrote meanwhile.
constexpr absl::Duration kShortestPause = absl::Milliseconds(50);

// Nobody has just changed anything.
bool IsQuiet(Trigger trigger) {
  return trigger == Trigger::kStart || trigger == Trigger::kConfig || trigger == Trigger::kTimer;
}

}  // namespace

void Retirer::SetSources(std::optional<RetirementSources> sources) {
  sources_ = std::move(sources);
  next_survey_ = SteadyTime::InfinitePast();
  next_try_ = SteadyTime::InfiniteFuture();
}

std::optional<RetireReport> Retirer::Run(Reconciler& reconciler, const Clock& clock,
                                         const PolicyInput& input, const Round& round) {
  const SteadyTime start = clock.now();
  const bool is_time = IsQuiet(round.trigger) || start >= next_try_;
  if (!sources_ || !is_time || !round.report.FirstError().ok() || start < next_survey_) {
    return std::nullopt;
  }
  RetireReport report = reconciler.TryRetire(input, *sources_, {}, /*apply=*/true);
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
