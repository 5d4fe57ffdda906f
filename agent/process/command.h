// SPDX-License-Identifier: Apache-2.0
//
// Runs one program without a shell, for the iptables-legacy backend.
#ifndef KIPT_AGENT_PROCESS_COMMAND_H_
#define KIPT_AGENT_PROCESS_COMMAND_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace kipt::agent {

struct CommandRequest {
  // An absolute path.
  std::string program;
  // Without the program's name.
  std::vector<std::string> arguments = {};
  // Standard input.
  std::string input = {};
  // "NAME=value"; the child has no other variables.
  std::vector<std::string> environment = {};
  // From start to exit.
  absl::Duration deadline = absl::Seconds(30);
  // Bytes of standard output, and of standard error; more is an error.
  size_t output_limit = size_t{256} << 20;
  // Is given standard output piece by piece as it comes, without a limit; then
  // CommandResult::output is empty. Its error ends the program, and is returned.
  std::function<absl::Status(absl::string_view piece)> take_output = {};
};

struct CommandResult {
  // 0..255; 128 + N where signal N ended it.
  int exit_code = 0;
  std::string output;
  std::string errors;

  bool operator==(const CommandResult&) const = default;
};

class CommandRunner {
 public:
  virtual ~CommandRunner() = default;

  // Runs the program to its end; OK whatever its exit code. The child runs in the calling thread's
  // namespaces, in a process group of its own, with default signal handling and no descriptor of
  // ours except the three standard ones, which are sockets.
  //
  // InvalidArgument: the path is not absolute. NotFound: there is no such program, or it cannot be
  // executed. DeadlineExceeded: it did not end in time, or a child of its own still holds its
  // output open. ResourceExhausted: it printed more than the limit, or memory ran out at its start.
  // Before an error is returned, the whole process group is killed and reaped. Messages name the
  // program and its arguments.
  virtual absl::StatusOr<CommandResult> Run(const CommandRequest& request) = 0;
};

// The real one. Safe for use by several threads.
std::unique_ptr<CommandRunner> NewCommandRunner();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_COMMAND_H_
