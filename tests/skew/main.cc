// SPDX-License-Identifier: Apache-2.0
//
// kube-iptables-skew: flags -> Options -> cells -> reports.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/process/own_process.h"
#include "featuregates/go_text.h"
#include "tests/skew/matrix/judge.h"
#include "tests/skew/matrix/run_cell.h"
#include "tests/skew/options.h"
#include "tests/skew/report/matrix_report.h"
#include "tests/support/run_program.h"

namespace kipt::skew {
namespace {

// Of the process, as those of kube-iptables-agent.
constexpr int kOk = 0;
constexpr int kFailed = 1;
constexpr int kDifferences = 2;
constexpr int kUsage = 64;

// Far beyond what a cell takes on a busy machine.
constexpr absl::Duration kCellDeadline = absl::Minutes(3);

int Fail(const absl::Status& status, int code) {
  std::cerr << "Error: " << featuregates::Printable(status.message()) << "\n";
  return code;
}

int List(const std::vector<Cell>& cells) {
  for (const Cell& cell : cells) {
    std::cout << CellId(cell) << (cell.about.empty() ? "" : "  # ") << cell.about << "\n";
  }
  return kOk;
}

// The first line of what it prints, without `prefix`.
std::string VersionOf(const std::vector<std::string>& command, const std::string& prefix) {
  std::string text = testing::RunProgram(command).out;
  text.resize(std::min(text.find('\n'), text.size()));
  return std::string(absl::StripPrefix(text, prefix));
}

// Without its name.
SideReport About(const Side& side) {
  if (side.actor == Actor::kAgent) {
    const bool there = CanRunHere(side.program);
    return {.name = {},
            .what = absl::StrCat(there ? VersionOf({side.program, "version"}, "") : "",
                                 there ? ", " : "", side.program)};
  }
  if (!side.version.has_value()) return {.name = {}, .what = "the kubelet of each cell"};
  return {.name = {}, .what = absl::StrCat("kubelet ", ToString(*side.version), " in every cell")};
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  if (path.empty()) return absl::OkStatus();
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file.good()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the report cannot be written to ", path));
}

absl::Status CanRun(const Options& options, const std::vector<Cell>& cells) {
  if (geteuid() != 0) {
    return absl::PermissionDeniedError(
        "run this as root: it makes network namespaces and changes nothing outside them");
  }
  absl::Status programs = HasPrograms(cells, CanRunHere);
  if (!programs.ok()) return programs;
  for (const std::string* path : {&options.json_file, &options.html_file}) {
    if (absl::Status writable = WriteFile(*path, ""); !writable.ok()) return writable;
  }
  return absl::OkStatus();
}

int Run(const Options& options, const std::vector<Cell>& cells) {
  absl::Status status = CanRun(options, cells);
  if (!status.ok()) return Fail(status, kFailed);
  MatrixReport report;
  utsname kernel = {};
  uname(&kernel);
  report.kernel = kernel.release;
  report.iptables = VersionOf({"/usr/sbin/iptables-nft", "--version"}, "iptables ");
  report.a = About(options.sides.a);
  report.b = About(options.sides.b);
  std::tie(report.a.name, report.b.name) = NamesOf(options.sides);
  const absl::Time started = absl::Now();
  int finished = 0;
  report.cells = RunCells(cells, options.jobs, kCellDeadline, RunCell, [&](const CellReport& cell) {
    std::cout << ProgressLine(cell, ++finished, static_cast<int>(cells.size())) << "\n"
              << std::flush;
  });
  report.seconds = absl::ToDoubleSeconds(absl::Now() - started);
  Comparison comparison = CompareSides(report.cells);
  report.compared = comparison.compared;
  report.problems = std::move(comparison.worse);
  std::cout << "\n" << MatrixText(report);
  status = WriteFile(options.json_file, MatrixJson(report));
  status.Update(WriteFile(options.html_file, MatrixHtml(report)));
  if (!status.ok()) return Fail(status, kFailed);
  return AllAsExpected(report) ? kOk : kDifferences;
}

int Main(const std::string& program, const std::vector<std::string>& arguments) {
  const absl::StatusOr<Options> options = ParseOptions(program, arguments);
  if (!options.ok()) return Fail(options.status(), kUsage);
  switch (options->command) {
    case Options::Command::kHelp:
      std::cout << options->help;
      return kOk;
    case Options::Command::kVersion:
      std::cout << "kube-iptables-skew v" << KIPT_VERSION << "\n";
      return kOk;
    case Options::Command::kList:
    case Options::Command::kRun:
      break;
  }
  const absl::StatusOr<std::vector<Cell>> cells = ChosenCells(*options);
  if (!cells.ok()) return Fail(cells.status(), kUsage);
  return options->command == Options::Command::kList ? List(*cells) : Run(*options, *cells);
}

}  // namespace
}  // namespace kipt::skew

int main(int argc, char** argv) {
  kipt::agent::OccupyStandardDescriptors();
  std::signal(SIGCHLD, SIG_DFL);
  return kipt::agent::FinishOutput(
      kipt::skew::Main(argv[0], std::vector<std::string>(argv + 1, argv + argc)));
}
