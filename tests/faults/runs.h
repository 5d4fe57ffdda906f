// SPDX-License-Identifier: Apache-2.0
//
// Makes runs, many at once, and repeats what a busy machine may have failed.
#ifndef KIPT_TESTS_FAULTS_RUNS_H_
#define KIPT_TESTS_FAULTS_RUNS_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "tests/faults/tally.h"

namespace kipt::testing {

// How many at once. Runs with FaultRow::waits take little CPU, so many can wait together.
struct Pace {
  size_t waiting_threads;
  size_t working_threads;
  // No run starts after this.
  absl::Time end = absl::InfiniteFuture();
};

// An occurrence that does not come is tried again so often: the kernel may deliver two events in
// one datagram, or the daemon may handle them in one check.
inline constexpr int kAttempts = 5;
// At most one of so many runs may be judged by its repetition. Above that the machine is too busy
// for any verdict, or the program is slow: the failures stay.
inline constexpr size_t kRunsForEachRepetition = 100;

// Does each of `jobs` on a thread with its own /run, which may move to another network namespace.
void DoApart(const std::vector<std::function<void()>>& jobs, size_t threads);

// Plans all `runs` in `tally` and makes those that it does not know yet. What fails by its timing
// is repeated once, alone, and the second verdict counts; the first failure is kept with it.
// Reports its progress to standard error.
void MakeRuns(const std::vector<Run>& runs, const Pace& pace, Tally& tally);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_RUNS_H_
