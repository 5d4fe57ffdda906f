// SPDX-License-Identifier: Apache-2.0
//
// What this project promises, against what was measured.
#ifndef KIPT_TESTS_BENCH_VERDICTS_H_
#define KIPT_TESTS_BENCH_VERDICTS_H_

#include <optional>
#include <string>
#include <vector>

#include "tests/bench/figures_view.h"

namespace kipt::testing {

struct Verdict {
  std::string what;
  std::string target;
  std::string measured;
  // Nothing: it was not measured.
  std::optional<bool> met;
};

std::vector<Verdict> Verdicts(const FiguresView& figures);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_VERDICTS_H_
