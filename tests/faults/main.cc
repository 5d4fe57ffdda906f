// SPDX-License-Identifier: Apache-2.0
//
// kipt-faults: every fault at every occurrence. tests/faults/run says how it is called.
#include <exception>
#include <fstream>
#include <iostream>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "tests/faults/daemon_faults.h"
#include "tests/faults/report.h"
#include "tests/faults/sync_faults.h"
#include "tests/support/run_program.h"

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
  Scope scope = Scope::kWhole;
  std::string commit = "unknown";
  std::string report;
  std::string runs;
  absl::Duration minutes = absl::InfiniteDuration();
  std::string unknown;
};

void ParseOne(absl::string_view word, Arguments& arguments) {
  int minutes = 0;
  if (word == "--sync") {
    arguments.sync = true;
  } else if (word == "--daemon") {
    arguments.daemon = true;
  } else if (absl::ConsumePrefix(&word, "--programs=")) {
    arguments.programs = ProgramsIn(std::string(word));
  } else if (absl::ConsumePrefix(&word, "--faults=")) {
    arguments.faults = std::string(word);
    arguments.scope = Scope::kPart;
  } else if (absl::ConsumePrefix(&word, "--where=")) {
    arguments.where = std::string(word);
    arguments.scope = Scope::kPart;
  } else if (absl::ConsumePrefix(&word, "--commit=")) {
    arguments.commit = std::string(word);
  } else if (absl::ConsumePrefix(&word, "--report=")) {
    arguments.report = std::string(word);
  } else if (absl::ConsumePrefix(&word, "--runs=")) {
    arguments.runs = std::string(word);
  } else if (absl::ConsumePrefix(&word, "--minutes=") && absl::SimpleAtoi(word, &minutes)) {
    arguments.minutes = absl::Minutes(minutes);
  } else {
    arguments.unknown = std::string(word);
  }
}

Arguments Parse(const std::vector<std::string>& words) {
  Arguments arguments;
  for (const std::string& word : words) ParseOne(word, arguments);
  // Neither is both.
  if (!arguments.sync && !arguments.daemon) arguments.sync = arguments.daemon = true;
  return arguments;
}

bool Keep(const Arguments& arguments, Tally& tally) {
  return arguments.runs.empty() || tally.KeepIn(arguments.runs);
}

// A run that is resumed took the time of its parts: each leaves such a line with its seconds.
constexpr char kTimeLine[] = "time\t";

absl::Duration TimeOfEarlierParts(const std::string& path) {
  absl::Duration time;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    absl::string_view text = line;
    int64_t seconds = 0;
    if (absl::ConsumePrefix(&text, kTimeLine) && absl::SimpleAtoi(text, &seconds)) {
      time += absl::Seconds(seconds);
    }
  }
  return time;
}

bool NoteTime(const std::string& path, absl::Duration time) {
  std::ofstream file(path, std::ios::app);
  file << kTimeLine << absl::ToInt64Seconds(time) << "\n" << std::flush;
  return file.good();
}

std::string VersionOf(const Programs& programs) {
  const std::string out = RunProgram({programs.agent, "version"}).out;
  return out.substr(0, out.find('\n'));
}

// Adds the problems of `part`, if it has any runs to make.
void AddPart(Part part, Scope scope, Outcome& outcome) {
  if (part.places.empty()) return;
  for (std::string& problem : part.tally.Problems(scope)) {
    outcome.problems.push_back(std::move(problem));
  }
  outcome.parts.push_back(std::move(part));
}

struct Chosen {
  std::vector<Scene> scenes;
  std::vector<std::string> scene_names;
  std::vector<Incident> incidents;
  std::vector<std::string> incident_names;
};

Chosen Choose(const Arguments& arguments) {
  Chosen chosen;
  for (const Scene& scene : AllScenes()) {
    if (!arguments.sync || !std::regex_search(NameOf(scene), arguments.where)) continue;
    chosen.scenes.push_back(scene);
    chosen.scene_names.push_back(NameOf(scene));
  }
  for (const Incident& incident : Incidents()) {
    const std::string name = incident.name;
    if (!arguments.daemon || !std::regex_search(name, arguments.where)) continue;
    chosen.incidents.push_back(incident);
    chosen.incident_names.push_back(name);
  }
  return chosen;
}

// Makes the runs and judges them.
Outcome Try(const Arguments& arguments, Tally& sync, Tally& daemon) {
  const Chosen where = Choose(arguments);
  const auto chosen = [&](const FaultRow& row) {
    return std::regex_search(absl::StrCat(PointName(row.point), ": ", row.name), arguments.faults);
  };
  const absl::Time start = absl::Now();
  const absl::Time end = start + arguments.minutes;
  if (!where.incidents.empty()) {
    TryDaemonFaults(where.incidents, arguments.programs, chosen, daemon, end);
  }
  if (!where.scenes.empty()) {
    TrySyncFaults(where.scenes, arguments.programs, chosen, sync, end);
  }
  Outcome outcome = {
      .parts = {},
      .problems = {},
      .program = absl::StrCat(VersionOf(arguments.programs), ", commit ", arguments.commit),
      .taken = absl::Now() - start};
  AddPart({.tally = sync, .places = where.scene_names}, arguments.scope, outcome);
  AddPart({.tally = daemon, .places = where.incident_names}, arguments.scope, outcome);
  if (outcome.parts.empty()) outcome.problems.emplace_back("nothing was chosen");
  return outcome;
}

int Main(const std::vector<std::string>& words) {
  const Arguments arguments = Parse(words);
  if (!arguments.unknown.empty()) {
    std::cerr << "kipt-faults: unknown argument " << arguments.unknown << "\n";
    return kUsage;
  }
  Tally sync(Subject::kSync);
  Tally daemon(Subject::kDaemon);
  if (!Keep(arguments, sync) || !Keep(arguments, daemon)) {
    std::cerr << "kipt-faults: cannot write " << arguments.runs << "\n";
    return kFailed;
  }
  const absl::Duration before = TimeOfEarlierParts(arguments.runs);
  Outcome outcome = Try(arguments, sync, daemon);
  if (!arguments.runs.empty() && !NoteTime(arguments.runs, outcome.taken)) return kFailed;
  outcome.taken += before;
  const std::string report = ReportText(outcome);
  std::cout << report;
  if (!arguments.report.empty() && !(std::ofstream(arguments.report) << report)) {
    std::cerr << "kipt-faults: cannot write " << arguments.report << "\n";
    return kFailed;
  }
  return outcome.problems.empty() ? 0 : kFailed;
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
