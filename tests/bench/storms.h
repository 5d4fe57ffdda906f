// SPDX-License-Identifier: Apache-2.0
//
// What a daemon that watches nf_tables costs, and what it costs those who write.
#ifndef KIPT_TESTS_BENCH_STORMS_H_
#define KIPT_TESTS_BENCH_STORMS_H_

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace kipt::testing {

struct StormOptions {
  int rules = 40000;
  // How often that many rules are committed, and with each way of watching.
  int repeats = 9;
  int commits_per_second = 200;
  absl::Duration storm = absl::Seconds(30);
  absl::Duration idle = absl::Seconds(70);
  // See Targets.
  double slack = 1;
};

// In one fresh network namespace. Prints figures and targets. {"met", "targets" (Targets::all),
// "listening": [{"daemon", "big", "small" (Figures::Summary)}]}.
absl::StatusOr<nlohmann::json> MeasureStorms(const StormOptions& options);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_STORMS_H_
