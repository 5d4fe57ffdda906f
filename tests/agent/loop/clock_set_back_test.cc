// SPDX-License-Identifier: Apache-2.0
//
// What takes a minute of steady time. A program of its own, for it takes the place of
// clock_gettime(2).
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "tests/agent/loop/control_loop_fixture.h"
#include "tests/support/observed.h"

namespace {

// Seconds that have passed by the steady clock, beyond those that have.
std::atomic<int64_t> slept = 0;

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_MONOTONIC) time->tv_sec += slept;
  return result;
}

namespace kipt::agent {
namespace {

class ClockSetForwardTest : public AgentTest {};

TEST_F(ClockSetForwardTest, TheRoundAfterAMinuteOfQuietReportsThatAFightHasEnded) {
  ASSERT_TRUE(Started(Mode::kCleanup));
  ASSERT_TRUE(TurnUntil([&] {
    const netlink::ObservedChain* input = kernel_.state().Find(Filter("INPUT"));
    if (!input->rules.empty() && agent_->state().fights.empty()) DeleteJump(Filter("INPUT"));
    return !input->rules.empty() && !agent_->state().fights.empty();
  }));
  slept += 61;
  const size_t rounds = rounds_.size();
  kernel_.Touch();
  ASSERT_TRUE(TurnUntilRounds(rounds + 1));
  EXPECT_THAT(rounds_[rounds].fights_ended, SizeIs(1));
}

}  // namespace
}  // namespace kipt::agent
