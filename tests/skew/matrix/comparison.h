// SPDX-License-Identifier: Apache-2.0
//
// Side B against side A of the same cell: in no cell may a packet fare worse with B.
#ifndef KIPT_TESTS_SKEW_MATRIX_COMPARISON_H_
#define KIPT_TESTS_SKEW_MATRIX_COMPARISON_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/skew/report/matrix_report.h"

namespace kipt::skew {

struct Comparison {
  Compared compared;
  // A sentence for each check and stream that fared worse on side B, or was asked of one of the
  // two alone.
  std::vector<std::string> worse;
};

// Checks are compared by their outcomes, streams by what became of their packets, worst first
// (Badness of expectations.h): B is worse where more packets than with A fared so
// badly, or worse.
//
// After a step's act nobody acts, so all packets of a stream should fare alike: their share is
// compared, and may differ by kShareTolerance. During the act packets count as time, because both
// streams have `per_second`, and B's may take kTimeTolerance longer, and as long as the
// machine held up either harness. Not compared during the act: how long something lasted that had
// gone wrong with A before, or stayed wrong. That ends with some later act, and when a step
// acts is the harness's doing (of the agent it awaits a timer's round, for which kubelet's minute
// only is said to be over); that it goes wrong is compared before and after. Nor are the packets
// that fared so because kube-proxy was changing its mode (StreamCheck::while_proxy_away).
Comparison CompareSides(const std::vector<CellReport>& cells, int per_second);

inline constexpr double kShareTolerance = 0.01;
inline constexpr absl::Duration kTimeTolerance = absl::Milliseconds(25);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_MATRIX_COMPARISON_H_
