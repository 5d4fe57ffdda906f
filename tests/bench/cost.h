// SPDX-License-Identifier: Apache-2.0
//
// What something costs in time, measured often and summed up so that the machine's other work shows
// as spread and not as a figure.
#ifndef KIPT_TESTS_BENCH_COST_H_
#define KIPT_TESTS_BENCH_COST_H_

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/status.h"

namespace kipt::testing {

// Of one time that something was done, in microseconds.
struct Cost {
  double wall = 0;
  // User and system time of this process, and of the children that it waited for meanwhile.
  double cpu = 0;
};

// Does `work` `times` times in a row; the cost of one. Where it fails, its error and no cost.
struct CostOrError {
  absl::Status status;
  Cost cost;
};
CostOrError CostOf(const std::function<absl::Status()>& work, int times = 1);

// {"n", "min", "p10", "median", "p90", "max"} of `values`, quantiles by nearest rank; null where
// there are none.
nlohmann::json Summary(std::vector<double> values);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_COST_H_
