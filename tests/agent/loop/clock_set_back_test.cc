// SPDX-License-Identifier: Apache-2.0
//
// Somebody sets the machine's clock back, again and again: what waits a bounded time still ends.
// And what takes a minute of steady time. A program of its own, for it takes the place of
// clock_gettime(2).
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "absl/time/time.h"
#include "agent/loop/reconciler.h"
#include "agent/policy/policy.h"
#include "tests/agent/loop/agent_fixture.h"
#include "tests/agent/xtables/iptables_legacy_fixture.h"
#include "tests/support/fake_backend.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace {

// Seconds that the wall clock loses each time it is read.
std::atomic<int64_t> lost_each_time = 0;
std::atomic<int64_t> lost = 0;
// Seconds that have passed by the steady clocks, beyond those that have.
std::atomic<int64_t> slept = 0;

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_REALTIME) time->tv_sec -= lost += lost_each_time;
  if (clock == CLOCK_MONOTONIC) time->tv_sec += slept;
  return result;
}

namespace kipt::testing {
namespace {

using ::testing::HasSubstr;

class ClockSetBackTest : public LegacyFixture {
 protected:
  void SetUp() override {
    LegacyFixture::SetUp();
    const absl::Time before = absl::Now();
    lost_each_time = 60;
    ASSERT_LT(absl::Now(), before) << "the clock is not this test's";
  }
  void TearDown() override { lost_each_time = 0; }
};

TEST_F(ClockSetBackTest, ARulesetThatOthersKeepChangingIsGivenUp) {
  FakeBackend backend;
  for (int i = 0; i < 1000; ++i) backend.FailNextRead(absl::AbortedError("changed in between"));
  agent::Clock clock = agent::SteadyClock();
  clock.sleep = [](absl::Duration) { ++slept; };
  const auto plan = agent::Reconciler(&backend, clock)
                        .Check(Wanting(agent::Mode::kCleanup, netlink::kFamilies, {}, {}));
  EXPECT_THAT(plan, StatusIs(absl::StatusCode::kDeadlineExceeded,
                             HasSubstr("other programs kept changing the ruleset")));
}

TEST_F(ClockSetBackTest, AProgramThatNeverGetsItsResourceIsGivenUp) {
  auto backend = Open("1.8.9", absl::Milliseconds(300));
  const netlink::ChainId user{netlink::Family::kIPv4, netlink::Table::kFilter, "USER"};
  const auto before = backend->Read({{.chain = user}});
  ASSERT_THAT(before, IsOk());
  int calls = 0;
  runner_.On(Program("iptables", "restore"), [&](const agent::CommandRequest&) {
    return agent::CommandResult{.exit_code = ++calls < 100 ? 4 : 0, .output = "", .errors = ""};
  });
  EXPECT_THAT(backend->Apply(
                  {.generation = before->generation, .operations = {netlink::CreateChain{user}}}),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_LT(calls, 20);
}

}  // namespace
}  // namespace kipt::testing

namespace kipt::agent {
namespace {

using ::testing::SizeIs;

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
