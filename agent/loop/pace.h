// SPDX-License-Identifier: Apache-2.0
//
// When to check: the pace of checks, and waits after failures.
#ifndef KIPT_AGENT_LOOP_PACE_H_
#define KIPT_AGENT_LOOP_PACE_H_

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/time/time.h"
#include "agent/loop/clock.h"

namespace kipt::agent {

// Grows by `rate` a second up to `capacity`.
class Allowance {
 public:
  Allowance(double capacity, double rate) : capacity_(capacity), rate_(rate), left_(capacity) {}

  // May go below zero: the cost of a check is known only afterwards.
  void Take(double amount, SteadyTime now);
  // When at least `amount` is left; `now` or later.
  SteadyTime When(double amount, SteadyTime now) const;

 private:
  double At(SteadyTime now) const;

  double capacity_;
  double rate_;
  double left_;
  SteadyTime as_of_ = SteadyTime::InfinitePast();
};

// Waits that double with every failure, from 100 ms up to `longest`, each multiplied by `jitter`
// (see RandomJitter).
class Backoff {
 public:
  Backoff(absl::Duration longest, std::function<double()> jitter)
      : longest_(longest), jitter_(std::move(jitter)) {}

  // `longest` also limits this wait.
  void NoteFailure(SteadyTime now, absl::Duration longest = absl::InfiniteDuration());
  void NoteSuccess() { next_ = SteadyTime::InfinitePast(); }
  bool failing() const { return next_ != SteadyTime::InfinitePast(); }
  // When to try again; InfinitePast where the last attempt did not fail.
  SteadyTime next() const { return next_; }

 private:
  absl::Duration longest_;
  std::function<double()> jitter_;
  // The last one, without jitter.
  absl::Duration wait_;
  SteadyTime next_ = SteadyTime::InfinitePast();
};

// When to check: at once after a change by another process, but bounded in a storm of changes.
class Pace {
 public:
  // `sync_period`: between two checks where nothing happens. `cpu_share`: what checks may use of
  // one CPU in the long run, with a burst of a minute's worth; 1 is no limit.
  Pace(absl::Duration sync_period, std::function<double()> jitter, double cpu_share = 1);
  void SetOptions(absl::Duration sync_period, double cpu_share);
  // Keeps the waits after failures, and the debt where the share is the same.
  void SetCpuShare(double cpu_share);

  // Another process changed something.
  void NoteChange() { change_pending_ = true; }
  // The next check is due now.
  void NoteUrgent() { urgent_ = true; }
  // A check is due at `when`, unless there is one before.
  void NoteWaiting(SteadyTime when) { waiting_ = std::min(waiting_, when); }
  // A check took from `start` to `end` and used `cpu` of CPU time, with its child processes.
  void NoteCheck(SteadyTime start, SteadyTime end, absl::Duration cpu, bool failed);

  // When to check; `now` where that is overdue. Bursts trigger 10 checks at once, then 10 checks
  // per second; while checks fail, one.
  SteadyTime Next(SteadyTime now) const;
  bool change_pending() const { return change_pending_; }
  // NoteWaiting was called since the last check.
  bool waiting() const { return waiting_ != SteadyTime::InfiniteFuture(); }
  bool failing() const { return backoff_.failing(); }

 private:
  std::function<double()> jitter_;
  absl::Duration sync_period_;
  double cpu_share_;
  Allowance checks_;
  Allowance cpu_;
  Backoff backoff_;
  bool change_pending_ = false;
  bool urgent_ = true;
  SteadyTime waiting_ = SteadyTime::InfiniteFuture();
  SteadyTime last_start_ = SteadyTime::InfinitePast();
};

// Measures between two calls the CPU time of the calling thread and of child processes that have
// ended: of these no more than the time that passed, because ours run one at a time, and a host
// program's own end as well.
std::function<absl::Duration()> CpuMeter();

// From 0.8 to 1.2, so that nodes that fail at the same moment do not retry at the same moment.
std::function<double()> RandomJitter();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_PACE_H_
