// SPDX-License-Identifier: Apache-2.0
//
// Measured durations.
#ifndef KIPT_TESTS_SUPPORT_FIGURES_H_
#define KIPT_TESTS_SUPPORT_FIGURES_H_

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/time/time.h"

namespace kipt::testing {

class Figures {
 public:
  void Add(absl::Duration duration) { durations_.push_back(duration); }
  size_t count() const { return durations_.size(); }

  // The smallest one that `share` of all do not exceed (nearest rank): 0 is the minimum, 1 the
  // maximum. Zero where there are none.
  absl::Duration Quantile(double share) const {
    if (durations_.empty()) return absl::ZeroDuration();
    std::vector<absl::Duration> sorted = durations_;
    std::sort(sorted.begin(), sorted.end());
    const double rank = std::ceil(share * static_cast<double>(sorted.size()));
    return sorted[static_cast<size_t>(std::max(rank, 1.0)) - 1];
  }
  absl::Duration Median() const { return Quantile(0.5); }

 private:
  std::vector<absl::Duration> durations_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_FIGURES_H_
