// SPDX-License-Identifier: Apache-2.0
//
// Runs one cell: makes a node, lets the actors act along the path, and asks with packets after each
// step what the node does.
#ifndef KIPT_TESTS_SKEW_MATRIX_RUN_CELL_H_
#define KIPT_TESTS_SKEW_MATRIX_RUN_CELL_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/skew/matrix/cell.h"
#include "tests/skew/report/matrix_report.h"

namespace kipt::skew {

// Which cell it is, and nothing of what was found.
CellReport ReportOf(const Cell& cell);

// In the calling process, which must have one thread only and a mount namespace of its own with a
// /run of its own (RunCells() sees to that). A cell that cannot be run is a report with a
// `problem`.
CellReport RunCell(const Cell& cell);

// What cells run: asked for before the first of them, because each would fail in a way of its own.

// NotFound: which programs of those that `cells` run are missing, and which Debian packages have
// them, or which flag names them. `can_run`: whether there is a program of this path, or in PATH of
// this name.
absl::Status HasPrograms(const std::vector<Cell>& cells,
                         const std::function<bool(const std::string& path)>& can_run);
// The last on this machine.
bool CanRunHere(const std::string& path);

// What is done in a worker: RunCell, but in tests.
using CellRunner = std::function<CellReport(const Cell& cell)>;

// Runs all, `jobs` at a time; the reports are in the order of the cells. `done` gets each
// when it is made. Every cell has a process with a mount namespace of its own (an empty tmpfs on
// /run: legacy iptables of two cells must not wait for one lock), which is killed with this one; a
// cell that takes longer than `deadline`, or whose process dies, is a report with a `problem`.
//
// To be called by a process with one thread.
std::vector<CellReport> RunCells(const std::vector<Cell>& cells, int jobs, absl::Duration deadline,
                                 const CellRunner& run,
                                 const std::function<void(const CellReport&)>& done);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_MATRIX_RUN_CELL_H_
