// SPDX-License-Identifier: Apache-2.0
//
// How much a run has to judge before its silence means anything.
#ifndef KIPT_TESTS_SOAK_FLOOR_H_
#define KIPT_TESTS_SOAK_FLOOR_H_

#include <cstdint>

#include "tests/soak/journal.h"
#include "tests/soak/options.h"
#include "tests/soak/summary.h"
#include "tests/soak/traffic.h"

namespace kipt::soak {

// How many packets of a stream must be judged: one in fifty of those that its schedule sends in the
// length of the run. At 100 a second this is 120 a minute and 3,600 in half an hour. If one packet
// in forty went wrong, 120 would show it in 95 of 100 runs.
int64_t FloorOfPackets(Transport transport, const Options& options);

// Reports each judge that had too little to judge: "proved nothing".
void JudgeFloor(const NodeSummary& node, const Options& options, Journal& journal);

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_FLOOR_H_
