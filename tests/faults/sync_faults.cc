// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/sync_faults.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

// Of the program's: ok, failed, wrong flags or an unreadable file.
constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 64;
constexpr int kFirstSignal = 128;

// Long for what takes milliseconds; the program's own deadlines come on top, and it may try again
// what did not end, each family by itself.
constexpr absl::Duration kPatienceWithoutDeadline = absl::Seconds(40);
constexpr size_t kWaitingThreads = 48;
constexpr size_t kWorkingThreads = 3;
constexpr char kErrorHead[] = "Error: ";
constexpr size_t kShortestError = 20;

std::vector<std::string> SyncCommand(const Scene& scene, const Programs& programs) {
  std::vector<std::string> command = {programs.agent, "sync"};
  for (std::string& flag : FlagsOf(scene)) command.push_back(std::move(flag));
  return command;
}

// The "Error: " lines of what a program printed.
std::string ErrorsOf(const std::string& output) {
  std::string errors;
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    if (!absl::StartsWith(line, kErrorHead)) continue;
    absl::StrAppend(&errors, errors.empty() ? "" : "\n", line);
  }
  return errors;
}

// Empty where the error says something.
std::string Unclear(const std::string& errors) {
  if (errors.size() < sizeof(kErrorHead) + kShortestError) return "no clear error";
  // What a library of C++ says names nothing that an operator knows.
  for (const char* word : {"basic_filebuf", "std::", "bad_alloc", "iostream error"}) {
    if (absl::StrContains(errors, word)) return absl::StrCat("the error is a library's: ", errors);
  }
  return "";
}

bool Crashed(int exit_code, const std::string& output) {
  return exit_code >= kFirstSignal || absl::StrContains(output, "Sanitizer") ||
         absl::StrContains(output, "runtime error:");
}

Atomicity AtomicityOf(const Scene& scene, const FaultRow& row) {
  if (scene.iptables == IptablesMode::kNft) return Atomicity::kWhole;
  return row.kind == Kind::kKilledBetween ? Atomicity::kTable : Atomicity::kFamily;
}

Verdict Fail(const std::string& why, const std::string& output) {
  return {.end = End::kFailed, .text = absl::StrCat(why, "\n--- it printed\n", output, "---")};
}

// What stands afterwards, and what was said of it.
Verdict Judge(const Scene& scene, const Baseline& baseline, const FaultRow& row, int exit_code,
              const std::string& output) {
  if (Crashed(exit_code, output)) return Fail(absl::StrCat("crashed, ", exit_code), output);
  const KernelText now = ReadKernel(scene.iptables);
  if (exit_code == kExitOk) {
    if (now == baseline.desired) return {.end = End::kInPlace};
    return Fail(absl::StrCat("exit code 0, but not in place:\n", Difference(now, baseline.desired)),
                output);
  }
  if (exit_code != kExitFailed && exit_code != kExitUsage) {
    return Fail(absl::StrCat("exit code ", exit_code), output);
  }
  const std::string errors = ErrorsOf(output);
  if (const std::string unclear = Unclear(errors); !unclear.empty()) return Fail(unclear, output);
  const std::string half =
      HalfDone(now, baseline.before, baseline.desired, AtomicityOf(scene, row));
  if (!half.empty()) return Fail(half, output);
  if (scene.iptables == IptablesMode::kNft && now != baseline.before) {
    return Fail("an error, but all is done", output);
  }
  return {.end = End::kError, .text = errors};
}

// Whether nothing of the fault is left.
std::string SyncAgain(const Scene& scene, const Programs& programs, const Baseline& baseline) {
  const ProgramResult again = RunProgram(SyncCommand(scene, programs));
  if (again.exit_code != kExitOk) {
    return absl::StrCat("the next sync failed: ", again.out, again.err);
  }
  const KernelText now = ReadKernel(scene.iptables);
  if (now == baseline.desired) return "";
  return absl::StrCat("the next sync did not put it in place:\n",
                      Difference(now, baseline.desired));
}

}  // namespace

Verdict SyncWithFault(const Scene& scene, const Programs& programs, const Baseline& baseline,
                      const FaultRow& row, uint32_t nth) {
  if (std::string problem = Prepare(scene, programs); !problem.empty()) return Fail(problem, "");
  ControlPage control(programs);
  control->row = static_cast<uint32_t>(&row - kFaults);
  control->nth = nth;
  control->armed = 1;
  const absl::Time start = absl::Now();
  const absl::Duration patience = kPatienceWithoutDeadline + absl::Seconds(3 * row.waits);
  BackgroundProgram sync(SyncCommand(scene, programs), control.environment());
  const int exit_code = sync.Wait(patience);
  const std::string output = sync.Output();
  if (exit_code < 0) {
    Verdict late = Fail(absl::StrCat("still runs after ", absl::FormatDuration(patience)), output);
    late.timing = true;
    return late;
  }
  Verdict verdict = Judge(scene, baseline, row, exit_code, output);
  verdict.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  if (verdict.end == End::kFailed) return verdict;
  if (control->loaded == 0) return Fail("the layer was not loaded", output);
  if (control->injected == 0) return {.end = End::kNotReached};
  // In place is what another sync would leave: nothing to be done.
  if (verdict.end == End::kInPlace) return verdict;
  const std::string problem = SyncAgain(scene, programs, baseline);
  return problem.empty() ? verdict : Fail(problem, output);
}

Baseline MeasureSync(const Scene& scene, const Programs& programs) {
  Baseline baseline;
  baseline.problem = Prepare(scene, programs);
  if (!baseline.problem.empty()) return baseline;
  baseline.before = ReadKernel(scene.iptables);
  ControlPage control(programs);
  control->armed = 1;
  BackgroundProgram sync(SyncCommand(scene, programs), control.environment());
  const int exit_code = sync.Wait();
  baseline.desired = ReadKernel(scene.iptables);
  for (size_t i = 0; i < kPointCount; ++i) baseline.occurrences[i] = control->occurrences[i];
  if (exit_code != kExitOk) {
    baseline.problem = absl::StrCat("exit code ", exit_code, ": ", sync.Output());
  } else if (control->loaded == 0) {
    baseline.problem = "the layer was not loaded";
  } else if ((baseline.before == baseline.desired) != (scene.state == StartState::kWarm)) {
    baseline.problem = "the oracle sees no difference, or one where there is none";
  }
  return baseline;
}

std::vector<Scene> AllScenes() {
  std::vector<Scene> scenes;
  for (const IptablesMode iptables : {IptablesMode::kNft, IptablesMode::kLegacy}) {
    for (const bool cleanup : {true, false}) {
      for (const StartState state : {StartState::kCold, StartState::kWarm, StartState::kDamaged}) {
        scenes.push_back({.iptables = iptables, .cleanup = cleanup, .state = state});
      }
    }
  }
  return scenes;
}

void TrySyncFaults(const std::vector<Scene>& scenes, const Programs& programs,
                   const FaultChoice& chosen, Tally& tally, absl::Time end) {
  std::vector<Place> places;
  for (const Scene& scene : scenes) {
    places.push_back({.name = NameOf(scene),
                      .measure = [&] { return MeasureSync(scene, programs); },
                      .attempt =
                          [&](const Baseline& baseline, const FaultRow& row, uint32_t nth) {
                            return SyncWithFault(scene, programs, baseline, row, nth);
                          }});
  }
  TryFaults(places, chosen,
            {.waiting_threads = kWaitingThreads, .working_threads = kWorkingThreads, .end = end},
            tally);
}

}  // namespace kipt::testing
