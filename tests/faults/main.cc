// SPDX-License-Identifier: Apache-2.0
//
// kipt-faults: every fault at every occurrence. tests/faults/run says how it is called.
#include <exception>
#include <fstream>
#include <iostream>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "tests/faults/daemon_faults.h"
#include "tests/faults/report.h"
#include "tests/faults/sync_faults.h"

namespace kipt::testing {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 64;

struct Arguments {
  Programs programs = BuiltPrograms();
  bool sync = false;
  bool daemon = false;
  std::regex faults{""};
  std::regex where{""};
  std::string report;
  std::string unknown;
};

Arguments Parse(const std::vector<std::string>& words) {
  Arguments arguments;
  for (absl::string_view word : words) {
    if (word == "--sync") {
      arguments.sync = true;
    } else if (word == "--daemon") {
      arguments.daemon = true;
    } else if (absl::ConsumePrefix(&word, "--agent=")) {
      arguments.programs.agent = std::string(word);
    } else if (absl::ConsumePrefix(&word, "--faults=")) {
      arguments.faults = std::string(word);
    } else if (absl::ConsumePrefix(&word, "--where=")) {
      arguments.where = std::string(word);
    } else if (absl::ConsumePrefix(&word, "--report=")) {
      arguments.report = std::string(word);
    } else {
      arguments.unknown = std::string(word);
    }
  }
  // Neither is both.
  if (!arguments.sync && !arguments.daemon) arguments.sync = arguments.daemon = true;
  return arguments;
}

int Main(const std::vector<std::string>& words) {
  const Arguments arguments = Parse(words);
  if (!arguments.unknown.empty()) {
    std::cerr << "kipt-faults: unknown argument " << arguments.unknown << "\n";
    return kUsage;
  }
  std::vector<Scene> scenes;
  std::vector<Incident> incidents;
  for (const Scene& scene : AllScenes()) {
    const bool wanted = std::regex_search(NameOf(scene), arguments.where);
    if (arguments.sync && wanted) scenes.push_back(scene);
  }
  for (const Incident& incident : Incidents()) {
    const bool wanted = std::regex_search(std::string(incident.name), arguments.where);
    if (arguments.daemon && wanted) incidents.push_back(incident);
  }
  const auto chosen = [&](const FaultRow& row) {
    return std::regex_search(absl::StrCat(PointName(row.point), ": ", row.name), arguments.faults);
  };
  const absl::Time start = absl::Now();
  Tally sync;
  Tally daemon;
  TrySyncFaults(scenes, arguments.programs, chosen, sync);
  TryDaemonFaults(incidents, arguments.programs, chosen, daemon);
  const std::string report = ReportText({.sync = sync,
                                         .scenes = scenes,
                                         .daemon = daemon,
                                         .incidents = incidents,
                                         .taken = absl::Now() - start});
  std::cout << report;
  for (const std::string& error : sync.errors()) std::cout << "said: " << error << "\n";
  if (!arguments.report.empty() && !(std::ofstream(arguments.report) << report)) {
    std::cerr << "kipt-faults: cannot write " << arguments.report << "\n";
    return kFailed;
  }
  const bool none = sync.runs() + daemon.runs() == 0;
  if (none) std::cerr << "kipt-faults: nothing was chosen\n";
  return none || !sync.failures().empty() || !daemon.failures().empty() ? kFailed : 0;
}

}  // namespace
}  // namespace kipt::testing

int main(int argc, char** argv) {
  try {
    return kipt::testing::Main(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {  // of a regular expression
    std::cerr << "kipt-faults: " << error.what() << "\n";
    return kipt::testing::kUsage;
  }
}
