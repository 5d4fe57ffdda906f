// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/figures.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_format.h"

namespace kipt::testing {

absl::Duration Figures::Quantile(double share) const {
  if (durations_.empty()) return absl::ZeroDuration();
  std::vector<absl::Duration> sorted = durations_;
  std::sort(sorted.begin(), sorted.end());
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

std::string InMilliseconds(absl::Duration duration) {
  return absl::StrFormat("%.2f", absl::ToDoubleMilliseconds(duration));
}

std::string InMicroseconds(absl::Duration duration) {
  return absl::StrFormat("%.0f", absl::ToDoubleMicroseconds(duration));
}

void Targets::AtMost(absl::string_view what, double figure, double target, absl::string_view unit) {
  AtMostExactly(what, figure, target * slack_, unit);
}

void Targets::AtMostExactly(absl::string_view what, double figure, double target,
                            absl::string_view unit) {
  const bool met = figure <= target;
  all_met_ = all_met_ && met;
  absl::PrintF("%s  %s: %.3f %s, target %.3f\n", met ? "met   " : "MISSED", what, figure, unit,
               target);
  std::fflush(stdout);
}

}  // namespace kipt::testing
