// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/daemon_faults.h"

#include <csignal>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/faults/stage.h"

namespace kipt::testing {
namespace {

// From the incident until all is in place. The daemon's deadline for an answer is 5 s, for a
// program 20 s; it may meet each more than once.
constexpr absl::Duration kBound = absl::Seconds(30);
constexpr absl::Duration kProgramBound = absl::Seconds(90);
// The incident ends with the periodic check that follows the repair: a period of the timer, and
// rest.
constexpr absl::Duration kLastReached = absl::Milliseconds(3500);
// An effect of the fault on the kernel comes within this.
constexpr absl::Duration kEffect = absl::Milliseconds(20);
// A repair that reports at least this reports that it waited for an answer or a program.
constexpr absl::Duration kReportedDelay = absl::Seconds(3);
constexpr size_t kWaitingThreads = 40;
constexpr size_t kWorkingThreads = 14;
// Exit codes with which the program reports that it cannot go on.
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 64;

// glog's lines, "E1121 20:00:00.000000 PID file:line] ...", that have one of `severities`.
std::vector<absl::string_view> Logged(absl::string_view severities, absl::string_view log) {
  std::vector<absl::string_view> lines;
  for (const absl::string_view line : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    if (line.size() > 1 && absl::StrContains(severities, line[0]) && line[1] >= '0' &&
        line[1] <= '9') {
      lines.push_back(line);
    }
  }
  return lines;
}

// Whether the log has a reason for a delay. A warning that only reports a quick repair is none.
bool ReportsDelay(absl::string_view log) {
  constexpr absl::string_view kRepaired = "Repaired in ";
  for (const absl::string_view line : Logged("WE", log)) {
    const size_t at = line.find(kRepaired);
    if (at == absl::string_view::npos) return true;
    const std::string text(line.substr(at + kRepaired.size()));
    if (absl::Microseconds(std::atoll(text.c_str())) >= kReportedDelay) return true;
  }
  return false;
}

Verdict Fail(const std::string& why, const std::string& log, bool timing = false) {
  return {.end = End::kFailed,
          .text = absl::StrCat(why, "\n--- the log\n", log, "---"),
          .timing = timing};
}

bool SanitizerSpoke(const std::string& log) {
  return absl::StrContains(log, "Sanitizer") || absl::StrContains(log, "runtime error:");
}

// The daemon has ended while it started.
Verdict SeeEndAtStart(Stage& stage, const Baseline& baseline) {
  EndAtStart end = {.exit_code = stage.daemon().Wait(), .log = stage.Said()};
  end.half_done = HalfDone(stage.now(), baseline.before, baseline.desired, Atomicity::kWhole);
  if (stage.control().injected == 0) return Fail("the daemon ended without a fault", end.log);
  stage.control().armed = 0;
  stage.StartAgain();
  end.in_place_again = stage.BecomesInPlace(baseline.desired, stage.since_strike() + kBound);
  return JudgeEndAtStart(end);
}

}  // namespace

Verdict JudgeIncident(const Observed& observed) {
  if (observed.ended) {
    return Fail(absl::StrCat("the daemon ended with ", *observed.ended), observed.log);
  }
  if (SanitizerSpoke(observed.log)) return Fail("a sanitizer reported", observed.log);
  if (!observed.in_place) {
    return Fail(absl::StrCat("not in place after ", absl::FormatDuration(observed.missing), ":\n",
                             observed.difference),
                observed.log, /*timing=*/true);
  }
  if (!observed.injected) return {.end = End::kNotReached};
  if (observed.damaged_later) {
    return Fail(absl::StrCat("damaged by the fault and not repaired:\n", observed.difference),
                observed.log);
  }
  if (observed.exit_code != 0) {
    return Fail(absl::StrCat("ended with ", observed.exit_code), observed.log);
  }
  if (observed.missing > kSilent && !ReportsDelay(observed.log)) {
    return Fail(absl::StrCat("took ", absl::FormatDuration(observed.missing), " and said nothing"),
                observed.log, /*timing=*/true);
  }
  return {.end = observed.missing > kSilent ? End::kError : End::kInPlace,
          .seconds = absl::ToDoubleSeconds(observed.missing)};
}

Verdict JudgeEndAtStart(const EndAtStart& end) {
  if (SanitizerSpoke(end.log)) return Fail("a sanitizer reported", end.log);
  if (end.exit_code != kExitFailed && end.exit_code != kExitUsage) {
    return Fail(absl::StrCat("the daemon ended with ", end.exit_code), end.log);
  }
  if (Logged("E", end.log).empty() && !absl::StrContains(end.log, "Error: ")) {
    return Fail("the daemon ended and logged no error", end.log);
  }
  if (!end.half_done.empty()) return Fail(end.half_done, end.log);
  if (!end.in_place_again) {
    return Fail("started again, the daemon put nothing in place", end.log, /*timing=*/true);
  }
  return {.end = End::kError};
}

Baseline MeasureIncident(const Incident& incident, const Programs& programs) {
  Baseline baseline;
  Stage stage(incident, programs);
  baseline.problem = stage.Begin();
  if (baseline.problem.empty()) {
    baseline.before = ReadKernel(incident.iptables);
    baseline.problem = stage.Strike();
  }
  if (!baseline.problem.empty()) return baseline;
  // `plan` reads the flipped gate's file. A file that is nonsense it cannot read.
  const bool readable = std::string(incident.name) != "config-spoilt";
  absl::SleepFor(2 * kRest);
  if (readable && !WaitUntil([&] { return stage.PlanExitCode() == 0; })) {
    baseline.problem = absl::StrCat("without a fault it is not repaired: ", stage.Said());
  }
  baseline.desired = ReadKernel(incident.iptables);
  if (!baseline.desired.problem.empty()) baseline.problem = baseline.desired.problem;
  if (stage.control().loaded == 0) baseline.problem = "the layer was not loaded";
  for (size_t i = 0; i < kPointCount; ++i) {
    baseline.occurrences[i] = stage.control().occurrences[i];
  }
  const auto count = [&](Point point) { return baseline.occurrences[static_cast<size_t>(point)]; };
  if (baseline.problem.empty() && count(Point::kSend) + count(Point::kProgram) == 0) {
    baseline.problem = "the daemon asked the kernel nothing: the incident did not reach it";
  }
  return baseline;
}

Verdict IncidentWithFault(const Incident& incident, const Programs& programs,
                          const Baseline& baseline, const FaultRow& row, uint32_t nth) {
  Stage stage(incident, programs);
  if (std::string problem = stage.Begin(); !problem.empty()) return Fail(problem, "", true);
  Control& control = stage.control();
  control.row = static_cast<uint32_t>(&row - kFaults);
  control.nth = nth;
  if (std::string problem = stage.Strike(); !problem.empty()) return Fail(problem, stage.Said());
  const absl::Duration bound = row.point == Point::kProgram ? kProgramBound : kBound;
  // Most faults come at once: the kernel need not be read before.
  const bool early =
      WaitUntil([&] { return control.injected > 0 || !stage.daemon().Running(); }, kRest);
  Observed observed = {.in_place = stage.BecomesInPlace(baseline.desired, bound),
                       .missing = stage.known_missing()};
  // The last occurrences come after the repair.
  if (observed.in_place && !early &&
      WaitUntil([&] { return control.injected > 0; }, kLastReached)) {
    absl::SleepFor(kEffect);
    observed.damaged_later = !stage.BecomesInPlace(baseline.desired, stage.since_strike() + bound);
  }
  observed.injected = control.injected > 0;
  observed.difference = Difference(stage.now(), baseline.desired);
  if (!stage.daemon().Running()) {
    if (incident.strike == nullptr) return SeeEndAtStart(stage, baseline);
    observed.ended = stage.daemon().Wait();
  }
  control.armed = 0;
  stage.daemon().Signal(SIGTERM);
  observed.exit_code = stage.daemon().Wait(kProgramBound);
  observed.log = stage.Said();
  return JudgeIncident(observed);
}

void TryDaemonFaults(const std::vector<Incident>& incidents, const Programs& programs,
                     const FaultChoice& chosen, Tally& tally, absl::Time end) {
  std::vector<Place> places;
  for (const Incident& incident : incidents) {
    places.push_back({.name = incident.name,
                      .measure = [&] { return MeasureIncident(incident, programs); },
                      .attempt =
                          [&](const Baseline& baseline, const FaultRow& row, uint32_t nth) {
                            return IncidentWithFault(incident, programs, baseline, row, nth);
                          }});
  }
  TryFaults(places, chosen,
            {.waiting_threads = kWaitingThreads, .working_threads = kWorkingThreads, .end = end},
            tally);
}

}  // namespace kipt::testing
