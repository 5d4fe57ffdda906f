// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace kipt::testing {
namespace {

void AddRuns(const Place& place, const Baseline& baseline, const FaultChoice& chosen,
             std::vector<Run>& runs) {
  for (size_t i = 0; i < kFaultCount; ++i) {
    const FaultRow& row = kFaults[i];
    if (!chosen(row)) continue;
    for (uint32_t nth = 1; nth <= baseline.occurrences[static_cast<size_t>(row.point)]; ++nth) {
      runs.push_back({.place = place.name, .row = &row, .nth = nth, .attempt = [&, nth] {
                        return place.attempt(baseline, row, nth);
                      }});
    }
  }
}

}  // namespace

Baseline Least(const std::vector<Baseline>& counted) {
  Baseline least = counted.front();
  for (const Baseline& each : counted) {
    if (least.problem.empty()) least.problem = each.problem;
    if (least.problem.empty() && each.desired != least.desired) {
      least.problem = absl::StrCat("two runs without a fault end differently:\n",
                                   Difference(each.desired, least.desired));
    }
    for (size_t i = 0; i < kPointCount; ++i) {
      least.occurrences[i] = std::min(least.occurrences[i], each.occurrences[i]);
    }
  }
  return least;
}

void TryFaults(const std::vector<Place>& places, const FaultChoice& chosen, const Pace& pace,
               Tally& tally) {
  std::vector<std::vector<Baseline>> counted(places.size(), std::vector<Baseline>(kCountingRuns));
  std::vector<std::function<void()>> counting;
  for (size_t i = 0; i < places.size(); ++i) {
    for (Baseline& baseline : counted[i]) {
      counting.emplace_back([&, i] { baseline = places[i].measure(); });
    }
  }
  DoApart(counting, pace.working_threads);
  std::vector<Baseline> least;
  for (const std::vector<Baseline>& each : counted) least.push_back(Least(each));
  std::vector<Run> runs;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!least[i].problem.empty()) {
      tally.AddProblem(places[i].name, least[i].problem);
      continue;
    }
    AddRuns(places[i], least[i], chosen, runs);
  }
  MakeRuns(runs, pace, tally);
}

}  // namespace kipt::testing
