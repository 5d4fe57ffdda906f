// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/storms.h"

#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

absl::Status CostOfListening(const StormOptions& options, ForeignWriter& writer) {
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
  }
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status Measure(const StormOptions& options, Targets& targets) {
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
  return CostOfListening(options, **writer);
}

}  // namespace

absl::StatusOr<bool> MeasureStorms(const StormOptions& options) {
  absl::StatusOr<Netns> netns = Netns::Create();
  if (!netns.ok()) return netns.status();
  const PrivateRun private_run;
  const InNetns inside(*netns);
  Targets targets(options.slack);
  if (absl::Status status = Measure(options, targets); !status.ok()) return status;
  return targets.all_met();
}

}  // namespace kipt::testing
