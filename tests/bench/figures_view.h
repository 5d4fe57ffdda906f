// SPDX-License-Identifier: Apache-2.0
//
// figures.json, read: {"stamp": what tests/stamp printed before the run, "machine": {...}, "table":
// (table.h), "incidents": [of each run of incidents.h], "storms": (storms.h), "micro": (Google
// Benchmark's own JSON)}. Any part but the stamp may be missing.
#ifndef KIPT_TESTS_BENCH_FIGURES_VIEW_H_
#define KIPT_TESTS_BENCH_FIGURES_VIEW_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace kipt::testing {

class FiguresView {
 public:
  // `figures` must outlive it.
  explicit FiguresView(const nlohmann::json& figures) : figures_(figures) {}

  const nlohmann::json& all() const { return figures_; }
  // Null where it was not measured.
  const nlohmann::json& Part(const std::string& name) const;

  // In the order in which they were measured.
  std::vector<int> Services(const std::string& mode) const;
  struct Row {
    std::string operation;
    std::string contender;
    bool operator==(const Row&) const = default;
  };
  std::vector<Row> Rows(const std::string& mode) const;

  // Null where there is no such cell.
  const nlohmann::json* Cell(const std::string& mode, int services, const Row& row) const;
  // `of` is "wall" or "cpu", `statistic` one of Summary's (cost.h).
  std::optional<double> Time(const std::string& mode, int services, const Row& row,
                             const std::string& of = "wall",
                             const std::string& statistic = "median") const;
  // How many times the cost of `less` goes into that of `more`, by medians.
  std::optional<double> Ratio(const std::string& mode, int services, const Row& more,
                              const Row& less, const std::string& of = "wall") const;

 private:
  const nlohmann::json& figures_;
};

// The yardstick: kubelet's sequence with everything in place, and with nothing.
inline const FiguresView::Row kKubeletWarm = {"warm", "kubelet"};
// Just after somebody else committed something, as the check after a commit is.
inline const FiguresView::Row kKubeletAfterCommit = {"warm after a commit", "kubelet"};
inline const FiguresView::Row kKubeletCold = {"cold", "kubelet"};

// "1.31 µs", "49.4 ms", "10.7 s".
std::string TimeText(double microseconds);
// "319×", "5.1×"; "–" where there is nothing to compare.
std::string RatioText(std::optional<double> ratio);
// "1 234 567".
std::string NumberText(double number);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_FIGURES_VIEW_H_
