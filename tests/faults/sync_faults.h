// SPDX-License-Identifier: Apache-2.0
//
// File: tests/faults/sync_faults.h
//
// One fault in one `sync`: of every kind, at every occurrence.
#ifndef KIPT_TESTS_FAULTS_SYNC_FAULTS_H_
#define KIPT_TESTS_FAULTS_SYNC_FAULTS_H_

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "tests/faults/tally.h"
#include "tests/faults/world.h"

namespace kipt::testing {

// What a `sync` does where nothing is wrong.
struct SyncBaseline {
  KernelText before;
  KernelText wanted;
  // How often each point is come to.
  std::array<uint32_t, kPointCount> occurrences = {};
  // Empty, or why there is none.
  std::string problem;
};

// Moves the calling thread to a network namespace of its own, as all below.
SyncBaseline MeasureSync(const Scene& scene, const Programs& programs);

// `nth` from 1. Where the program did what it may do, a `sync` without a fault follows that has to
// put everything in place.
Verdict SyncWithFault(const Scene& scene, const Programs& programs, const SyncBaseline& baseline,
                      const FaultRow& row, uint32_t nth);

// Every scene there is: nft and legacy iptables, both modes; cold, warm and damaged.
std::vector<Scene> AllScenes();

// Runs each fault that `chosen` wants at each of its occurrences in each of `scenes`.
void TrySyncFaults(const std::vector<Scene>& scenes, const Programs& programs,
                   const std::function<bool(const FaultRow&)>& chosen, Tally& tally);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_SYNC_FAULTS_H_
