// SPDX-License-Identifier: Apache-2.0
#include "tests/support/child.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace kipt::testing {
namespace {

constexpr int kCannotRun = 127;

void Print(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) _exit(kCannotRun);
}

// In the child, which has the parent's memory until it runs the program: system calls only.
[[noreturn]] void Become(char* const* argv, char* const* environment,
                         const StandardStreams& streams, pid_t parent) {
  DieWithParent(parent);
  setpgid(0, 0);
  dup2(streams.in, STDIN_FILENO);
  dup2(streams.out, STDOUT_FILENO);
  dup2(streams.err, STDERR_FILENO);
  execvpe(argv[0], argv, environment);
  const int error = errno;
  Print(argv[0]);
  Print(": ");
  Print(strerrordesc_np(error));
  _exit(kCannotRun);
}

}  // namespace

void DieWithParent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have ended before.
  if (getppid() != parent) _exit(kCannotRun);
}

pid_t StartPausedChild() {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) return child;
  DieWithParent(parent);
  for (;;) pause();
}

pid_t StartChild(char* const* argv, char* const* environment, const StandardStreams& streams) {
  const pid_t parent = getpid();
  // fork() would copy the page tables, which takes milliseconds in a large process; benchmarks run
  // programs this way.
  const pid_t child = vfork();
  if (child == 0) Become(argv, environment, streams, parent);
  return child;
}

}  // namespace kipt::testing
