// SPDX-License-Identifier: Apache-2.0
//
// What cells run: asked for before the first of them, because each would fail in a way of its own.
#ifndef KIPT_TESTS_SKEW_MATRIX_PROGRAMS_H_
#define KIPT_TESTS_SKEW_MATRIX_PROGRAMS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/skew/matrix/cell.h"
#include "tests/skew/matrix/run_cell.h"

namespace kipt::skew {

// NotFound: which programs of those that `cells` run are not there, and which Debian packages have
// them, or which flag names them. `can_run` says whether there is a program of this path, or in
// PATH of this name.
absl::Status HasPrograms(const std::vector<Cell>& cells, const HarnessOptions& options,
                         const std::function<bool(const std::string& path)>& can_run);
// The last on this machine.
bool CanRunHere(const std::string& path);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_MATRIX_PROGRAMS_H_
