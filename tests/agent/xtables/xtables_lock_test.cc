// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/xtables_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "agent/xtables/xtables_lock_watch.h"
#include "tests/support/failing_call.h"
#include "tests/support/lock_holder.h"
#include "tests/support/matchers.h"
#include "tests/support/process_cost.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

// Called before each flock(2) of this program.
std::function<void()> before_flock;
// Added to the device of each open file.
dev_t other_device = 0;

}  // namespace

extern "C" int flock(int fd, int operation) noexcept {
  if (const std::function<void()> before = before_flock) before();
  return static_cast<int>(syscall(SYS_flock, fd, operation));
}
extern "C" int fstat(int fd, struct stat* status) noexcept {
  const int result = fstatat(fd, "", status, AT_EMPTY_PATH);
  status->st_dev += other_device;
  return result;
}

namespace {

using agent::AcquireXtablesLock;

class XtablesLockTest : public ::testing::Test {
 protected:
  bool IsFree() const {
    const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    const bool free = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return free;
  }

  TemporaryTree tree_;
  const std::string path_ = tree_.Path("xtables.lock");
};

TEST_F(XtablesLockTest, MakesTheFileAndHoldsTheLockAsLongAsItLives) {
  std::optional<agent::XtablesLock> kept;
  {
    absl::StatusOr<agent::XtablesLock> lock = AcquireXtablesLock(path_, absl::ZeroDuration());
    ASSERT_THAT(lock, IsOk());
    struct stat status = {};
    ASSERT_EQ(stat(path_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600U);
    EXPECT_FALSE(IsFree());
    kept.emplace(*std::move(lock));
  }
  EXPECT_FALSE(IsFree()) << "moved, not given up";
  kept.reset();
  EXPECT_TRUE(IsFree());
}

// Of a host program, in another thread.
TEST_F(XtablesLockTest, IsFreeAfterwardsThoughAProcessWasForkedMeanwhile) {
  std::optional<absl::StatusOr<agent::XtablesLock>> lock(
      AcquireXtablesLock(path_, absl::ZeroDuration()));
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  auto watch = agent::XtablesLockWatch::Start(path_);
  ASSERT_THAT(watch, IsOk());
  lock.reset();
  EXPECT_TRUE(watch->Take()->closed) << "though that process has it open";
  EXPECT_TRUE(IsFree());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(XtablesLockTest, GivesUpInTimeAndNamesTheHolder) {
  const LockHolder holder(path_, absl::InfiniteDuration());
  const absl::Time start = absl::Now();
  EXPECT_THAT(AcquireXtablesLock(path_, absl::Milliseconds(200)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr(path_), HasSubstr("200ms"),
                             HasSubstr(absl::StrCat("process ", holder.pid(), " (lock-holder)")))));
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(200));
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
}

TEST_F(XtablesLockTest, FollowsAFileThatIsReplacedWhileItWaits) {
  const LockHolder holder(path_, absl::InfiniteDuration());
  tree_.Write("another", "");
  const std::string another = tree_.Path("another");
  std::thread other([&] {
    absl::SleepFor(absl::Milliseconds(100));
    EXPECT_EQ(rename(another.c_str(), path_.c_str()), 0);
  });
  EXPECT_THAT(AcquireXtablesLock(path_, absl::Seconds(20)), IsOk()) << "the new one is free";
  other.join();
}

TEST_F(XtablesLockTest, DoesNotTakeTheLockOfAFileThatIsReplacedJustBefore) {
  tree_.Write("another", "");
  before_flock = [&] {
    before_flock = nullptr;
    ASSERT_EQ(rename(tree_.Path("another").c_str(), path_.c_str()), 0);
  };
  const absl::StatusOr<agent::XtablesLock> lock = AcquireXtablesLock(path_, absl::Seconds(20));
  EXPECT_THAT(lock, IsOk());
  EXPECT_FALSE(IsFree());
}

// Another file system was mounted over it. New ones often begin with the same numbers.
TEST_F(XtablesLockTest, DoesNotTakeTheLockOfAFileWithTheSameNumberOnAnotherDevice) {
  other_device = 1;
  EXPECT_THAT(AcquireXtablesLock(path_, absl::Milliseconds(20)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  other_device = 0;
}

TEST_F(XtablesLockTest, TriesAboutAHundredTimesASecondAndSleepsInBetween) {
  const LockHolder holder(path_, absl::InfiniteDuration());
  const absl::Duration before = CpuOfThisThread();
  int tries = 0;
  before_flock = [&] { ++tries; };
  EXPECT_THAT(AcquireXtablesLock(path_, absl::Seconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  before_flock = nullptr;
  EXPECT_LT(CpuOfThisThread() - before, absl::Milliseconds(50));
  // Up to 210, and 66 at least where nothing delays the sleeps.
  EXPECT_GE(tries, 30);
  EXPECT_LE(tries, 220);
}

TEST_F(XtablesLockTest, IsNotInheritedByPrograms) {
  const absl::StatusOr<agent::XtablesLock> lock = AcquireXtablesLock(path_, absl::ZeroDuration());
  ASSERT_THAT(lock, IsOk());
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (std::filesystem::read_symlink(entry.path(), error) != path_) continue;
    ++found;
    EXPECT_NE(fcntl(std::stoi(entry.path().filename()), F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_EQ(found, 1);
}

TEST_F(XtablesLockTest, ReportsAnInvisibleHolder) {
  EXPECT_THAT(agent::DescribeXtablesLockHolder(path_), HasSubstr("no process that can be seen"));
  tree_.Write("xtables.lock", "");
  EXPECT_THAT(agent::DescribeXtablesLockHolder(path_), HasSubstr("no process that can be seen"));
}

TEST_F(XtablesLockTest, GivesUpAtOnceWhereTheKernelHasNoLocks) {
  WithFailingCall(
      {.number = SYS_flock, .argument = 1, .value = LOCK_EX | LOCK_NB, .error = ENOLCK}, [&] {
        EXPECT_THAT(
            AcquireXtablesLock(path_, absl::Seconds(5)),
            StatusIs(absl::StatusCode::kUnavailable, HasSubstr(absl::StrCat("flock ", path_))));
      });
  WithFailingCall({.number = SYS_flock, .argument = 1, .value = LOCK_EX | LOCK_NB, .error = EINTR},
                  [&] {
                    EXPECT_THAT(AcquireXtablesLock(path_, absl::Milliseconds(20)),
                                StatusIs(absl::StatusCode::kDeadlineExceeded))
                        << "a signal is no reason to give up";
                  });
}

TEST_F(XtablesLockTest, DoesNotHangOnAFifo) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(AcquireXtablesLock(path_, absl::Seconds(5)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not a file")));
}

TEST_F(XtablesLockTest, NamesAMissingDirectory) {
  EXPECT_THAT(AcquireXtablesLock(tree_.Path("none/xtables.lock"), absl::Seconds(5)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("directory is missing")));
}

}  // namespace
}  // namespace kipt::testing
