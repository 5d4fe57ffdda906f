// SPDX-License-Identifier: Apache-2.0
#include "tests/support/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tests/support/child.h"

namespace kipt::testing {
namespace {

constexpr int kDeadlineMilliseconds = 100'000;

// A file in memory as each of the program's standard streams: no pipe can fill up, so nothing has
// to be pumped while the program runs.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : fd_(memfd_create(name, MFD_CLOEXEC)) {}
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int fd() const { return fd_; }

  bool Fill(const std::string& text) {
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t count = write(fd_, text.data() + done, text.size() - done);
      if (count <= 0) return false;
      done += static_cast<size_t>(count);
    }
    return lseek(fd_, 0, SEEK_SET) == 0;
  }

  std::string Text() const {
    std::string text;
    char buffer[65536];
    ssize_t count = 0;
    while ((count = pread(fd_, buffer, sizeof(buffer), static_cast<off_t>(text.size()))) > 0) {
      text.append(buffer, static_cast<size_t>(count));
    }
    return text;
  }

 private:
  const int fd_;
};

// False where the program is still running at the deadline.
bool WaitForEnd(pid_t pid) {
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) return true;  // waitpid then waits without a deadline
  pollfd waiting = {pidfd, POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&waiting, 1, kDeadlineMilliseconds);
  } while (ready < 0 && errno == EINTR);
  close(pidfd);
  return ready != 0;
}

}  // namespace

std::ostream& operator<<(std::ostream& stream, const ProgramResult& result) {
  return stream << "exit code " << result.exit_code << "\n--- stdout\n"
                << result.out << "\n--- stderr\n"
                << result.err << "\n---";
}

ProgramResult RunProgram(std::vector<std::string> argv, std::string stdin_text) {
  if (argv.empty()) return {127, "", "no program named"};
  std::vector<char*> pointers;
  for (std::string& argument : argv) pointers.push_back(argument.data());
  pointers.push_back(nullptr);

  MemoryFile in("stdin");
  MemoryFile out("stdout");
  MemoryFile err("stderr");
  if (in.fd() < 0 || out.fd() < 0 || err.fd() < 0 || !in.Fill(stdin_text)) {
    return {127, "", std::string("memfd_create: ") + std::strerror(errno)};
  }
  const pid_t pid =
      StartChild(pointers.data(), environ, {.in = in.fd(), .out = out.fd(), .err = err.fd()});
  if (pid < 0) return {127, "", argv[0] + ": " + std::strerror(errno)};

  const bool ended = WaitForEnd(pid);
  if (!ended) kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  ProgramResult result{0, out.Text(), err.Text()};
  if (!ended) {
    result.exit_code = 124;
    result.err += "\n(killed: still running after 100 seconds)";
  } else if (WIFSIGNALED(status)) {
    result.exit_code = 128 + WTERMSIG(status);
  } else {
    result.exit_code = WEXITSTATUS(status);
  }
  return result;
}

}  // namespace kipt::testing
