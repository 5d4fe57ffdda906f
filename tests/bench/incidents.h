// SPDX-License-Identifier: Apache-2.0
//
// How long damage lasts.
#ifndef KIPT_TESTS_BENCH_INCIDENTS_H_
#define KIPT_TESTS_BENCH_INCIDENTS_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::testing {

struct IncidentOptions {
  int count = 200;
  std::vector<int> services = {0, 10000};
  IptablesMode mode = IptablesMode::kNft;
  // See Targets.
  double slack = 1;
};

// Damages and measures, in one fresh network namespace for each number of services; prints a table
// and the targets. {"met", "targets" (Targets::all), "incidents": [{"mode", "services", "outage",
// "own", "writing" (Figures::Summary), "unseen"}]}. Any error: something could not be measured.
absl::StatusOr<nlohmann::json> MeasureIncidents(const IncidentOptions& options);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_INCIDENTS_H_
