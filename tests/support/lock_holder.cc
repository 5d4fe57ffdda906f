// SPDX-License-Identifier: Apache-2.0
#include "tests/support/lock_holder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "tests/support/child.h"

namespace kipt::testing {
namespace {

[[noreturn]] void Hold(const char* path, int milliseconds, int ready, pid_t parent) {
  DieWithParent(parent);
  prctl(PR_SET_NAME, "lock-holder");
  const int fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || flock(fd, LOCK_EX) != 0 || write(ready, "x", 1) != 1) _exit(1);
  close(ready);
  poll(nullptr, 0, milliseconds);
  _exit(0);
}

}  // namespace

LockHolder::LockHolder(const std::string& path, absl::Duration time) {
  std::array<int, 2> ready = {-1, -1};
  EXPECT_EQ(pipe2(ready.data(), O_CLOEXEC), 0);
  const int milliseconds =
      time == absl::InfiniteDuration() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(time));
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) Hold(path.c_str(), milliseconds, ready[1], parent);
  close(ready[1]);
  char held = 0;
  EXPECT_EQ(read(ready[0], &held, 1), 1) << "the lock " << path << " could not be held";
  close(ready[0]);
}

LockHolder::~LockHolder() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

}  // namespace kipt::testing
