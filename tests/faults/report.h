// SPDX-License-Identifier: Apache-2.0
//
// File: tests/faults/report.h
//
// tests/faults/report.md: the faults that were tried, and what became of them.
#ifndef KIPT_TESTS_FAULTS_REPORT_H_
#define KIPT_TESTS_FAULTS_REPORT_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/faults/incidents.h"
#include "tests/faults/tally.h"
#include "tests/faults/world.h"

namespace kipt::testing {

struct Outcome {
  const Tally& sync;
  const std::vector<Scene>& scenes;
  const Tally& daemon;
  const std::vector<Incident>& incidents;
  absl::Duration taken;
};

// Names this machine by its kernel, its CPUs and the programs' versions only.
std::string ReportText(const Outcome& outcome);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_REPORT_H_
