// SPDX-License-Identifier: Apache-2.0
//
// What is noted of a monitor's events, and a monitor that fails.
#include "agent/loop/lookout.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {
namespace {

using ::kipt::testing::BorrowedBackend;
using ::kipt::testing::FakeBackend;
using ::kipt::testing::IsOk;
using netlink::RulesetChange;
using netlink::RulesetChanges;
using ::testing::ElementsAre;
using ::testing::Not;
using ::testing::SizeIs;

// What the monitor waits on, and what it reports next.
struct Events {
  int fd = -1;
  RulesetChanges next;
};

class WatchedBackend : public BorrowedBackend {
 public:
  WatchedBackend(FakeBackend* backend, Events* events)
      : BorrowedBackend(backend), events_(events) {}
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> Watch(netlink::WatchMode) override {
    return std::make_unique<Reporting>(events_);
  }

 private:
  class Reporting : public netlink::Monitor {
   public:
    explicit Reporting(Events* events) : events_(events) {}
    int fd() const override { return events_->fd; }
    absl::StatusOr<RulesetChanges> Drain() override {
      eventfd_t ignored = 0;
      eventfd_read(events_->fd, &ignored);
      return std::exchange(events_->next, {});
    }

   private:
    Events* events_;
  };

  Events* events_;
};

class LookoutTest : public ::testing::Test {
 protected:
  LookoutTest() { events_.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); }
  ~LookoutTest() override { close(events_.fd); }

  absl::Status Watch() { return lookout_.Watch(backend_, netlink::WatchMode::kEvents); }
  // Of a Lookout that has just begun.
  Sighting Drained(RulesetChanges changes) {
    EXPECT_THAT(Watch(), IsOk());
    lookout_.Take();
    events_.next = std::move(changes);
    lookout_.Drain();
    return lookout_.Take();
  }
  void Wake(RulesetChanges changes) {
    events_.next = std::move(changes);
    ASSERT_EQ(eventfd_write(events_.fd, 1), 0);
    ASSERT_THAT(loop_->Dispatch(), IsOk());
  }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  FakeBackend kernel_;
  Events events_;
  WatchedBackend backend_{&kernel_, &events_};
  int sights_ = 0;
  // No process can have such an ID.
  const uint32_t pid_ = 4'194'305;
  Lookout lookout_{*loop_, {}, [this] { ++sights_; }};
};

TEST_F(LookoutTest, CannotWatchAMonitorThatTheLoopCannotWaitFor) {
  close(events_.fd);
  events_.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  EXPECT_THAT(Watch(), Not(IsOk()));
  EXPECT_FALSE(lookout_.watching());
}

TEST_F(LookoutTest, StopsWhereTheLoopCanNoLongerWait) {
  ASSERT_THAT(Watch(), IsOk());
  lookout_.Pause(true);
  close(events_.fd);
  lookout_.Pause(false);
  EXPECT_FALSE(lookout_.watching());
  EXPECT_THAT(lookout_.failure(), Not(IsOk()));
  EXPECT_TRUE(lookout_.seen().stopped);
}

TEST_F(LookoutTest, CallsOnlyForChangesOfOthers) {
  ASSERT_THAT(Watch(), IsOk());
  Wake({});  // as after a commit of our own
  EXPECT_EQ(sights_, 0);
  EXPECT_EQ(lookout_.seen().first, SteadyTime::InfiniteFuture());
  Wake({.count = 1});
  EXPECT_EQ(sights_, 1);
  EXPECT_LE(lookout_.seen().first, SteadyNow());
}

TEST_F(LookoutTest, KnowsOfOthersWhereAnEventWasLostOrHasNoWriter) {
  const RulesetChange known = {.generation = 5, .first_generation = 5, .pid = pid_};
  EXPECT_FALSE(Drained({.count = 1, .writers = {known}}).others);
  lookout_.Stop();
  EXPECT_TRUE(Drained({.count = 2, .writers = {known}, .others = 1}).others);
  lookout_.Stop();
  EXPECT_TRUE(Drained({.count = 1, .writers = {known}, .lost = 1}).others);
}

TEST_F(LookoutTest, NotesEachWriterOnceFromItsFirstCommitToItsLast) {
  ASSERT_THAT(Watch(), IsOk());
  Wake({.count = 1, .writers = {{.generation = 6, .first_generation = 5, .pid = pid_}}});
  Wake({.count = 1, .writers = {{.generation = 9, .first_generation = 8, .pid = pid_}}});
  const Sighting seen = lookout_.Take();
  ASSERT_THAT(seen.commits, SizeIs(1));
  EXPECT_EQ(seen.commits[0].first, 5U);
  EXPECT_EQ(seen.commits[0].last, 9U);
}

TEST_F(LookoutTest, NotesEightWritersAndThatThereWereOthers) {
  ASSERT_THAT(Watch(), IsOk());
  lookout_.Take();
  for (uint32_t i = 0; i < RulesetChanges::kMaxWriters; ++i) {
    Wake({.count = 1, .writers = {{.generation = i, .first_generation = i, .pid = pid_ + i}}});
  }
  EXPECT_THAT(lookout_.seen().commits, SizeIs(RulesetChanges::kMaxWriters));
  EXPECT_FALSE(lookout_.seen().others);
  Wake({.count = 1, .writers = {{.generation = 9, .first_generation = 9, .pid = pid_ + 9}}});
  EXPECT_THAT(lookout_.seen().commits, SizeIs(RulesetChanges::kMaxWriters));
  EXPECT_TRUE(lookout_.seen().others);
}

}  // namespace
}  // namespace kipt::agent
