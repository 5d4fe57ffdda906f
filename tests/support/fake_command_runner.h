// SPDX-License-Identifier: Apache-2.0
//
// Programs that are never run: each answers what the test sets, and every request is kept.
#ifndef KIPT_TESTS_SUPPORT_FAKE_COMMAND_RUNNER_H_
#define KIPT_TESTS_SUPPORT_FAKE_COMMAND_RUNNER_H_

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/process/command.h"

namespace kipt::testing {

class FakeCommandRunner : public agent::CommandRunner {
 public:
  using Answer = std::function<absl::StatusOr<agent::CommandResult>(const agent::CommandRequest&)>;

  // NotFound for a program that no answer was given for.
  absl::StatusOr<agent::CommandResult> Run(const agent::CommandRequest& request) override;

  // By the program's path. The first argument, where one is given, must be the request's first.
  void On(const std::string& program, Answer answer) {
    answers_[{program, ""}] = std::move(answer);
  }
  void On(const std::string& program, const std::string& first_argument, Answer answer) {
    answers_[{program, first_argument}] = std::move(answer);
  }

  const std::vector<agent::CommandRequest>& requests() const { return requests_; }
  // The requests for one program, --version left out.
  std::vector<agent::CommandRequest> RequestsOf(const std::string& program) const;

 private:
  // The backend runs the programs of both families at once; here one runs after the other.
  std::mutex running_;
  std::map<std::pair<std::string, std::string>, Answer> answers_;
  std::vector<agent::CommandRequest> requests_;
};

// Always the same.
FakeCommandRunner::Answer Answers(agent::CommandResult result);
FakeCommandRunner::Answer Fails(absl::Status status);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_FAKE_COMMAND_RUNNER_H_
