// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_command_runner.h"

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace kipt::testing {

using agent::CommandRequest;
using agent::CommandResult;

absl::StatusOr<CommandResult> FakeCommandRunner::Run(const CommandRequest& request) {
  const std::lock_guard<std::mutex> alone(running_);
  requests_.push_back(request);
  const std::string first = request.arguments.empty() ? "" : request.arguments[0];
  for (const std::string& argument : {first, std::string()}) {
    const auto found = answers_.find({request.program, argument});
    if (found == answers_.end()) continue;
    // A copy: an answer may set another for its own program.
    const Answer answer = found->second;
    absl::StatusOr<CommandResult> result = answer(request);
    if (result.ok() && request.take_output) {
      absl::Status status = request.take_output(result->output);
      if (!status.ok()) return status;
      result->output.clear();
    }
    return result;
  }
  return absl::NotFoundError(absl::StrCat(request.program, ": no such program"));
}

std::vector<CommandRequest> FakeCommandRunner::RequestsOf(const std::string& program) const {
  std::vector<CommandRequest> found;
  std::copy_if(requests_.begin(), requests_.end(), std::back_inserter(found),
               [&](const CommandRequest& request) {
                 return request.program == program &&
                        request.arguments != std::vector<std::string>{"--version"};
               });
  return found;
}

FakeCommandRunner::Answer Answers(CommandResult result) {
  return [result](const CommandRequest&) { return result; };
}

FakeCommandRunner::Answer Fails(absl::Status status) {
  return [status](const CommandRequest&) { return status; };
}

}  // namespace kipt::testing
