// SPDX-License-Identifier: Apache-2.0
//
// A matrix as tables: one per path, iptables mode and company, in which each place holds what
// the two sides came to.
#ifndef KIPT_TESTS_SKEW_REPORT_GRID_H_
#define KIPT_TESTS_SKEW_REPORT_GRID_H_

#include <cstddef>
#include <string>
#include <vector>

#include "tests/skew/report/matrix_report.h"

namespace kipt::skew {

// One pair of versions, on one path and in one mode. Null: no such cell was run. Both point into
// the report, whose cells they are.
struct GridPair {
  size_t row = 0;
  size_t column = 0;
  const CellReport* a = nullptr;
  const CellReport* b = nullptr;

  // Either; they agree in all that is not the side's.
  const CellReport& any() const { return a != nullptr ? *a : *b; }
};

struct Grid {
  std::string path;
  std::string mode;
  // What stands in the cells' ids between kube-proxy and the mode, "third-parties", or nothing.
  std::string company;
  // Generations of kubelet, and of kube-proxy: by mode, "ipvs" behind iptables, then by version.
  std::vector<std::string> rows = {};
  std::vector<std::string> columns = {};
  // Ordered by row, then column. A place without one was not run; no place has two.
  std::vector<GridPair> pairs = {};

  // "fresh boot", "fresh boot, third parties".
  std::string Title() const;
};

// Paths and companies in the order of the report. `report` must outlive what is returned.
std::vector<Grid> GridsOf(const MatrixReport& report);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_REPORT_GRID_H_
