// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/clock.h"

#include <ctime>

#include "absl/time/clock.h"

namespace kipt::agent {

absl::Time SteadyNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::TimeFromTimespec(now);
}

Clock SteadyClock() {
  return {.now = SteadyNow, .sleep = [](absl::Duration duration) { absl::SleepFor(duration); }};
}

}  // namespace kipt::agent
