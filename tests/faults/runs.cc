// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/runs.h"

#include <sys/mount.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/private_run.h"

namespace kipt::testing {
namespace {

constexpr absl::Duration kProgress = absl::Seconds(10);

// Printing its 200,000 symbols is most of what a `sync` costs the kernel. The calling thread's
// mount namespace gets a list of netfilter's symbols only.
void ShortenSymbols() {
  static const std::string symbols = [] {
    std::ifstream all("/proc/kallsyms");
    std::string text;
    for (std::string line; std::getline(all, line);) {
      if (absl::StrContains(line, "nft") || absl::StrContains(line, "nf_tables") ||
          absl::StrContains(line, "xt_") || absl::StrContains(line, "_mt") ||
          absl::StrContains(line, "table")) {
        absl::StrAppend(&text, line, "\n");
      }
    }
    return text;
  }();
  constexpr char kShort[] = "/run/kallsyms";
  std::ofstream(kShort) << symbols;
  if (mount(kShort, "/proc/kallsyms", nullptr, MS_BIND, nullptr) != 0) {
    std::cerr << "/proc/kallsyms could not be shortened: runs take longer\n";
  }
}

// The next of `jobs` until there is none left.
class Queue {
 public:
  explicit Queue(std::vector<std::function<void()>> jobs) : jobs_(std::move(jobs)) {}

  void StartThreads(size_t most, std::vector<std::jthread>& threads) {
    for (size_t i = 0; i < std::min(most, jobs_.size()); ++i) {
      threads.emplace_back([this] { Work(); });
    }
  }

 private:
  void Work() {
    const PrivateRun private_run;
    ShortenSymbols();
    for (size_t i = next_++; i < jobs_.size(); i = next_++) jobs_[i]();
  }

  const std::vector<std::function<void()>> jobs_;
  std::atomic<size_t> next_ = 0;
};

Verdict UntilReached(const Run& run) {
  Verdict verdict;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    verdict = run.attempt();
    verdict.attempts = attempt;
    if (verdict.end != End::kNotReached) return verdict;
  }
  verdict.timing = true;
  verdict.text = absl::StrCat("the fault was not reached in ", kAttempts,
                              " attempts, so nothing is known about it");
  return verdict;
}

void Make(const Run& run, const std::string& first_failure, Tally& tally) {
  Verdict verdict = UntilReached(run);
  verdict.first_failure = first_failure;
  tally.Add(run, verdict);
  if (verdict.failed()) {
    std::cerr << absl::StrCat("FAILED ", NameOf(run), ": ", verdict.text, "\n");
  }
}

void Report(const Tally& tally, absl::Time start) {
  const Counts total = tally.Total();
  std::cerr << SubjectName(tally.subject()) << ": " << total.made << " of " << total.planned
            << " runs, " << total.failed() << " failed, "
            << absl::ToInt64Seconds(absl::Now() - start) << " s\n";
}

// Both queues at once, until both are empty or it is `end`.
void MakeMissing(const std::vector<Run>& runs, const Pace& pace, Tally& tally) {
  const absl::Time start = absl::Now();
  std::vector<std::function<void()>> waiting;
  std::vector<std::function<void()>> working;
  for (const Run& run : runs) {
    if (tally.VerdictOf(run)) continue;
    (run.row->waits > 0 ? waiting : working).emplace_back([&] {
      if (absl::Now() < pace.end) Make(run, /*first_failure=*/"", tally);
    });
  }
  Queue waiting_queue(std::move(waiting));
  Queue working_queue(std::move(working));
  std::jthread progress([&](const std::stop_token& stop) {
    for (absl::Time reported = start; !stop.stop_requested();) {
      absl::SleepFor(absl::Milliseconds(20));
      if (absl::Now() - reported < kProgress) continue;
      reported = absl::Now();
      Report(tally, start);
    }
  });
  {
    std::vector<std::jthread> threads;
    waiting_queue.StartThreads(pace.waiting_threads, threads);
    working_queue.StartThreads(pace.working_threads, threads);
  }
  progress.request_stop();
  progress.join();
  Report(tally, start);
}

}  // namespace

void DoApart(const std::vector<std::function<void()>>& jobs, size_t threads) {
  Queue queue(jobs);
  std::vector<std::jthread> all;
  queue.StartThreads(threads, all);
}

void MakeRuns(const std::vector<Run>& runs, const Pace& pace, Tally& tally) {
  for (const Run& run : runs) tally.Plan(run);
  MakeMissing(runs, pace, tally);
  std::vector<std::function<void()>> again;
  for (const Run& run : runs) {
    const std::optional<Verdict> first = tally.VerdictOf(run);
    if (!first || !first->failed() || !first->timing || !first->first_failure.empty()) continue;
    again.emplace_back([&, text = first->text] { Make(run, text, tally); });
  }
  const size_t most = runs.size() / kRunsForEachRepetition + 1;
  if (tally.Total().repeated + again.size() > most) {
    tally.AddProblem(SubjectName(tally.subject()),
                     absl::StrCat(again.size(), " runs failed by their timing, and only ", most,
                                  " would be repeated alone: none was"));
    return;
  }
  DoApart(again, /*threads=*/1);
}

}  // namespace kipt::testing
