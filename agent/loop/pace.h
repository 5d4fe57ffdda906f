// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/pace.h
//
// When to read the kernel's rules next: at once where another process changed something, but not as
// often as a storm of changes would have it. Pure, except for the two functions at the end.
#ifndef KIPT_AGENT_LOOP_PACE_H_
#define KIPT_AGENT_LOOP_PACE_H_

#include <functional>

#include "absl/time/time.h"
#include "agent/loop/clock.h"

namespace kipt::agent {

// Grows by `rate` a second up to `capacity`; whoever takes more than is there waits.
class Allowance {
 public:
  Allowance(double capacity, double rate);

  // May go below zero: what a look costs is known only afterwards.
  void Take(double amount, SteadyTime now);
  // When there is at least `amount`; `now` or later.
  SteadyTime When(double amount, SteadyTime now) const;

 private:
  double At(SteadyTime now) const;

  double capacity_;
  double rate_;
  double left_;
  SteadyTime as_of_ = SteadyTime::InfinitePast();
};

// Waits that double with every failure, from 100 ms up to `longest`.
class Backoff {
 public:
  // `jitter` returns what each wait is multiplied with: about 1, different on each node.
  Backoff(absl::Duration longest, std::function<double()> jitter);

  // This time no longer than `longest` either.
  void NoteFailure(SteadyTime now, absl::Duration longest = absl::InfiniteDuration());
  void NoteSuccess();
  bool failing() const { return failures_ > 0; }
  // When to try again; InfinitePast where the last attempt did not fail.
  SteadyTime next() const { return next_; }

 private:
  absl::Duration longest_;
  std::function<double()> jitter_;
  int failures_ = 0;
  SteadyTime next_ = SteadyTime::InfinitePast();
};

struct PaceOptions {
  // Between two looks where nothing happens.
  absl::Duration resync = absl::Minutes(1);
  // Of one CPU that looks may take in the long run; a minute's worth of it may be taken at once.
  // 1 or more: as much as they want.
  double cpu_share = 1;
};

class Pace {
 public:
  Pace(const PaceOptions& options, std::function<double()> jitter);

  void SetOptions(const PaceOptions& options);
  // Somebody changed something.
  void NoteChange() { change_pending_ = true; }
  // What is wanted has changed, or is wanted at once for another reason.
  void NoteUrgent() { urgent_ = true; }
  // Something waits for `when`, until the next look.
  void NoteWaiting(SteadyTime when);
  // A look that began at `start` and ended at `end`, after this much of CPU time, children
  // included.
  void NoteLook(SteadyTime start, SteadyTime end, absl::Duration cpu, bool failed);

  // When to look. A change is looked at at once, but of more than ten in a row within a second only
  // ten a second are: never more than twenty looks in any second. While looks fail, changes are
  // looked at once a second at most. `now` where it should have been earlier.
  SteadyTime Next(SteadyTime now) const;
  bool change_pending() const { return change_pending_; }
  // Something waits.
  bool waiting() const { return waiting_ != SteadyTime::InfiniteFuture(); }
  bool failing() const { return backoff_.failing(); }

 private:
  SteadyTime WhenChangeIsDue(SteadyTime now) const;

  std::function<double()> jitter_;
  absl::Duration resync_;
  Allowance looks_;
  Allowance cpu_;
  Backoff backoff_;
  bool change_pending_ = false;
  bool urgent_ = true;
  SteadyTime waiting_ = SteadyTime::InfiniteFuture();
  SteadyTime last_start_ = SteadyTime::InfinitePast();
};

// The CPU time of the calling thread, and of the programs that this process has run to their end.
absl::Duration CpuUsed();

// From 0.8 to 1.2: so that a fleet that fails at one moment does not retry at one moment.
std::function<double()> RandomJitter();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_PACE_H_
