// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/pace.h"

#include <sys/resource.h>

#include <random>

namespace kipt::agent {
namespace {

constexpr double kChecksAtOnce = 10;
constexpr double kChecksPerSecond = 10;
constexpr double kShareBurstSeconds = 60;

constexpr absl::Duration kFirstWait = absl::Milliseconds(100);
constexpr absl::Duration kBetweenFailures = absl::Seconds(1);

}  // namespace

double Allowance::At(SteadyTime now) const {
  return std::min(capacity_, left_ + rate_ * absl::ToDoubleSeconds(now - as_of_));
}

void Allowance::Take(double amount, SteadyTime now) {
  left_ = At(now) - amount;
  as_of_ = now;
}

SteadyTime Allowance::When(double amount, SteadyTime now) const {
  return now + absl::Seconds(std::max(0.0, amount - At(now)) / rate_);
}

void Backoff::NoteFailure(SteadyTime now, absl::Duration longest) {
  wait_ = std::min(failing() ? 2 * wait_ : kFirstWait, longest_);
  next_ = now + std::min(wait_, longest) * jitter_();
}

Pace::Pace(absl::Duration sync_period, std::function<double()> jitter, double cpu_share)
    : jitter_(std::move(jitter)),
      sync_period_(sync_period),
      cpu_share_(cpu_share),
      checks_(kChecksAtOnce, kChecksPerSecond),
      cpu_(cpu_share * kShareBurstSeconds, cpu_share),
      backoff_(sync_period, jitter_) {}

void Pace::SetOptions(absl::Duration sync_period, double cpu_share) {
  sync_period_ = sync_period;
  SetCpuShare(cpu_share);
  backoff_ = Backoff(sync_period, jitter_);
}

void Pace::SetCpuShare(double cpu_share) {
  if (std::exchange(cpu_share_, cpu_share) == cpu_share) return;
  cpu_ = Allowance(cpu_share * kShareBurstSeconds, cpu_share);
}

void Pace::NoteCheck(SteadyTime start, SteadyTime end, absl::Duration cpu, bool failed) {
  last_start_ = start;
  change_pending_ = false;
  urgent_ = false;
  waiting_ = SteadyTime::InfiniteFuture();
  checks_.Take(1, start);
  cpu_.Take(absl::ToDoubleSeconds(cpu), end);
  if (failed) {
    backoff_.NoteFailure(end);
  } else {
    backoff_.NoteSuccess();
  }
}

SteadyTime Pace::Next(SteadyTime now) const {
  if (urgent_) return now;
  SteadyTime next = std::min(waiting_, failing() ? backoff_.next() : last_start_ + sync_period_);
  if (change_pending_) {
    SteadyTime due = std::max(checks_.When(1, now), cpu_.When(0, now));
    if (failing()) due = std::max(due, last_start_ + kBetweenFailures);
    next = std::min(next, due);
  }
  return std::max(next, now);
}

std::function<absl::Duration()> CpuMeter() {
  const auto spent = [](int who) {
    rusage usage{};
    getrusage(who, &usage);
    return absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
  };
  return [spent, programs = absl::Duration(), children = absl::Duration(),
          last = SteadyTime::InfinitePast()]() mutable {
    const absl::Duration ended = spent(RUSAGE_CHILDREN);
    const SteadyTime now = SteadyNow();
    programs += std::min(ended - children, now - last);
    children = ended;
    last = now;
    return spent(RUSAGE_THREAD) + programs;
  };
}

std::function<double()> RandomJitter() {
  return [random = std::minstd_rand(std::random_device()())]() mutable {
    return std::uniform_real_distribution<double>(0.8, 1.2)(random);
  };
}

}  // namespace kipt::agent
