// SPDX-License-Identifier: Apache-2.0
//
// An EventLoop turned as a host program with a loop of its own would turn it.
#ifndef KIPT_TESTS_SUPPORT_TURN_LOOP_H_
#define KIPT_TESTS_SUPPORT_TURN_LOOP_H_

#include <poll.h>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "agent/loop/clock.h"
#include "agent/loop/event_loop.h"
#include "tests/support/background_program.h"

namespace kipt::testing {

// Turns the loop until `done`. False where that takes longer than `patience`, or where the loop
// fails.
inline bool TurnUntil(agent::EventLoop& loop, absl::FunctionRef<bool()> done,
                      absl::Duration patience = absl::Seconds(5)) {
  const agent::SteadyTime deadline = agent::SteadyNow() + Patient(patience);
  while (!done()) {
    if (agent::SteadyNow() > deadline || !loop.Dispatch().ok()) return false;
    pollfd waited{.fd = loop.fd(), .events = POLLIN, .revents = 0};
    if (!done()) poll(&waited, 1, 10);
  }
  return true;
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_TURN_LOOP_H_
