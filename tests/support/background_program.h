// SPDX-License-Identifier: Apache-2.0
//
// A program that runs in parallel to the test: a daemon, a loop of damage.
#ifndef KIPT_TESTS_SUPPORT_BACKGROUND_PROGRAM_H_
#define KIPT_TESTS_SUPPORT_BACKGROUND_PROGRAM_H_

#include <sys/types.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace kipt::testing {

// `usual`, multiplied by the environment's KIPT_TEST_PATIENCE if that is a number above 1: an
// emulated machine takes minutes for what takes seconds elsewhere.
inline absl::Duration Patient(absl::Duration usual) {
  const char* text = std::getenv("KIPT_TEST_PATIENCE");
  const double factor = text == nullptr ? 1 : std::atof(text);
  return factor > 1 ? usual * factor : usual;
}

// Long for what takes milliseconds, so that only a defect comes to it on a busy machine.
inline constexpr absl::Duration kPatience = absl::Seconds(20);

// Asks `done` every few milliseconds. False where it has not become true in time.
bool WaitUntil(const std::function<bool()>& done, absl::Duration patience = kPatience);

class BackgroundProgram {
 public:
  // Starts argv[0] (looked up in PATH where it has no slash) in the calling thread's namespaces,
  // with `environment` ("NAME=value") added to this process' own or in its place. It is killed
  // should this process die (child.h). Without `in`, standard output and standard error are kept
  // together; with it, which is its standard input, apart.
  explicit BackgroundProgram(std::vector<std::string> argv,
                             const std::vector<std::string>& environment = {},
                             const std::optional<std::string>& in = std::nullopt);
  // Kills it, with everything it started in its process group, if it still runs.
  ~BackgroundProgram();
  BackgroundProgram(const BackgroundProgram&) = delete;
  BackgroundProgram& operator=(const BackgroundProgram&) = delete;

  // -1 where it could not be started.
  pid_t pid() const { return pid_; }
  // What it has printed so far.
  std::string Output() const;
  std::string Errors() const;
  // Whether it has printed `text`, `count` times at least, in time.
  bool Prints(absl::string_view text, int count = 1, absl::Duration patience = kPatience) const;

  void Signal(int signal) const;
  // SIGSTOP, and returns when every thread has stopped: until the thread that takes the signal is
  // scheduled, the others run on. False where they do not stop in time.
  bool Stop() const;
  bool Running();
  // As ProgramResult::exit_code; -1 where it still runs when patience is at its end.
  int Wait(absl::Duration patience = kPatience);

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  int errors_ = -1;
  bool ended_ = false;
  int exit_code_ = -1;
};

// How often `text` occurs in `whole`.
int CountOf(absl::string_view text, absl::string_view whole);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_BACKGROUND_PROGRAM_H_
