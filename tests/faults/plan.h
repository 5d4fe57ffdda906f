// SPDX-License-Identifier: Apache-2.0
//
// Which faults can be tried where: counted in runs without a fault.
#ifndef KIPT_TESTS_FAULTS_PLAN_H_
#define KIPT_TESTS_FAULTS_PLAN_H_

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "tests/faults/runs.h"
#include "tests/faults/tally.h"
#include "tests/faults/world.h"

namespace kipt::testing {

// What one run without a fault does.
struct Baseline {
  KernelText before;
  KernelText desired;
  // How often each point is reached.
  std::array<uint32_t, kPointCount> occurrences = {};
  // Empty, or why there is no baseline.
  std::string problem;
};

// Counting runs in each place.
inline constexpr int kCountingRuns = 3;

// How often a daemon polls, and how many events one datagram carries, is a matter of time. The plan
// takes of each point what every counting run reached, so an occurrence that does not come later is
// a failure. All must end in the same state.
Baseline Least(const std::vector<Baseline>& counted);

using FaultChoice = std::function<bool(const FaultRow&)>;

// Where faults are tried: a scene of sync, an incident of the daemon.
struct Place {
  std::string name;
  // One counting run.
  std::function<Baseline()> measure;
  std::function<Verdict(const Baseline& baseline, const FaultRow& row, uint32_t nth)> attempt;
};

// Counts in each of `places`, then makes a run for each chosen fault at each occurrence of its
// point.
void TryFaults(const std::vector<Place>& places, const FaultChoice& chosen, const Pace& pace,
               Tally& tally);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_PLAN_H_
