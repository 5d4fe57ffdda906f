// SPDX-License-Identifier: Apache-2.0
//
// Takes the place of a program that the agent starts, once, and does not behave: runs the real one
// where it is to be run at all, and spoils what comes of it. Which way is told by the environment
// (control.h).
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <string>

#include "tests/faults/control.h"

namespace kipt::testing {
namespace {

constexpr char kTableEnd[] = "COMMIT\n";
constexpr size_t kMegabytes = size_t{8} << 20;

[[noreturn]] void Hang() {
  signal(SIGTERM, SIG_IGN);
  signal(SIGINT, SIG_IGN);
  // Longer than any deadline. It ends even if the daemon that waits for it was killed.
  alarm(600);
  while (true) pause();
}

[[noreturn]] void Die(int signal_number) {
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  raise(signal_number);
  _exit(127);
}

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 65536> buffer;
  ssize_t got = 0;
  while ((got = read(fd, buffer.data(), buffer.size())) > 0) {
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  return text;
}

void WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote <= 0) return;
    done += static_cast<size_t>(wrote);
  }
}

// Up to the end of the first table; all of it where there is no table.
std::string FirstTable(const std::string& text) {
  const size_t end = text.find(kTableEnd);
  return end == std::string::npos ? text : text.substr(0, end + sizeof(kTableEnd) - 1);
}

struct Outcome {
  int exit_code = 127;
  std::string output;
};

// Runs the real program on `input`.
Outcome RunReal(char** argv, const std::string& input) {
  std::array<int, 2> in;
  std::array<int, 2> out;
  if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) return {};
  // Both directions could fill up; a saved ruleset or a restored one here never does.
  fcntl(in[1], F_SETPIPE_SZ, 1 << 20);
  const char* program = std::getenv(kStandInProgram);
  const pid_t child = fork();
  if (child == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    unsetenv(kStandInKind);
    unsetenv(kStandInNumber);
    unsetenv(kStandInProgram);
    execv(program, argv);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  signal(SIGPIPE, SIG_IGN);
  WriteAll(in[1], input);
  close(in[1]);
  Outcome outcome;
  outcome.output = ReadAll(out[0]);
  int status = 0;
  if (waitpid(child, &status, 0) == child) {
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 127;
  }
  return outcome;
}

std::string Garbage(size_t size) {
  std::string text(size, '\0');
  uint32_t state = 1;
  for (char& c : text) {
    state = state * 1664525 + 1013904223;
    c = static_cast<char>(state >> 24);
  }
  return text;
}

// What is printed instead of `output`.
std::string Spoil(Kind kind, const std::string& output) {
  switch (kind) {
    case Kind::kGarbage:
      return Garbage(4096);
    case Kind::kMegabytes:
      return output + Garbage(kMegabytes);
    case Kind::kNothing:
    case Kind::kErrorsOnly:
      return "";
    case Kind::kHalf:
      return output.substr(0, output.size() / 2);
    case Kind::kFirstTable:
      return FirstTable(output);
    default:
      return output;
  }
}

int Main(char** argv) {
  const char* kind_text = std::getenv(kStandInKind);
  const char* number_text = std::getenv(kStandInNumber);
  if (kind_text == nullptr || number_text == nullptr) return 127;
  const auto kind = static_cast<Kind>(std::atoi(kind_text));
  const int number = std::atoi(number_text);
  if (kind == Kind::kHang) Hang();
  if (kind == Kind::kKilledBefore) Die(SIGKILL);
  if (kind == Kind::kExit) return number;

  // The input's end comes for each of them: the agent closes it.
  std::string input = ReadAll(STDIN_FILENO);
  if (kind == Kind::kKilledBetween) input = FirstTable(input);
  const Outcome outcome = RunReal(argv, input);
  if (kind == Kind::kErrorsOnly) WriteAll(STDERR_FILENO, outcome.output);
  WriteAll(STDOUT_FILENO, Spoil(kind, outcome.output));
  if (kind == Kind::kHangAfter) Hang();
  if (kind == Kind::kKilledBetween) Die(SIGKILL);
  if (kind == Kind::kKilledAfter) Die(SIGSEGV);
  return kind == Kind::kExitAfter ? number : outcome.exit_code;
}

}  // namespace
}  // namespace kipt::testing

int main(int /*argc*/, char** argv) { return kipt::testing::Main(argv); }
