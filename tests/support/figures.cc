// SPDX-License-Identifier: Apache-2.0
#include "tests/support/figures.h"

#include <algorithm>
#include <cmath>

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

}  // namespace kipt::testing
