// SPDX-License-Identifier: Apache-2.0
#include "tests/support/figures.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/str_format.h"

namespace kipt::testing {

absl::Duration Figures::Quantile(double share) const {
  if (durations_.empty()) return absl::ZeroDuration();
  std::vector<absl::Duration> sorted = durations_;
  std::sort(sorted.begin(), sorted.end());
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

nlohmann::json Figures::Summary() const {
  if (durations_.empty()) return nullptr;
  nlohmann::json summary = {{"n", count()}};
  constexpr std::pair<const char*, double> kQuantiles[] = {
      {"min", 0}, {"median", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}, {"max", 1}};
  for (const auto& [name, share] : kQuantiles) {
    summary[name] = absl::ToDoubleMicroseconds(Quantile(share));
  }
  return summary;
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
  all_.push_back({{"what", std::string(what)},
                  {"figure", figure},
                  {"target", target},
                  {"unit", std::string(unit)},
                  {"met", met}});
  absl::PrintF("%s  %s: %.3f %s, target %.3f\n", met ? "met   " : "MISSED", what, figure, unit,
               target);
  std::fflush(stdout);
}

}  // namespace kipt::testing
