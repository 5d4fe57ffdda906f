// SPDX-License-Identifier: Apache-2.0
//
// File: tests/faults/daemon_faults.h
//
// One fault while the daemon deals with an incident.
#ifndef KIPT_TESTS_FAULTS_DAEMON_FAULTS_H_
#define KIPT_TESTS_FAULTS_DAEMON_FAULTS_H_

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "tests/faults/incidents.h"
#include "tests/faults/tally.h"

namespace kipt::testing {

// How an incident ends where nothing else is wrong.
struct IncidentBaseline {
  KernelText wanted;
  // From the incident until its traces are gone and the daemon rests.
  std::array<uint32_t, kPointCount> occurrences = {};
  std::string problem;
};

// Moves the calling thread to a network namespace of its own, as below.
IncidentBaseline MeasureIncident(const Incident& incident, const Programs& programs);

Verdict IncidentWithFault(const Incident& incident, const Programs& programs,
                          const IncidentBaseline& baseline, const FaultRow& row, uint32_t nth);

// Runs each fault that `chosen` wants at each of its occurrences in each of `incidents`.
void TryDaemonFaults(const std::vector<Incident>& incidents, const Programs& programs,
                     const std::function<bool(const FaultRow&)>& chosen, Tally& tally);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_DAEMON_FAULTS_H_
