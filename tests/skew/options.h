// SPDX-License-Identifier: Apache-2.0
//
// The command line of kube-iptables-skew as one checked value.
#ifndef KIPT_TESTS_SKEW_OPTIONS_H_
#define KIPT_TESTS_SKEW_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/skew/matrix/cell.h"
#include "tests/skew/matrix/run_cell.h"

namespace kipt::skew {

struct Options {
  enum class Command { kRun, kList, kVersion, kHelp };
  Command command = Command::kRun;
  // Of kHelp: the text to print.
  std::string help = {};

  // Of kRun and kList: which cells.
  bool full = false;
  std::vector<Path> paths = MainPaths();
  // A regular expression (ECMAScript) that is searched for in a cell's id. Empty: all.
  std::string cells = {};
  // The keepers of kubelet's chains that are compared.
  Sides sides = {};
  // Of kRun.
  int jobs = 0;
  std::string json_file = {};
  std::string html_file = {};
};

// `arguments` without the program's name; `program` is its path, and the agent is searched for next
// to it. InvalidArgument: what is wrong with them, and what to write.
absl::StatusOr<Options> ParseOptions(const std::string& program,
                                     const std::vector<std::string>& arguments);

// The cells that `options` chooses. InvalidArgument: the expression is none, or chooses nothing.
absl::StatusOr<std::vector<Cell>> ChosenCells(const Options& options);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_OPTIONS_H_
