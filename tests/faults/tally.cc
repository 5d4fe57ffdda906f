// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/tally.h"

#include <sys/mount.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <fstream>
#include <iostream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/private_run.h"

namespace kipt::testing {
namespace {

// Those who wait for a deadline take no CPU; these take one each.
constexpr size_t kWorkingThreads = 3;
constexpr absl::Duration kProgress = absl::Seconds(10);

// Each number becomes N: ports, process IDs and generations differ from run to run.
std::string WithoutNumbers(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) {
      result.push_back(text[i]);
    } else if (result.empty() || result.back() != 'N') {
      result.push_back('N');
    }
  }
  return result;
}

// The kernel prints its 200,000 symbols anew for whoever reads them, which is most of what a `sync`
// costs that asks for a match. Here thousands do: the calling thread's mount namespace gets a list
// of netfilter's.
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
    std::cerr << "/proc/kallsyms stays as long as it is\n";
  }
}

void Work(const std::vector<std::function<void()>>& jobs, std::atomic<size_t>& next,
          std::atomic<size_t>& done) {
  const PrivateRun private_run;
  ShortenSymbols();
  for (size_t i = next++; i < jobs.size(); i = next++) {
    jobs[i]();
    ++done;
  }
}

}  // namespace

void Tally::Add(const FaultRow& row, const std::string& what, const Verdict& verdict) {
  const std::lock_guard lock(mutex_);
  Counts& counts = rows_[static_cast<size_t>(&row - kFaults)];
  ++counts.ends[verdict.end];
  ++counts.runs;
  ++runs_;
  longest_ = std::max(longest_, verdict.seconds);
  if (verdict.end == End::kError) errors_.insert(WithoutNumbers(verdict.text));
  if (verdict.end != End::kFailed) return;
  failures_.push_back(absl::StrCat(what, ": ", verdict.text));
  std::cerr << "FAILED " << failures_.back() << "\n";
}

size_t Tally::runs() const {
  const std::lock_guard lock(mutex_);
  return runs_;
}

std::vector<std::string> Tally::failures() const {
  const std::lock_guard lock(mutex_);
  return failures_;
}

std::set<std::string> Tally::errors() const {
  const std::lock_guard lock(mutex_);
  return errors_;
}

double Tally::longest() const {
  const std::lock_guard lock(mutex_);
  return longest_;
}

std::string Tally::Table(const std::string& error) const {
  const std::lock_guard lock(mutex_);
  std::string text = absl::StrCat("| at | fault | runs | in place | ", error,
                                  " | not reached | failed |\n|---|---|--:|--:|--:|--:|--:|\n");
  const auto count_of = [](const auto& counts, End end) {
    const auto found = counts.ends.find(end);
    return found == counts.ends.end() ? 0 : found->second;
  };
  for (const auto& [place, counts] : rows_) {
    absl::StrAppend(&text, "| ", PointText(kFaults[place].point), " | ", kFaults[place].name, " | ",
                    counts.runs, " | ", count_of(counts, End::kInPlace), " | ",
                    count_of(counts, End::kError), " | ", count_of(counts, End::kNotReached), " | ",
                    count_of(counts, End::kFailed), " |\n");
  }
  return text;
}

void RunJobs(const Jobs& jobs, const std::string& title, size_t waiting_threads) {
  const absl::Time start = absl::Now();
  std::atomic<size_t> next_waiting = 0;
  std::atomic<size_t> next_working = 0;
  std::atomic<size_t> done = 0;
  const size_t all = jobs.waiting.size() + jobs.working.size();
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < std::min(waiting_threads, jobs.waiting.size()); ++i) {
    threads.emplace_back([&] { Work(jobs.waiting, next_waiting, done); });
  }
  for (size_t i = 0; i < std::min(kWorkingThreads, jobs.working.size()); ++i) {
    threads.emplace_back([&] { Work(jobs.working, next_working, done); });
  }
  absl::Time told = start;
  while (done < all) {
    absl::SleepFor(absl::Milliseconds(20));
    if (absl::Now() - told < kProgress && done < all) continue;
    told = absl::Now();
    std::cerr << title << ": " << done << " of " << all << " runs, "
              << absl::ToInt64Seconds(told - start) << " s\n";
  }
}

}  // namespace kipt::testing
