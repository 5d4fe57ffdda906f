// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/pace.h"

#include <sys/resource.h>

#include <algorithm>
#include <random>
#include <utility>

namespace kipt::agent {
namespace {

// Together twenty, the most that any second may see.
constexpr double kLooksAtOnce = 10;
constexpr double kLooksPerSecond = 10;
constexpr double kShareBurstSeconds = 60;
// A share that never runs out.
constexpr double kUnlimited = 1;

constexpr absl::Duration kFirstWait = absl::Milliseconds(100);
constexpr absl::Duration kBetweenFailures = absl::Seconds(1);

}  // namespace

Allowance::Allowance(double capacity, double rate)
    : capacity_(capacity), rate_(rate), left_(capacity) {}

double Allowance::At(SteadyTime now) const {
  if (as_of_ == SteadyTime::InfinitePast()) return left_;
  const double grown = left_ + rate_ * absl::ToDoubleSeconds(now - as_of_);
  return std::min(capacity_, grown);
}

void Allowance::Take(double amount, SteadyTime now) {
  left_ = At(now) - amount;
  as_of_ = now;
}

SteadyTime Allowance::When(double amount, SteadyTime now) const {
  const double missing = amount - At(now);
  return missing <= 0 ? now : now + absl::Seconds(missing / rate_);
}

Backoff::Backoff(absl::Duration longest, std::function<double()> jitter)
    : longest_(longest), jitter_(std::move(jitter)) {}

void Backoff::NoteFailure(SteadyTime now, absl::Duration longest) {
  absl::Duration wait = kFirstWait;
  for (int i = 0; i < failures_ && wait < longest_; ++i) wait *= 2;
  ++failures_;
  next_ = now + std::min({wait, longest_, longest}) * jitter_();
}

void Backoff::NoteSuccess() {
  failures_ = 0;
  next_ = SteadyTime::InfinitePast();
}

Pace::Pace(const PaceOptions& options, std::function<double()> jitter)
    : jitter_(std::move(jitter)),
      looks_(kLooksAtOnce, kLooksPerSecond),
      cpu_(0, 0),
      backoff_(options.resync, jitter_) {
  SetOptions(options);
}

void Pace::SetOptions(const PaceOptions& options) {
  resync_ = options.resync;
  const double share = std::min(options.cpu_share, kUnlimited);
  cpu_ = Allowance(share * kShareBurstSeconds, share);
  backoff_ = Backoff(options.resync, jitter_);
}

void Pace::NoteWaiting(SteadyTime when) { waiting_ = std::min(waiting_, when); }

void Pace::NoteLook(SteadyTime start, SteadyTime end, absl::Duration cpu, bool failed) {
  last_start_ = start;
  change_pending_ = false;
  urgent_ = false;
  waiting_ = SteadyTime::InfiniteFuture();
  looks_.Take(1, start);
  cpu_.Take(absl::ToDoubleSeconds(cpu), end);
  if (failed) {
    backoff_.NoteFailure(end);
  } else {
    backoff_.NoteSuccess();
  }
}

SteadyTime Pace::WhenChangeIsDue(SteadyTime now) const {
  SteadyTime due = std::max(looks_.When(1, now), cpu_.When(0, now));
  if (backoff_.failing()) due = std::max(due, last_start_ + kBetweenFailures);
  return due;
}

SteadyTime Pace::Next(SteadyTime now) const {
  if (urgent_) return now;
  SteadyTime next = backoff_.failing() ? backoff_.next() : last_start_ + resync_;
  next = std::min(next, waiting_);
  if (change_pending_) next = std::min(next, WhenChangeIsDue(now));
  return std::max(next, now);
}

absl::Duration CpuUsed() {
  absl::Duration used;
  for (const auto who : {RUSAGE_THREAD, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    used += absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
  }
  return used;
}

std::function<double()> RandomJitter() {
  return [random = std::minstd_rand(std::random_device()())]() mutable {
    return std::uniform_real_distribution<double>(0.8, 1.2)(random);
  };
}

}  // namespace kipt::agent
