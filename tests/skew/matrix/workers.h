// SPDX-License-Identifier: Apache-2.0
//
// Runs cells side by side, each in a process of its own.
#ifndef KIPT_TESTS_SKEW_MATRIX_WORKERS_H_
#define KIPT_TESTS_SKEW_MATRIX_WORKERS_H_

#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "tests/skew/matrix/cell.h"
#include "tests/skew/matrix/run_cell.h"
#include "tests/skew/report/matrix_report.h"

namespace kipt::skew {

// What is done in a worker: RunCell, but in tests.
using CellRunner = std::function<CellReport(const Cell& cell)>;

// Runs all, `jobs` at a time; the reports are in the order of the cells. `done` is told of each
// when it is. Every cell has a process with a mount namespace of its own (an empty tmpfs on /run:
// legacy iptables of two cells must not wait for one lock), which is killed with this one; a cell
// that takes longer than `deadline`, or whose process dies, is a report with a `problem`.
//
// To be called by a process with one thread.
std::vector<CellReport> RunCells(const std::vector<Cell>& cells, int jobs, absl::Duration deadline,
                                 const CellRunner& run,
                                 const std::function<void(const CellReport&)>& done);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_MATRIX_WORKERS_H_
