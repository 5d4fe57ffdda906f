// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/clock.h"

#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace kipt::agent {
namespace {

constexpr int kRetriesAtOnce = 10;
constexpr absl::Duration kRetryPause = absl::Milliseconds(100);

}  // namespace

SteadyTime SteadyNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return SteadyTime() + absl::DurationFromTimespec(now);
}

Clock SteadyClock(absl::Duration patience) {
  return {.now = SteadyNow,
          .sleep = [](absl::Duration duration) { absl::SleepFor(duration); },
          .patience = patience};
}

absl::Status RetryAborted(const Clock& clock, SteadyTime start,
                          absl::FunctionRef<absl::Status()> attempt) {
  for (int tries = 1;; ++tries) {
    absl::Status status = attempt();
    if (!absl::IsAborted(status)) return status;
    if (clock.now() - start >= clock.patience) {
      return absl::DeadlineExceededError(absl::StrCat(
          "other programs kept changing the ruleset for ", absl::FormatDuration(clock.patience),
          " (", tries, " attempts); the last attempt: ", status.message()));
    }
    if (tries % kRetriesAtOnce == 0) clock.sleep(kRetryPause);
  }
}

}  // namespace kipt::agent
