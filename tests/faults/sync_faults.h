// SPDX-License-Identifier: Apache-2.0
//
// One fault in one `sync`: of every kind, at every occurrence.
#ifndef KIPT_TESTS_FAULTS_SYNC_FAULTS_H_
#define KIPT_TESTS_FAULTS_SYNC_FAULTS_H_

#include <vector>

#include "absl/time/time.h"
#include "tests/faults/plan.h"

namespace kipt::testing {

// One counting run. Moves the calling thread to a network namespace of its own, as the next does.
Baseline MeasureSync(const Scene& scene, const Programs& programs);

// `nth` from 1. Where the program did what it may do, a `sync` without a fault follows that has to
// put everything in place.
Verdict SyncWithFault(const Scene& scene, const Programs& programs, const Baseline& baseline,
                      const FaultRow& row, uint32_t nth);

// Every scene there is: nft and legacy iptables, both modes; cold, warm and damaged.
std::vector<Scene> AllScenes();

// Runs each chosen fault at each of its occurrences in each of `scenes`.
void TrySyncFaults(const std::vector<Scene>& scenes, const Programs& programs,
                   const FaultChoice& chosen, Tally& tally,
                   absl::Time end = absl::InfiniteFuture());

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_SYNC_FAULTS_H_
