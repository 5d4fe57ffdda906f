// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/daemon_faults.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/support/http_get.h"
#include "tests/support/netns.h"
#include "tests/support/private_run.h"
#include "tests/support/run_program.h"
#include "tests/support/scratch_directory.h"

namespace kipt::testing {
namespace {

constexpr int kHealthPort = 10270;
constexpr int kHttpOk = 200;
// The safety net for an event that never came.
constexpr char kSyncPeriod[] = "--iptables-sync-period=3s";
// From the incident until all is in place: three periods, and long for what takes milliseconds. The
// daemon's deadline for a program is 20 s, an answer's 5 s; it may come to each more than once.
constexpr absl::Duration kBound = absl::Seconds(30);
constexpr absl::Duration kProgramBound = absl::Seconds(90);
// What is known to take longer than this has to be said.
constexpr absl::Duration kSilent = absl::Seconds(4);
// Until the daemon rests after an incident: its second look at legacy tables comes after 20 ms, a
// changed file is read after 100 ms.
constexpr absl::Duration kRest = absl::Milliseconds(250);
constexpr int kAttempts = 3;
constexpr size_t kDaemonsAtOnce = 10;

// The daemon at rest, in a network namespace of the calling thread's, others' rules beside its own.
class Stage {
 public:
  Stage(const Incident& incident, const Programs& programs)
      : incident_(incident), programs_(programs), control_(programs) {}

  // Empty, or why it could not be.
  std::string Begin() {
    if (!directory_.made()) return "no directory can be made in /run";
    const absl::Status moved = Netns::MoveToNew();
    if (!moved.ok()) return std::string(moved.message());
    std::string problem = PutForeignRules(incident_.iptables);
    const std::string config = directory_.Path("config.yaml");
    if (problem.empty()) problem = WriteFile(config, ConfigFor(incident_.cleanup));
    if (!problem.empty()) return problem;
    daemon_.emplace(Command(), control_.environment());
    const bool ready = WaitUntil(
        [&] { return !daemon_->Running() || HttpGet(kHealthPort, "/readyz").status == kHttpOk; });
    if (!ready || !daemon_->Running()) {
      return absl::StrCat("the daemon is not ready: ", daemon_->Output());
    }
    absl::SleepFor(kRest);
    said_before_ = daemon_->Output().size();
    return "";
  }

  // From here on occurrences count.
  std::string Strike() {
    control_->armed = 1;
    std::string problem =
        incident_.strike({.daemon = daemon_->pid(), .config_path = directory_.Path("config.yaml")});
    struck_ = last_missing_ = absl::Now();
    return problem;
  }

  // Asks iptables-save and nft ever more seldom, for these take CPU that the daemon needs.
  bool BecomesInPlace(const KernelText& wanted, absl::Duration bound) {
    for (absl::Duration pause = absl::Milliseconds(20);;
         pause = std::min(pause * 1.6, absl::Duration(absl::Seconds(1)))) {
      absl::SleepFor(pause);
      const absl::Time asked = absl::Now();
      now_ = ReadKernel(incident_.iptables);
      if (now_ == wanted) return true;
      last_missing_ = asked;
      if (!daemon_->Running() || absl::Now() - struck_ > bound) return false;
    }
  }

  // What a `plan` without faults says: 0 is nothing to do.
  int PlanExitCode() const {
    std::vector<std::string> command = {programs_.agent, "plan"};
    for (const std::string& flag : Flags()) command.push_back(flag);
    return RunProgram(std::move(command)).exit_code;
  }

  Control& control() { return *control_; }
  BackgroundProgram& daemon() { return *daemon_; }
  const KernelText& now() const { return now_; }
  absl::Duration since_strike() const { return absl::Now() - struck_; }
  // For how long it was not in place at least, however busy this machine is.
  absl::Duration known_missing() const { return last_missing_ - struck_; }
  // What the daemon has said since the incident.
  std::string Said() const { return daemon_->Output().substr(said_before_); }

 private:
  std::vector<std::string> Flags() const {
    std::vector<std::string> flags = {absl::StrCat("--config=", directory_.Path("config.yaml"))};
    if (incident_.iptables == IptablesMode::kLegacy) flags.push_back("--iptables-mode=legacy");
    return flags;
  }
  std::vector<std::string> Command() const {
    std::vector<std::string> command = {programs_.agent, "run", kSyncPeriod};
    for (const std::string& flag : Flags()) command.push_back(flag);
    return command;
  }

  const Incident& incident_;
  const Programs& programs_;
  ControlPage control_;
  const ScratchDirectory directory_;
  std::optional<BackgroundProgram> daemon_;
  KernelText now_;
  absl::Time struck_;
  absl::Time last_missing_;
  size_t said_before_ = 0;
};

// Whether glog's lines, "E1121 20:00:00.000000 PID file:line] ...", warn of anything.
bool Warns(const std::string& log) {
  for (const absl::string_view line : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    if (line.size() > 1 && (line[0] == 'W' || line[0] == 'E') && line[1] >= '0' && line[1] <= '9') {
      return true;
    }
  }
  return false;
}

Verdict Fail(const std::string& why, const std::string& log) {
  return {.end = End::kFailed, .text = absl::StrCat(why, "\n--- the log\n", log, "---")};
}

bool SanitizerSpoke(const std::string& log) {
  return absl::StrContains(log, "Sanitizer") || absl::StrContains(log, "runtime error:");
}

Verdict RunOnce(const Incident& incident, const Programs& programs,
                const IncidentBaseline& baseline, const FaultRow& row, uint32_t nth) {
  Stage stage(incident, programs);
  if (std::string problem = stage.Begin(); !problem.empty()) return Fail(problem, "");
  stage.control().row = static_cast<uint32_t>(&row - kFaults);
  stage.control().nth = nth;
  if (std::string problem = stage.Strike(); !problem.empty()) return Fail(problem, stage.Said());
  const absl::Duration bound = row.point == Point::kProgram ? kProgramBound : kBound;
  const bool repaired = stage.BecomesInPlace(baseline.wanted, bound);
  const absl::Duration taken = stage.known_missing();
  if (!stage.daemon().Running()) {
    return Fail(absl::StrCat("the daemon ended with ", stage.daemon().Wait()), stage.Said());
  }
  if (!repaired) {
    return Fail(absl::StrCat("not in place after ", absl::FormatDuration(taken), ":\n",
                             Difference(stage.now(), baseline.wanted)),
                stage.Said());
  }
  // The last occurrences come after the repair.
  WaitUntil([&] { return stage.control().injected > 0; }, kRest);
  if (stage.control().injected == 0) return {.end = End::kNotReached};
  absl::SleepFor(absl::Milliseconds(20));
  if (!stage.BecomesInPlace(baseline.wanted, stage.since_strike() + bound)) {
    return Fail("damaged by the fault and not repaired", stage.Said());
  }
  stage.control().armed = 0;
  stage.daemon().Signal(SIGTERM);
  const int exit_code = stage.daemon().Wait(kProgramBound);
  const std::string said = stage.Said();
  if (exit_code != 0 || SanitizerSpoke(said)) {
    return Fail(absl::StrCat("ended with ", exit_code), said);
  }
  const bool warned = Warns(said);
  if (taken > kSilent && !warned) {
    return Fail(absl::StrCat("took ", absl::FormatDuration(taken), " and said nothing"), said);
  }
  return {.end = taken > kSilent ? End::kError : End::kInPlace,
          .text = {},
          .seconds = absl::ToDoubleSeconds(taken)};
}

}  // namespace

IncidentBaseline MeasureIncident(const Incident& incident, const Programs& programs) {
  IncidentBaseline baseline;
  Stage stage(incident, programs);
  baseline.problem = stage.Begin();
  if (baseline.problem.empty()) baseline.problem = stage.Strike();
  if (!baseline.problem.empty()) return baseline;
  // The flipped gate's file is what `plan` reads; where the file is nonsense, what it said before
  // is compared with.
  const bool readable = std::string(incident.name) != "config-spoilt";
  absl::SleepFor(absl::Milliseconds(500));
  if (readable && !WaitUntil([&] { return stage.PlanExitCode() == 0; })) {
    baseline.problem = absl::StrCat("without a fault it is not repaired: ", stage.Said());
  }
  baseline.wanted = ReadKernel(incident.iptables);
  if (!baseline.wanted.problem.empty()) baseline.problem = baseline.wanted.problem;
  if (stage.control().loaded == 0) baseline.problem = "the layer was not loaded";
  for (size_t i = 0; i < kPointCount; ++i) {
    baseline.occurrences[i] = stage.control().occurrences[i];
  }
  return baseline;
}

Verdict IncidentWithFault(const Incident& incident, const Programs& programs,
                          const IncidentBaseline& baseline, const FaultRow& row, uint32_t nth) {
  Verdict verdict;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    verdict = RunOnce(incident, programs, baseline, row, nth);
    if (verdict.end != End::kNotReached) return verdict;
  }
  // How many looks a daemon takes is a matter of time.
  return verdict;
}

void TryDaemonFaults(const std::vector<Incident>& incidents, const Programs& programs,
                     const std::function<bool(const FaultRow&)>& chosen, Tally& tally) {
  Jobs jobs;
  for (const Incident& incident : incidents) {
    const auto baseline = std::make_shared<IncidentBaseline>();
    std::jthread([&] {
      const PrivateRun private_run;
      *baseline = MeasureIncident(incident, programs);
    }).join();
    if (!baseline->problem.empty()) {
      tally.Add(kFaults[0], incident.name, Fail(baseline->problem, ""));
      continue;
    }
    for (size_t i = 0; i < kFaultCount; ++i) {
      const FaultRow& row = kFaults[i];
      if (!chosen(row)) continue;
      for (uint32_t nth = 1; nth <= baseline->occurrences[static_cast<size_t>(row.point)]; ++nth) {
        jobs.waiting.emplace_back([=, &incident, &programs, &tally, &row] {
          tally.Add(
              row,
              absl::StrCat(incident.name, ": ", PointName(row.point), " ", nth, ", ", row.name),
              IncidentWithFault(incident, programs, *baseline, row, nth));
        });
      }
    }
  }
  RunJobs(jobs, "daemon", kDaemonsAtOnce);
}

}  // namespace kipt::testing
