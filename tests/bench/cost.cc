// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/cost.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace kipt::testing {
namespace {

double Microseconds(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

double Microseconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
}

// The kernel scales user and system time so that their sum is what the scheduler counted.
double OfChildren() {
  rusage usage = {};
  getrusage(RUSAGE_CHILDREN, &usage);
  return Microseconds(usage.ru_utime) + Microseconds(usage.ru_stime);
}

double Quantile(const std::vector<double>& sorted, double share) {
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

}  // namespace

CostOrError CostOf(const std::function<absl::Status()>& work, int times) {
  const double children = OfChildren();
  const double own = Microseconds(CLOCK_PROCESS_CPUTIME_ID);
  const double start = Microseconds(CLOCK_MONOTONIC);
  for (int i = 0; i < times; ++i) {
    if (absl::Status status = work(); !status.ok()) return {status, {}};
  }
  const double end = Microseconds(CLOCK_MONOTONIC);
  const double cpu = Microseconds(CLOCK_PROCESS_CPUTIME_ID) - own + OfChildren() - children;
  return {absl::OkStatus(), {(end - start) / times, cpu / times}};
}

nlohmann::json Summary(std::vector<double> values) {
  if (values.empty()) return nullptr;
  std::sort(values.begin(), values.end());
  const auto rounded = [](double value) { return std::round(value * 1000) / 1000; };
  return {{"n", values.size()},
          {"min", rounded(values.front())},
          {"p10", rounded(Quantile(values, 0.1))},
          {"median", rounded(Quantile(values, 0.5))},
          {"p90", rounded(Quantile(values, 0.9))},
          {"max", rounded(values.back())}};
}

}  // namespace kipt::testing
