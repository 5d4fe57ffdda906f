// SPDX-License-Identifier: Apache-2.0
//
// File: tests/skew/matrix/label_streams.h
//
// What may become of a stream whose packets somebody leads to chains of ConnLabelMarking, or did a
// moment ago.
#ifndef KIPT_TESTS_SKEW_MATRIX_LABEL_STREAMS_H_
#define KIPT_TESTS_SKEW_MATRIX_LABEL_STREAMS_H_

#include "tests/skew/matrix/node_facts.h"
#include "tests/skew/matrix/test_services.h"
#include "tests/skew/report/matrix_report.h"

namespace kipt::skew {

// The packets of `count` were sent while `before` became `after`: labelled all the time, never, or
// from some moment in between on. Even then each has one of the two fates, and none another: a
// packet that is to be masqueraded is not lost, one that is to be dropped is not masqueraded.
StreamCheck JudgeLabelStream(const FamilyFacts& before, const FamilyFacts& after,
                             const StreamQuestion& question, const StreamCount& count);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_MATRIX_LABEL_STREAMS_H_
