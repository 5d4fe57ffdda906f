// SPDX-License-Identifier: Apache-2.0
#include "tests/support/run_program.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "tests/support/background_program.h"

namespace kipt::testing {

std::ostream& operator<<(std::ostream& stream, const ProgramResult& result) {
  return stream << "exit code " << result.exit_code << "\n--- stdout\n"
                << result.out << "\n--- stderr\n"
                << result.err << "\n---";
}

ProgramResult RunProgram(std::vector<std::string> argv, std::string stdin_text) {
  if (argv.empty()) return {127, "", "no program named"};
  const std::string name = argv[0];
  BackgroundProgram program(std::move(argv), {}, std::move(stdin_text));
  if (program.pid() < 0) return {127, "", name + ": " + std::strerror(errno)};
  constexpr int kStillRunning = -1;
  const int exit_code = program.Wait(absl::Seconds(100));
  if (exit_code != kStillRunning) return {exit_code, program.Output(), program.Errors()};
  return {124, program.Output(), program.Errors() + "\n(killed: it still ran at the deadline)"};
}

}  // namespace kipt::testing
