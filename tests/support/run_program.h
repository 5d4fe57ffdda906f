// SPDX-License-Identifier: Apache-2.0
//
// Runs one program as a user would, without a shell, and keeps what it printed.
#ifndef KIPT_TESTS_SUPPORT_RUN_PROGRAM_H_
#define KIPT_TESTS_SUPPORT_RUN_PROGRAM_H_

#include <ostream>
#include <string>
#include <vector>

namespace kipt::testing {

struct ProgramResult {
  // The program's own; 128 + signal number where a signal ended it; 127 where it could not be
  // started (err has the reason); 124 where it was killed at the deadline.
  int exit_code = 0;
  std::string out;
  std::string err;

  bool operator==(const ProgramResult&) const = default;
};

// Shows everything: meant for `<< result` after an EXPECT.
std::ostream& operator<<(std::ostream& stream, const ProgramResult& result);

// Runs argv[0] (looked up in PATH where it has no slash) with `stdin_text` as its standard input,
// in the calling thread's network namespace and with this process's environment. Returns when the
// program has ended, or 100 seconds after its start: then it is killed, before ctest would end the
// test.
ProgramResult RunProgram(std::vector<std::string> argv, std::string stdin_text = "");

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_RUN_PROGRAM_H_
