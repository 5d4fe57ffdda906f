// SPDX-License-Identifier: Apache-2.0
//
// Measured durations, and a verdict on them that a script can see.
#ifndef KIPT_TESTS_SUPPORT_FIGURES_H_
#define KIPT_TESTS_SUPPORT_FIGURES_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace kipt::testing {

class Figures {
 public:
  void Add(absl::Duration duration) { durations_.push_back(duration); }
  size_t count() const { return durations_.size(); }

  // The smallest one that `share` of all do not exceed (nearest rank): 0 is the minimum, 1 the
  // maximum. Zero where there are none.
  absl::Duration Quantile(double share) const;
  absl::Duration Median() const { return Quantile(0.5); }

  // {"n", "min", "median", "p90", "p95", "p99", "max"}, in microseconds; null where there are none.
  nlohmann::json Summary() const;

 private:
  std::vector<absl::Duration> durations_;
};

// "12.3": milliseconds, "450": microseconds.
std::string InMilliseconds(absl::Duration duration);
std::string InMicroseconds(absl::Duration duration);

// Prints one line for each target and remembers them.
class Targets {
 public:
  // `slack` multiplies every target: for machines that do other things meanwhile.
  explicit Targets(double slack) : slack_(slack) {}

  // `what` in `unit` must be below `target`, or at it.
  void AtMost(absl::string_view what, double figure, double target, absl::string_view unit);
  // The same without slack: counts do not depend on the machine.
  void AtMostExactly(absl::string_view what, double figure, double target, absl::string_view unit);

  bool all_met() const { return all_met_; }
  // [{"what", "figure", "target", "unit", "met"}, ...], in order.
  const nlohmann::json& all() const { return all_; }

 private:
  double slack_;
  bool all_met_ = true;
  nlohmann::json all_ = nlohmann::json::array();
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_FIGURES_H_
