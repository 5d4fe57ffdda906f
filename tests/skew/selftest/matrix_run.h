// SPDX-License-Identifier: Apache-2.0
//
// One run of kube-iptables-skew, and what it reported.
#ifndef KIPT_TESTS_SKEW_SELFTEST_MATRIX_RUN_H_
#define KIPT_TESTS_SKEW_SELFTEST_MATRIX_RUN_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "tests/support/background_program.h"
#include "tests/support/temporary_tree.h"

namespace kipt::skew {

class Matrix {
 public:
  Matrix(const std::vector<std::string>& flags, const std::string& agent) {
    const testing::TemporaryTree tree;
    std::vector<std::string> command = {KIPT_SKEW_PROGRAM, "--agent=" + agent,
                                        "--json=" + tree.Path("report.json")};
    command.insert(command.end(), flags.begin(), flags.end());
    testing::BackgroundProgram program(command);
    // RunProgram's minute is too short for all of it.
    exit_code_ = program.Wait(absl::Hours(1));
    output_ = program.Output();
    report_ = nlohmann::json::parse(FileText(tree.Path("report.json")), nullptr, false);
    if (report_.is_discarded())
      report_ = {{"cells", nlohmann::json::array()}, {"problems", nlohmann::json::array()}};
  }

  int exit_code() const { return exit_code_; }
  const std::string& output() const { return output_; }

  // By id, the verdict.
  std::map<std::string, std::string> Verdicts() const {
    std::map<std::string, std::string> verdicts;
    for (const auto& cell : report_["cells"]) verdicts[cell["id"]] = cell["verdict"];
    return verdicts;
  }
  // Of a cell, the names of the probes and streams that went otherwise than expected.
  std::set<std::string> Unexpected(const std::string& id) const {
    std::set<std::string> names;
    for (const auto& step : StepsOf(id)) {
      for (const auto& check : step["checks"]) {
        if (check["result"]["outcome"] != check["expected"]) names.insert(check["probe"]["name"]);
      }
      for (const auto& stream : step["streams"]) {
        if (stream["bad"] > stream["allowed"]) names.insert(stream["count"]["probe"]);
      }
    }
    return names;
  }
  // Errors of actors and of the judges of steps.
  std::set<std::string> Errors() const {
    std::set<std::string> errors;
    for (const auto& step : StepsOf("")) errors.insert(step["error"]);
    return errors;
  }
  // What is wrong with it as a whole.
  std::vector<std::string> Problems() const { return report_["problems"]; }
  // Packets that were sent, and how many of these were received.
  std::pair<uint64_t, uint64_t> Packets() const {
    uint64_t sent = 0;
    uint64_t received = 0;
    for (const auto& step : StepsOf("")) {
      for (const auto& check : step["checks"]) {
        sent += check["result"]["sent"].get<uint64_t>();
        received += check["result"]["received"].get<uint64_t>();
      }
    }
    return {sent, received};
  }

 private:
  // Of the cell of this id, or of all cells where it is empty.
  std::vector<nlohmann::json> StepsOf(const std::string& id) const {
    std::vector<nlohmann::json> steps;
    for (const auto& cell : report_["cells"]) {
      if (!id.empty() && cell["id"] != id) continue;
      steps.insert(steps.end(), cell["steps"].begin(), cell["steps"].end());
    }
    return steps;
  }

  int exit_code_ = -1;
  std::string output_;
  nlohmann::json report_;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_SELFTEST_MATRIX_RUN_H_
