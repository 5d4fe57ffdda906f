// SPDX-License-Identifier: Apache-2.0
//
// What is noted of a monitor's events, and a monitor that fails.
#include "agent/loop/writer_watch.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {
namespace {

using netlink::RulesetChange;
using netlink::RulesetChanges;

// Its monitor waits for `fd`, and reports `next`.
class WatchedBackend : public BorrowedBackend {
 public:
  using BorrowedBackend::BorrowedBackend;
  ~WatchedBackend() override { close(fd); }
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> Watch(netlink::WatchMode) override {
    return std::make_unique<Reporting>(this);
  }

  int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  RulesetChanges next;

 private:
  class Reporting : public netlink::Monitor {
   public:
    explicit Reporting(WatchedBackend* backend) : backend_(backend) {}
    int fd() const override { return backend_->fd; }
    absl::StatusOr<RulesetChanges> Drain() override {
      eventfd_t ignored = 0;
      eventfd_read(backend_->fd, &ignored);
      return std::exchange(backend_->next, {});
    }

   private:
    WatchedBackend* backend_;
  };
};

class WriterWatchTest : public ::testing::Test {
 protected:
  absl::Status Watch() { return writer_watch_.Watch(backend_, netlink::WatchMode::kEvents); }
  // Of a WriterWatch that has just begun.
  SeenWriters Drained(RulesetChanges changes) {
    EXPECT_THAT(Watch(), IsOk());
    writer_watch_.Take();
    backend_.next = std::move(changes);
    writer_watch_.Drain();
    return writer_watch_.Take();
  }
  void Wake(RulesetChanges changes) {
    backend_.next = std::move(changes);
    ASSERT_EQ(eventfd_write(backend_.fd, 1), 0);
    ASSERT_THAT(loop_->Dispatch(), IsOk());
  }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  FakeBackend kernel_;
  WatchedBackend backend_{&kernel_};
  // No process can have such an ID.
  const uint32_t pid_ = 4'194'305;
  WriterWatch writer_watch_{*loop_, {}, [] {}};
};

TEST_F(WriterWatchTest, CannotWatchAMonitorThatTheLoopCannotWaitFor) {
  close(backend_.fd);
  backend_.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  EXPECT_THAT(Watch(), Not(IsOk()));
  EXPECT_FALSE(writer_watch_.watching());
}

TEST_F(WriterWatchTest, StopsWhereTheLoopCanNoLongerWait) {
  ASSERT_THAT(Watch(), IsOk());
  writer_watch_.Pause(true);
  close(backend_.fd);
  writer_watch_.Pause(false);
  EXPECT_FALSE(writer_watch_.watching());
  EXPECT_THAT(writer_watch_.failure(), Not(IsOk()));
  EXPECT_TRUE(writer_watch_.seen().stopped);
}

TEST_F(WriterWatchTest, KnowsOfOthersWhereAnEventWasLostOrHasNoWriter) {
  const RulesetChange known = {.generation = 5, .first_generation = 5, .pid = pid_};
  EXPECT_FALSE(Drained({.count = 1, .writers = {known}}).others);
  writer_watch_.Stop();
  EXPECT_TRUE(Drained({.count = 2, .writers = {known}, .others = 1}).others);
  writer_watch_.Stop();
  EXPECT_TRUE(Drained({.count = 1, .writers = {known}, .lost = 1}).others);
}

TEST_F(WriterWatchTest, NotesEachWriterOnceFromItsFirstCommitToItsLast) {
  ASSERT_THAT(Watch(), IsOk());
  Wake({.count = 1, .writers = {{.generation = 6, .first_generation = 5, .pid = pid_}}});
  Wake({.count = 1, .writers = {{.generation = 9, .first_generation = 8, .pid = pid_}}});
  const SeenWriters seen = writer_watch_.Take();
  ASSERT_THAT(seen.commits, SizeIs(1));
  EXPECT_EQ(seen.commits[0].first, 5U);
  EXPECT_EQ(seen.commits[0].last, 9U);
}

TEST_F(WriterWatchTest, NotesEightWritersAndThatThereWereOthers) {
  ASSERT_THAT(Watch(), IsOk());
  writer_watch_.Take();
  for (uint32_t i = 0; i < RulesetChanges::kMaxWriters; ++i) {
    Wake({.count = 1, .writers = {{.generation = i, .first_generation = i, .pid = pid_ + i}}});
  }
  EXPECT_THAT(writer_watch_.seen().commits, SizeIs(RulesetChanges::kMaxWriters));
  EXPECT_FALSE(writer_watch_.seen().others);
  Wake({.count = 1, .writers = {{.generation = 9, .first_generation = 9, .pid = pid_ + 9}}});
  EXPECT_THAT(writer_watch_.seen().commits, SizeIs(RulesetChanges::kMaxWriters));
  EXPECT_TRUE(writer_watch_.seen().others);
}

}  // namespace
}  // namespace kipt::agent
