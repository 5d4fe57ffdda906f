// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/command.h
//
// Runs one program, without a shell: what the legacy backend needs of the iptables programs.
#ifndef KIPT_AGENT_PROCESS_COMMAND_H_
#define KIPT_AGENT_PROCESS_COMMAND_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace kipt::agent {

struct CommandRequest {
  // Absolute; run as it is, no search.
  std::string program;
  // Without the program's name.
  std::vector<std::string> arguments = {};
  // Given on standard input, which is then closed.
  std::string input = {};
  // "NAME=value". The child has these variables and no others.
  std::vector<std::string> environment = {};
  // From start to exit.
  absl::Duration deadline = absl::Seconds(30);
  // Bytes of standard output, and of standard error, that are taken; more is an error.
  size_t output_limit = size_t{256} << 20;
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

  // Runs the program to its end. Whatever its exit code, the status is OK: what a code means is the
  // caller's affair. The child runs in the calling thread's namespaces, in a process group of its
  // own, with no descriptor of ours but the three standard ones (which are sockets, not pipes or
  // files), and default signal handling.
  //
  // InvalidArgument: the path is not absolute. NotFound: there is no such program, or it cannot be
  // executed. DeadlineExceeded: it did not end in time, or a child of its own still holds its
  // output open. ResourceExhausted: it printed more than the limit, or there was no memory to start
  // it. What was started is killed, the whole process group, and reaped before this returns an
  // error. Messages name the program and its arguments.
  virtual absl::StatusOr<CommandResult> Run(const CommandRequest& request) = 0;
};

// The real one. Safe for use by several threads.
std::unique_ptr<CommandRunner> NewCommandRunner();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_COMMAND_H_
