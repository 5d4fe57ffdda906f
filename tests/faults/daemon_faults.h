// SPDX-License-Identifier: Apache-2.0
//
// One fault while the daemon deals with an incident.
#ifndef KIPT_TESTS_FAULTS_DAEMON_FAULTS_H_
#define KIPT_TESTS_FAULTS_DAEMON_FAULTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/faults/incidents.h"
#include "tests/faults/plan.h"

namespace kipt::testing {

// What is seen of a daemon that was hit by an incident and a fault.
struct Observed {
  bool injected = true;
  bool in_place = true;
  // How long it was not in place, at least.
  absl::Duration missing = {};
  // Set if the daemon ended before it was asked to.
  std::optional<int> ended = {};
  // When it was asked to end.
  int exit_code = 0;
  // In place at first, and no longer after the fault.
  bool damaged_later = false;
  std::string log = {};
  // The kernel, where it is not in place.
  std::string difference = {};
};

// The log must have a warning or an error that explains what takes longer than this: a period of
// the timer and the repair. That something was damaged and quickly repaired explains no delay.
inline constexpr absl::Duration kSilent = absl::Seconds(4);

Verdict JudgeIncident(const Observed& observed);

// What is seen of a daemon that ended while it started.
struct EndAtStart {
  int exit_code = 1;
  std::string log = {};
  // What is neither as before nor as desired.
  std::string half_done = {};
  // Once it has been started again, without a fault.
  bool in_place_again = true;
};

Verdict JudgeEndAtStart(const EndAtStart& end);

// One counting run. Moves the calling thread to a network namespace of its own, as the next does.
Baseline MeasureIncident(const Incident& incident, const Programs& programs);
Verdict IncidentWithFault(const Incident& incident, const Programs& programs,
                          const Baseline& baseline, const FaultRow& row, uint32_t nth);

// Runs each chosen fault at each of its occurrences in each of `incidents`.
void TryDaemonFaults(const std::vector<Incident>& incidents, const Programs& programs,
                     const FaultChoice& chosen, Tally& tally,
                     absl::Time end = absl::InfiniteFuture());

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_DAEMON_FAULTS_H_
