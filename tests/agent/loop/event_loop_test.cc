// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/event_loop.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "tests/support/failing_call.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {
namespace {

class EventLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
    ASSERT_THAT(loop, IsOk());
    loop_ = *std::move(loop);
    counter_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    ASSERT_GE(counter_, 0);
  }
  ~EventLoopTest() override { close(counter_); }

  void Write() const {
    const uint64_t one = 1;
    ASSERT_EQ(write(counter_, &one, sizeof(one)), ssize_t{sizeof(one)});
  }
  void Read() const {
    uint64_t value = 0;
    ASSERT_EQ(read(counter_, &value, sizeof(value)), ssize_t{sizeof(value)});
  }
  // As a host program does that has a loop of its own.
  bool HostPolls(int milliseconds) const {
    pollfd waited{.fd = loop_->fd(), .events = POLLIN, .revents = 0};
    return poll(&waited, 1, milliseconds) == 1;
  }

  std::unique_ptr<EventLoop> loop_;
  int counter_ = -1;
};

TEST_F(EventLoopTest, ThrowsWhatAHandlerThrewAndGoesOn) {
  const auto source = loop_->AddReadable(counter_, [this] {
    Read();
    throw std::bad_alloc();
  });
  for (int i = 0; i < 2; ++i) {
    Write();
    EXPECT_THROW(loop_->Dispatch().IgnoreError(), std::bad_alloc);
    EXPECT_FALSE(*loop_->busy());
    EXPECT_THAT(loop_->Dispatch(), IsOk());
    EXPECT_FALSE(HostPolls(0));
  }
  Write();
  EXPECT_THROW(loop_->Run().IgnoreError(), std::bad_alloc);
}

TEST_F(EventLoopTest, AHostThatPollsTheDescriptorGetsFilesAndTimers) {
  std::vector<char> seen;
  auto file = loop_->AddReadable(counter_, [&] {
    Read();
    seen.push_back('f');
  });
  auto timer = loop_->AddTimer([&] { seen.push_back('t'); });
  ASSERT_THAT(file, IsOk());
  timer->FireAfter(absl::Milliseconds(30));
  ASSERT_THAT(loop_->Dispatch(), IsOk());
  EXPECT_FALSE(HostPolls(0));
  Write();
  EXPECT_TRUE(HostPolls(0));
  ASSERT_THAT(loop_->Dispatch(), IsOk());
  EXPECT_EQ(seen, (std::vector<char>{'f'}));
  EXPECT_TRUE(HostPolls(5000));
  ASSERT_THAT(loop_->Dispatch(), IsOk());
  EXPECT_EQ(seen, (std::vector<char>{'f', 't'}));
  EXPECT_FALSE(HostPolls(50)) << "a timer fires once";
}

TEST_F(EventLoopTest, DispatchReturnsThoughMoreIsDueAndTheHostIsCalledAgain) {
  const SteadyTime end = SteadyNow() + absl::Seconds(3);
  std::unique_ptr<Timer> timer;
  timer = loop_->AddTimer([&] {
    if (SteadyNow() < end) timer->FireAfter(absl::ZeroDuration());
  });
  const auto file = *loop_->AddReadable(counter_, [&] {
    if (SteadyNow() >= end) Read();
  });
  for (const bool by_timer : {true, false}) {
    const absl::Duration delay = by_timer ? absl::ZeroDuration() : absl::InfiniteDuration();
    timer->FireAfter(delay);
    if (!by_timer) Write();
    EXPECT_THAT(loop_->Dispatch(), IsOk());
    EXPECT_LT(SteadyNow(), end);
    EXPECT_TRUE(HostPolls(0));
  }
  Read();
  EXPECT_THAT(loop_->Dispatch(), IsOk());
  EXPECT_FALSE(HostPolls(0));
}

TEST_F(EventLoopTest, WhatComesWhileAFileIsNotWaitedForIsFoundLater) {
  int seen = 0;
  auto file = loop_->AddReadable(counter_, [&] {
    Read();
    ++seen;
  });
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT((*file)->Enable(false), IsOk());
  Write();
  ASSERT_THAT(loop_->Dispatch(), IsOk());
  EXPECT_EQ(seen, 0);
  ASSERT_THAT((*file)->Enable(true), IsOk());
  ASSERT_THAT(loop_->Dispatch(), IsOk());
  EXPECT_EQ(seen, 1);
}

TEST_F(EventLoopTest, ATimerThatIsSetToNeverDoesNotFire) {
  int seen = 0;
  auto timer = loop_->AddTimer([&] { ++seen; });
  timer->FireAfter(absl::ZeroDuration());
  timer->FireAfter(absl::InfiniteDuration());
  ASSERT_THAT(loop_->Dispatch(), IsOk());
  EXPECT_EQ(seen, 0);
}

TEST_F(EventLoopTest, AHandlerMayDestroyItsOwnSource) {
  std::unique_ptr<EventSource> source;
  int seen = 0;
  auto file = loop_->AddReadable(counter_, [&] {
    ++seen;
    source.reset();
    ++seen;
  });
  ASSERT_THAT(file, IsOk());
  source = *std::move(file);
  Write();
  ASSERT_THAT(loop_->Dispatch(), IsOk());
  ASSERT_THAT(loop_->Dispatch(), IsOk());
  EXPECT_EQ(seen, 2);
}

TEST_F(EventLoopTest, WithoutAServiceManagerThereIsNoWatchdog) {
  ASSERT_EQ(unsetenv("WATCHDOG_USEC"), 0);
  EXPECT_THAT(loop_->EnableWatchdog([] {}), IsOkAndHolds(false));
  ASSERT_EQ(setenv("WATCHDOG_USEC", "60000000", 1), 0);
  EXPECT_THAT(loop_->EnableWatchdog([] {}), IsOkAndHolds(true));
  ASSERT_EQ(setenv("WATCHDOG_PID", "1", 1), 0);
  EXPECT_THAT(loop_->EnableWatchdog([] {}), IsOkAndHolds(false)) << "another process's";
  ASSERT_EQ(unsetenv("WATCHDOG_PID"), 0);
  for (const char* const wrong : {"soon", "0"}) {
    ASSERT_EQ(setenv("WATCHDOG_USEC", wrong, 1), 0);
    EXPECT_THAT((*EventLoop::Create())->EnableWatchdog([] {}),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  ASSERT_EQ(unsetenv("WATCHDOG_USEC"), 0);
}

TEST_F(EventLoopTest, ATimerIsLateByItsToleranceAtMost) {
  for (const absl::Duration tolerance : {absl::Milliseconds(1), absl::Milliseconds(600)}) {
    const std::unique_ptr<EventLoop> loop = *EventLoop::Create();
    auto timer = loop->AddTimer([&] { loop->Exit(0); }, tolerance);
    const absl::Time start = absl::Now();
    timer->FireAfter(absl::Milliseconds(100));
    ASSERT_THAT(loop->Run(), IsOk());
    EXPECT_GE(absl::Now() - start, absl::Milliseconds(100));
    EXPECT_LE(absl::Now() - start, absl::Milliseconds(200) + tolerance);
  }
}

TEST_F(EventLoopTest, ATimerWithToleranceFiresWithTheNextOne) {
  std::vector<char> seen;
  const auto tolerant = loop_->AddTimer([&] { seen.push_back('t'); }, absl::Seconds(10));
  const auto exact = loop_->AddTimer([&] {
    seen.push_back('e');
    loop_->Exit(0);
  });
  exact->FireAfter(absl::Milliseconds(60));
  tolerant->FireAfter(absl::Milliseconds(40));
  ASSERT_THAT(loop_->Dispatch(), IsOk());
  EXPECT_FALSE(HostPolls(50)) << "the processor sleeps";
  ASSERT_THAT(loop_->Run(), IsOk());
  EXPECT_EQ(seen, (std::vector<char>{'t', 'e'}));
}

// What is waited for belongs to both processes.
TEST_F(EventLoopTest, AForkedProcessTakesNothingFromItsParent) {
  std::vector<char> seen;
  auto file = *loop_->AddReadable(counter_, [&] {
    Read();
    seen.push_back('f');
  });
  auto timer = loop_->AddTimer([&] { seen.push_back('t'); });
  timer->FireAfter(absl::Milliseconds(1));
  EXPECT_EXIT(
      {
        const bool refused = !loop_->Dispatch().ok();
        file.reset();
        timer.reset();
        _exit(refused ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  Write();
  while (seen.size() < 2 && HostPolls(1000)) EXPECT_THAT(loop_->Dispatch(), IsOk());
  EXPECT_THAT(seen, ::testing::UnorderedElementsAre('f', 't'));
}

TEST_F(EventLoopTest, ReportsWhatTheKernelRefuses) {
  WithFailingCall(
      {.number = SYS_epoll_create1, .argument = 0, .value = EPOLL_CLOEXEC, .error = EMFILE}, [] {
        EXPECT_THAT(EventLoop::Create(), StatusIs(absl::StatusCode::kResourceExhausted,
                                                  HasSubstr("cannot make an event loop")));
      });
  WithFailingCall(
      {.number = SYS_timerfd_create, .argument = 0, .value = CLOCK_MONOTONIC, .error = EMFILE}, [] {
        EXPECT_THAT(EventLoop::Create(), StatusIs(absl::StatusCode::kResourceExhausted,
                                                  HasSubstr("cannot make an event loop")));
      });
  const int regular = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  EXPECT_THAT(
      loop_->AddReadable(regular, [] {}),
      StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("cannot wait for descriptor")));
  close(regular);
  EXPECT_THAT(loop_->AddSignal(10000, [] {}), Not(IsOk()));
  // No epoll any more.
  ASSERT_GE(dup2(counter_, loop_->fd()), 0);
  EXPECT_THAT(loop_->Dispatch(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("the event loop failed")));
  EXPECT_THAT(loop_->Run(), Not(IsOk()));
}

}  // namespace
}  // namespace kipt::agent
