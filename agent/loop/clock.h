// SPDX-License-Identifier: Apache-2.0
//
// Steady time, and the retry of attempts.
#ifndef KIPT_AGENT_LOOP_CLOCK_H_
#define KIPT_AGENT_LOOP_CLOCK_H_

#include <compare>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

namespace kipt::agent {

// A moment of CLOCK_MONOTONIC. Does not mix with the time of day (absl::Time), which may be set.
class SteadyTime {
 public:
  constexpr SteadyTime() = default;
  static SteadyTime InfinitePast() { return SteadyTime() - absl::InfiniteDuration(); }
  static SteadyTime InfiniteFuture() { return SteadyTime() + absl::InfiniteDuration(); }

  SteadyTime& operator+=(absl::Duration duration) {
    since_start_ += duration;
    return *this;
  }
  friend SteadyTime operator+(SteadyTime time, absl::Duration duration) { return time += duration; }
  friend SteadyTime operator-(SteadyTime time, absl::Duration duration) {
    return time += -duration;
  }
  friend absl::Duration operator-(SteadyTime a, SteadyTime b) {
    return a.since_start_ - b.since_start_;
  }
  friend bool operator==(const SteadyTime&, const SteadyTime&) = default;
  // No friend: with -fcoverage-mapping, clang 14 cannot compile a friend that is defaulted.
  std::strong_ordering operator<=>(const SteadyTime&) const = default;

 private:
  absl::Duration since_start_;
};

SteadyTime SteadyNow();

// Time, passed in so that tests need not wait.
struct Clock {
  std::function<SteadyTime()> now;
  std::function<void(absl::Duration)> sleep;
  // How long RetryAborted retries.
  absl::Duration patience = absl::Seconds(5);
};
Clock SteadyClock(absl::Duration patience = Clock().patience);

// Calls `attempt` again while it returns Aborted (other processes interfered, nothing was done):
// ten times at once, then every 100 ms, until clock.patience has passed since `start`. Then
// DeadlineExceeded, with the last message.
absl::Status RetryAborted(const Clock& clock, SteadyTime start,
                          absl::FunctionRef<absl::Status()> attempt);
inline absl::Status RetryAborted(const Clock& clock, absl::FunctionRef<absl::Status()> attempt) {
  return RetryAborted(clock, clock.now(), attempt);
}

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_CLOCK_H_
