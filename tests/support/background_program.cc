// SPDX-License-Identifier: Apache-2.0
#include "tests/support/background_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/child.h"

namespace kipt::testing {
namespace {

constexpr absl::Duration kBetweenQuestions = absl::Milliseconds(5);

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// A file in memory: no pipe can fill up, so nothing has to be pumped while the program runs.
int MemoryFile(const char* name, const std::string& text = "") {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = write(fd, text.data() + done, text.size() - done);
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  lseek(fd, 0, SEEK_SET);
  return fd;
}

std::string TextOf(int fd) {
  std::string text;
  char buffer[65536];
  ssize_t count = 0;
  while ((count = pread(fd, buffer, sizeof(buffer), static_cast<off_t>(text.size()))) > 0) {
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

}  // namespace

bool WaitUntil(const std::function<bool()>& done, absl::Duration patience) {
  const absl::Time end = absl::Now() + Patient(patience);
  while (!done()) {
    if (absl::Now() >= end) return false;
    absl::SleepFor(kBetweenQuestions);
  }
  return true;
}

BackgroundProgram::BackgroundProgram(std::vector<std::string> argv,
                                     const std::vector<std::string>& environment,
                                     const std::optional<std::string>& in) {
  std::vector<std::string> variables = environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    // Of two with one name, some programs read the first, and dash the last.
    const absl::string_view text = *variable;
    const absl::string_view name = text.substr(0, text.find('=') + 1);
    const bool given = std::any_of(environment.begin(), environment.end(),
                                   [name](const auto& one) { return absl::StartsWith(one, name); });
    if (!given) variables.emplace_back(text);
  }
  const std::vector<char*> arguments = Pointers(argv);
  const std::vector<char*> all_variables = Pointers(variables);
  const int input =
      in.has_value() ? MemoryFile("input", *in) : open("/dev/null", O_RDONLY | O_CLOEXEC);
  output_ = MemoryFile("output");
  if (in.has_value()) {
    errors_ = MemoryFile("errors");
  } else {
    // Appending, so that standard output and standard error do not overwrite each other.
    fcntl(output_, F_SETFL, O_APPEND);
  }
  pid_ = StartChild(arguments.data(), all_variables.data(),
                    {.in = input, .out = output_, .err = in.has_value() ? errors_ : output_});
  close(input);
}

BackgroundProgram::~BackgroundProgram() {
  if (Running()) {
    kill(-pid_, SIGKILL);
    Wait();
  }
  close(output_);
  if (errors_ >= 0) close(errors_);
}

std::string BackgroundProgram::Output() const { return TextOf(output_); }

std::string BackgroundProgram::Errors() const { return TextOf(errors_); }

bool BackgroundProgram::Prints(absl::string_view text, int count, absl::Duration patience) const {
  return WaitUntil([&] { return CountOf(text, Output()) >= count; }, patience);
}

void BackgroundProgram::Signal(int signal) const {
  if (pid_ > 0 && !ended_) kill(pid_, signal);
}

bool BackgroundProgram::Stop() const {
  Signal(SIGSTOP);
  return WaitUntil([this] {
    std::error_code error;
    for (const auto& task :
         std::filesystem::directory_iterator(absl::StrCat("/proc/", pid_, "/task"), error)) {
      std::ifstream file(task.path() / "stat");
      const std::string stat(std::istreambuf_iterator<char>(file), {});
      // After the name, which may have anything in it.
      const size_t name_end = stat.rfind(") ");
      if (name_end != stat.npos && stat[name_end + 2] != 'T') return false;
    }
    return !error;
  });
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
  // Without a question every few milliseconds: tests run thousands of programs.
  pollfd ended = {static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)), POLLIN, 0};
  const absl::Time end = absl::Now() + Patient(patience);
  while (Running() && absl::Now() < end) {
    poll(&ended, 1, 100);
  }
  close(ended.fd);
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
