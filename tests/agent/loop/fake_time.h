// SPDX-License-Identifier: Apache-2.0
#ifndef KIPT_TESTS_AGENT_LOOP_FAKE_TIME_H_
#define KIPT_TESTS_AGENT_LOOP_FAKE_TIME_H_

#include "absl/time/time.h"
#include "agent/loop/reconciler.h"

namespace kipt::agent {

// Time that only passes when somebody sleeps, or by `per_look` at each question.
class FakeTime {
 public:
  explicit FakeTime(absl::Duration per_look = absl::ZeroDuration()) : per_look_(per_look) {}
  Clock clock() {
    return {.now = [this] { return now_ += per_look_; },
            .sleep =
                [this](absl::Duration duration) {
                  now_ += duration;
                  slept_ += duration;
                }};
  }
  absl::Duration slept() const { return slept_; }

 private:
  absl::Duration per_look_;
  SteadyTime now_;
  absl::Duration slept_ = absl::ZeroDuration();
};

}  // namespace kipt::agent

#endif  // KIPT_TESTS_AGENT_LOOP_FAKE_TIME_H_
