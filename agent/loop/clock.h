// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/clock.h
#ifndef KIPT_AGENT_LOOP_CLOCK_H_
#define KIPT_AGENT_LOOP_CLOCK_H_

#include <functional>

#include "absl/time/time.h"

namespace kipt::agent {

// CLOCK_MONOTONIC, counted from absl::UnixEpoch(): only differences have a meaning.
absl::Time SteadyNow();

// Time, passed in so that tests need not wait.
struct Clock {
  std::function<absl::Time()> now;
  std::function<void(absl::Duration)> sleep;
};
Clock SteadyClock();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_CLOCK_H_
