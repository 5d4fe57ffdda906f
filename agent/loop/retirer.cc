// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/retirer.h"

#include <utility>

namespace kipt::agent {
namespace {

// A survey costs up to a second beside 10,000 services.
constexpr absl::Duration kSurveyPause = absl::Minutes(10);

// Nobody has just changed anything.
bool IsQuiet(Trigger trigger) {
  return trigger == Trigger::kStart || trigger == Trigger::kConfig || trigger == Trigger::kTimer;
}

}  // namespace

void Retirer::SetSources(std::optional<RetirementSources> sources) {
  sources_ = std::move(sources);
  next_survey_ = absl::InfinitePast();
}

std::optional<RetireReport> Retirer::Run(netlink::Backend& backend, const Clock& clock,
                                         const Ruleset& desired, const Round& round) {
  if (!sources_ || !IsQuiet(round.trigger) || !round.report.FirstError().ok() ||
      clock.now() < next_survey_) {
    return std::nullopt;
  }
  RetireReport report = Reconciler(&backend, clock).Retire(desired, *sources_, {}, /*apply=*/true);
  if (report.surveyed && !report.applied) next_survey_ = clock.now() + kSurveyPause;
  return report;
}

}  // namespace kipt::agent
