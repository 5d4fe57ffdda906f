// SPDX-License-Identifier: Apache-2.0
//
// tests/faults/report.md: how many runs were made where, and how they ended.
#ifndef KIPT_TESTS_FAULTS_REPORT_H_
#define KIPT_TESTS_FAULTS_REPORT_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/faults/tally.h"

namespace kipt::testing {

struct Part {
  const Tally& tally;
  std::vector<std::string> places;
};

struct Outcome {
  std::vector<Part> parts;
  std::vector<std::string> problems;
  // "kube-iptables-agent v1.2.3, commit 0123abc"
  std::string program;
  absl::Duration taken;
};

// A summary: a table by place and one by point. It names this machine by its kernel, its CPUs and
// the programs' versions only.
std::string ReportText(const Outcome& outcome);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_REPORT_H_
