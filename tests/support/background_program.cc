// SPDX-License-Identifier: Apache-2.0
#include "tests/support/background_program.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "absl/time/clock.h"

namespace kipt::testing {
namespace {

constexpr absl::Duration kBetweenQuestions = absl::Milliseconds(5);

// In the child. Only what is safe between fork and exec in a process with threads.
[[noreturn]] void Become(char* const* argv, char* const* environment, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execvpe(argv[0], argv, environment);
  _exit(127);
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

bool WaitUntil(const std::function<bool()>& done, absl::Duration patience) {
  const absl::Time end = absl::Now() + patience;
  while (!done()) {
    if (absl::Now() >= end) return false;
    absl::SleepFor(kBetweenQuestions);
  }
  return true;
}

BackgroundProgram::BackgroundProgram(std::vector<std::string> argv,
                                     const std::vector<std::string>& environment) {
  std::vector<std::string> variables = environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  const std::vector<char*> arguments = Pointers(argv);
  const std::vector<char*> all_variables = Pointers(variables);
  output_ = memfd_create("output", MFD_CLOEXEC);
  // Appending, so that standard output and standard error do not overwrite each other.
  fcntl(output_, F_SETFL, O_APPEND);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) Become(arguments.data(), all_variables.data(), output_, parent);
}

BackgroundProgram::~BackgroundProgram() {
  if (Running()) {
    Signal(SIGKILL);
    Wait();
  }
  if (output_ >= 0) close(output_);
}

std::string BackgroundProgram::Output() const {
  std::string text;
  char buffer[65536];
  ssize_t count = 0;
  while ((count = pread(output_, buffer, sizeof(buffer), static_cast<off_t>(text.size()))) > 0) {
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

bool BackgroundProgram::Prints(absl::string_view text, int count, absl::Duration patience) const {
  return WaitUntil([&] { return CountOf(text, Output()) >= count; }, patience);
}

void BackgroundProgram::Signal(int signal) const {
  if (pid_ > 0 && !ended_) kill(pid_, signal);
}

bool BackgroundProgram::Running() {
  if (pid_ <= 0 || ended_) return false;
  int status = 0;
  const pid_t result = waitpid(pid_, &status, WNOHANG);
  if (result == 0) return true;
  ended_ = true;
  exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return false;
}

int BackgroundProgram::Wait(absl::Duration patience) {
  WaitUntil([&] { return !Running(); }, patience);
  return exit_code_;
}

int CountOf(absl::string_view text, absl::string_view whole) {
  int count = 0;
  for (size_t at = whole.find(text); at != absl::string_view::npos;
       at = whole.find(text, at + text.size())) {
    ++count;
  }
  return count;
}

}  // namespace kipt::testing
