// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/storms.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/bench/bench_daemon.h"
#include "tests/bench/figures.h"
#include "tests/support/foreign_writer.h"
#include "tests/support/netns.h"
#include "tests/support/private_run.h"
#include "tests/support/process_cost.h"

namespace kipt::testing {
namespace {

// Long enough for what follows the last event: one look that was put off, and its timer.
constexpr absl::Duration kSettling = absl::Milliseconds(500);
constexpr int kSmallCommits = 1000;
constexpr char kRareSync[] = "--iptables-sync-period=1h";

using Costs = std::map<pid_t, ThreadCost>;

void PrintSpent(absl::string_view what, const Costs& before, const Costs& after) {
  const ThreadCost spent = Spent(before, after);
  absl::PrintF("%s: %d wake-ups (%s), %s us of CPU time\n", what, spent.wakeups,
               WakeupsText(before, after), InMicroseconds(spent.cpu));
  std::fflush(stdout);
}

// Page faults of all the programs that it has run and waited for, the 11th field of
// /proc/PID/stat: no program can start without some.
int64_t FaultsOfPrograms(pid_t process) {
  std::ifstream file(absl::StrCat("/proc/", process, "/stat"));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  // The second field is the name, in brackets; it may hold anything.
  const std::vector<std::string> fields = absl::StrSplit(
      text.substr(std::min(text.rfind(')') + 1, text.size())), ' ', absl::SkipEmpty());
  int64_t faults = -1;
  return fields.size() > 8 && absl::SimpleAtoi(fields[8], &faults) ? faults : -1;
}

// One transaction of many rules, several times over.
absl::Status BigCommits(const StormOptions& options, pid_t daemon, ForeignWriter& writer,
                        Targets& targets) {
  Figures cpu;
  int64_t most_wakeups = 0;
  for (int i = 0; i < options.repeats; ++i) {
    ComesToRest(daemon);
    const Costs before = ThreadCosts(daemon);
    const absl::StatusOr<absl::Duration> took = writer.CommitRules(options.rules);
    if (!took.ok()) return took.status();
    absl::SleepFor(kSettling);
    const Costs after = ThreadCosts(daemon);
    PrintSpent(
        absl::StrCat(options.rules, " rules in one transaction of ", InMilliseconds(*took), " ms"),
        before, after);
    const ThreadCost spent = Spent(before, after);
    cpu.Add(spent.cpu);
    most_wakeups = std::max(most_wakeups, spent.wakeups);
    if (absl::Status status = writer.RemoveRules(); !status.ok()) return status;
  }
  targets.AtMostExactly("wake-ups for one big transaction, most", static_cast<double>(most_wakeups),
                        1, "wake-ups");
  targets.AtMost("CPU time for one big transaction, median",
                 absl::ToDoubleMilliseconds(cpu.Median()), 1, "ms");
  return absl::OkStatus();
}

absl::Status SmallCommits(const StormOptions& options, pid_t daemon, ForeignWriter& writer,
                          Targets& targets) {
  ComesToRest(daemon);
  const Costs before = ThreadCosts(daemon);
  const absl::Time start = absl::Now();
  const auto commits =
      static_cast<int>(absl::ToDoubleSeconds(options.storm) * options.commits_per_second);
  for (int i = 0; i < commits; ++i) {
    const absl::StatusOr<absl::Duration> took = writer.CommitChain();
    if (!took.ok()) return took.status();
    absl::SleepFor(start + (i + 1) * absl::Seconds(1) / options.commits_per_second - absl::Now());
  }
  const absl::Duration elapsed = absl::Now() - start;
  const Costs after = ThreadCosts(daemon);
  PrintSpent(absl::StrCat(commits, " small commits in ", absl::FormatDuration(elapsed)), before,
             after);
  targets.AtMost("CPU share while others commit all the time",
                 100 * absl::FDivDuration(Spent(before, after).cpu, elapsed), 2, "%");
  return absl::OkStatus();
}

absl::Status Idle(const StormOptions& options, Targets& targets) {
  constexpr absl::Duration kPeriod = absl::Seconds(10);
  auto daemon = StartDaemon(IptablesMode::kNft, {"--iptables-sync-period=10s"});
  if (!daemon.ok()) return daemon.status();
  ComesToRest((*daemon)->pid());
  const Costs before = ThreadCosts((*daemon)->pid());
  absl::SleepFor(options.idle);
  const Costs after = ThreadCosts((*daemon)->pid());
  PrintSpent(absl::StrCat("idle for ", absl::FormatDuration(options.idle), ", a sync each 10s"),
             before, after);
  // One more fits in where the first comes at once.
  targets.AtMostExactly("wake-ups while idle", static_cast<double>(Spent(before, after).wakeups),
                        absl::FDivDuration(options.idle, kPeriod) + 1, "wake-ups");
  const int64_t faults = FaultsOfPrograms((*daemon)->pid());
  if (faults < 0) return absl::InternalError("/proc/PID/stat cannot be read");
  targets.AtMostExactly("page faults of all programs that it has run (none: it ran none)",
                        static_cast<double>(faults), 0, "faults");
  return absl::OkStatus();
}

// What somebody else's commits take while the daemon watches in one way, or does not run.
struct WriterCost {
  const char* name;
  std::vector<std::string> flags;  // empty: no daemon
  Figures big;
  Figures small;
};

absl::Status MeasureWriter(const StormOptions& options, ForeignWriter& writer, WriterCost& cost) {
  std::unique_ptr<BackgroundProgram> daemon;
  if (!cost.flags.empty()) {
    auto started = StartDaemon(IptablesMode::kNft, cost.flags);
    if (!started.ok()) return started.status();
    daemon = *std::move(started);
  }
  const absl::StatusOr<absl::Duration> big = writer.CommitRules(options.rules);
  if (!big.ok()) return big.status();
  cost.big.Add(*big);
  if (absl::Status status = writer.RemoveRules(); !status.ok()) return status;
  absl::SleepFor(kSettling);
  for (int i = 0; i < kSmallCommits; ++i) {
    const absl::StatusOr<absl::Duration> small = writer.CommitChain();
    if (!small.ok()) return small.status();
    cost.small.Add(*small);
  }
  return absl::OkStatus();
}

absl::Status CostOfListening(const StormOptions& options, ForeignWriter& writer,
                             nlohmann::json& listening) {
  std::array<WriterCost, 3> costs = {{{"no daemon", {}, {}, {}},
                                      {"--watch=events", {"--watch=events", kRareSync}, {}, {}},
                                      {"--watch=poll", {"--watch=poll", kRareSync}, {}, {}}}};
  // In turns, so that a slow minute of the machine is everybody's.
  for (int i = 0; i < options.repeats; ++i) {
    for (WriterCost& cost : costs) {
      if (absl::Status status = MeasureWriter(options, writer, cost); !status.ok()) return status;
    }
  }
  for (const WriterCost& cost : costs) {
    absl::PrintF(
        "others' commits, %s: %d rules min %s, median %s ms; a chain min %.1f, median %.1f us\n",
        cost.name, options.rules, InMilliseconds(cost.big.Quantile(0)),
        InMilliseconds(cost.big.Median()), absl::ToDoubleMicroseconds(cost.small.Quantile(0)),
        absl::ToDoubleMicroseconds(cost.small.Median()));
    listening.push_back({{"daemon", cost.name},
                         {"rules", options.rules},
                         {"big", cost.big.Summary()},
                         {"small", cost.small.Summary()}});
  }
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status Measure(const StormOptions& options, Targets& targets, nlohmann::json& listening) {
  absl::StatusOr<std::unique_ptr<ForeignWriter>> writer = ForeignWriter::Create();
  if (!writer.ok()) return writer.status();
  {
    auto daemon = StartDaemon(IptablesMode::kNft, {kRareSync});
    if (!daemon.ok()) return daemon.status();
    const pid_t pid = (*daemon)->pid();
    if (absl::Status status = BigCommits(options, pid, **writer, targets); !status.ok()) {
      return status;
    }
    if (absl::Status status = SmallCommits(options, pid, **writer, targets); !status.ok()) {
      return status;
    }
    const Memory memory = MemoryOf(pid);
    targets.AtMost("RssAnon", static_cast<double>(memory.anonymous_kib) / 1024, 4, "MiB");
    targets.AtMost("VmRSS", static_cast<double>(memory.resident_kib) / 1024, 16, "MiB");
  }
  if (absl::Status status = Idle(options, targets); !status.ok()) return status;
  return CostOfListening(options, **writer, listening);
}

}  // namespace

absl::StatusOr<nlohmann::json> MeasureStorms(const StormOptions& options) {
  absl::StatusOr<Netns> netns = Netns::Create();
  if (!netns.ok()) return netns.status();
  const PrivateRun private_run;
  const InNetns inside(*netns);
  Targets targets(options.slack);
  nlohmann::json listening = nlohmann::json::array();
  if (absl::Status status = Measure(options, targets, listening); !status.ok()) return status;
  return nlohmann::json{
      {"met", targets.all_met()}, {"targets", targets.all()}, {"listening", listening}};
}

}  // namespace kipt::testing
