// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/skew/matrix/run_cell.h"
#include "tests/support/matchers.h"

namespace kipt::skew {
namespace {

std::vector<Cell> ThreeCells() {
  std::vector<Cell> cells(3);
  for (int i = 0; i < 3; ++i) {
    cells[static_cast<size_t>(i)].pair = {{{1, 24 + i}, {}}, {{1, 27}}};
  }
  return cells;
}

CellReport Plain(const Cell& cell) {
  CellReport report;
  report.id = CellId(cell);
  report.kubelet = ToString(cell.pair.kubelet);
  return report;
}

std::vector<CellReport> RunThree(const CellRunner& run) {
  return RunCells(ThreeCells(), 2, absl::Seconds(2), run, [](const CellReport& /*cell*/) {});
}

TEST(WorkersTest, ReportEachAtItsEndAndReturnAllInTheOrderOfTheCells) {
  std::vector<std::string> done;
  const std::vector<CellReport> reports = RunCells(
      ThreeCells(), 3, absl::Seconds(5),
      [](const Cell& cell) {
        usleep(static_cast<useconds_t>(26 - cell.pair.kubelet.version.minor) * 200'000);
        return Plain(cell);
      },
      [&done](const CellReport& cell) { done.push_back(cell.kubelet); });
  EXPECT_THAT(done, ElementsAre("1.26", "1.25", "1.24"));
  std::vector<std::string> in_order;
  for (const CellReport& report : reports) in_order.push_back(report.kubelet);
  EXPECT_THAT(in_order, ElementsAre("1.24", "1.25", "1.26"));
}

TEST(WorkersTest, OutliveACellThatDies) {
  const std::vector<CellReport> reports = RunThree([](const Cell& cell) {
    if (cell.pair.kubelet.version.minor == 25) raise(SIGKILL);
    return Plain(cell);
  });
  EXPECT_THAT(reports[1].problem, HasSubstr("ended by signal 9"));
  EXPECT_EQ(reports[1].id, CellId(ThreeCells()[1]));
  EXPECT_EQ(VerdictOf(reports[1]), Verdict::kBroken);
  EXPECT_EQ(reports[2].problem, "");
}

TEST(WorkersTest, EndACellThatHangs) {
  const std::vector<CellReport> reports = RunThree([](const Cell& cell) {
    if (cell.pair.kubelet.version.minor == 24) sleep(60);
    return Plain(cell);
  });
  EXPECT_THAT(reports[0].problem, HasSubstr("not done after 2s"));
  EXPECT_EQ(reports[1].problem, "");
}

TEST(WorkersTest, HaveARunOfTheirOwn) {
  const std::vector<CellReport> reports = RunThree([](const Cell& cell) {
    CellReport report = Plain(cell);
    for (const auto& entry : std::filesystem::directory_iterator("/run")) {
      report.about += entry.path().string();
    }
    std::ofstream("/run/kipt-skew-was-here") << "x";
    return report;
  });
  for (const CellReport& report : reports) EXPECT_EQ(report.about, "");
  EXPECT_FALSE(std::filesystem::exists("/run/kipt-skew-was-here"));
}

}  // namespace
}  // namespace kipt::skew
