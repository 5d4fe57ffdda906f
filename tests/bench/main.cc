// SPDX-License-Identifier: Apache-2.0
//
// tests/bench/run builds and starts this; its header says what there is to measure.
#include <sched.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/bench/incidents.h"
#include "tests/bench/storms.h"

namespace kipt::testing {
namespace {

// sysexits.h.
constexpr int kExitUsage = 64;

// What is measured here is when this process wakes up: it goes before whatever else the machine
// does. What it starts does not inherit that. Without the right to it, figures are a little worse.
void GoFirst() {
  const sched_param first = {.sched_priority = 1};
  sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first);
}

int ExitCodeOf(const absl::StatusOr<bool>& met) {
  if (met.ok()) return *met ? 0 : 1;
  std::fprintf(stderr, "kipt_bench: %s\n", std::string(met.status().message()).c_str());
  return 2;
}

int Main(int argc, char** argv) {
  const std::map<std::string, IptablesMode> modes = {{"nft", IptablesMode::kNft},
                                                     {"legacy", IptablesMode::kLegacy}};
  double slack = 1;
  IncidentOptions incidents;
  StormOptions storms;
  CLI::App app("Measures kube-iptables-agent");
  app.require_subcommand(1);
  app.add_option("--slack", slack)->check(CLI::PositiveNumber);
  CLI::App* incidents_command = app.add_subcommand("incidents")->fallthrough();
  incidents_command->add_option("--count", incidents.count)->check(CLI::PositiveNumber);
  incidents_command->add_option("--services", incidents.services)->delimiter(',');
  incidents_command->add_option("--mode", incidents.mode)
      ->transform(CLI::CheckedTransformer(modes));
  CLI::App* storms_command = app.add_subcommand("storms")->fallthrough();
  storms_command->add_option("--repeats", storms.repeats)->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  incidents.slack = slack;
  storms.slack = slack;
  if (incidents_command->parsed()) {
    GoFirst();
    return ExitCodeOf(MeasureIncidents(incidents));
  }
  return ExitCodeOf(MeasureStorms(storms));
}

}  // namespace
}  // namespace kipt::testing

int main(int argc, char** argv) { return kipt::testing::Main(argc, argv); }
