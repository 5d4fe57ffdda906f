// SPDX-License-Identifier: Apache-2.0
//
// Steady time, the retry of attempts, the pace of checks, and the event loop.
#ifndef KIPT_AGENT_LOOP_CLOCK_H_
#define KIPT_AGENT_LOOP_CLOCK_H_

#include <algorithm>
#include <atomic>
#include <compare>
#include <functional>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

struct sd_event;
struct sd_event_source;

namespace kipt::agent {

// A moment of CLOCK_MONOTONIC. Does not mix with the time of day (absl::Time), which may be set.
class SteadyTime {
 public:
  constexpr SteadyTime() = default;
  static SteadyTime InfinitePast() { return SteadyTime() - absl::InfiniteDuration(); }
  static SteadyTime InfiniteFuture() { return SteadyTime() + absl::InfiniteDuration(); }

  SteadyTime& operator+=(absl::Duration duration) {
    since_start_ += duration;
    return *this;
  }
  friend SteadyTime operator+(SteadyTime time, absl::Duration duration) { return time += duration; }
  friend SteadyTime operator-(SteadyTime time, absl::Duration duration) {
    return time += -duration;
  }
  friend absl::Duration operator-(SteadyTime a, SteadyTime b) {
    return a.since_start_ - b.since_start_;
  }
  friend bool operator==(const SteadyTime&, const SteadyTime&) = default;
  friend std::strong_ordering operator<=>(const SteadyTime&, const SteadyTime&) = default;

 private:
  absl::Duration since_start_;
};

SteadyTime SteadyNow();

// Time, passed in so that tests need not wait.
struct Clock {
  std::function<SteadyTime()> now;
  std::function<void(absl::Duration)> sleep;
  // How long RetryAborted goes on.
  absl::Duration patience = absl::Seconds(5);
};
Clock SteadyClock();

// Calls `attempt` again while it returns Aborted (other processes interfered, nothing was done):
// ten times at once, then every 100 ms, until clock.patience has passed since `start`. Then
// DeadlineExceeded, with the last message.
absl::Status RetryAborted(const Clock& clock, SteadyTime start,
                          absl::FunctionRef<absl::Status()> attempt);
inline absl::Status RetryAborted(const Clock& clock, absl::FunctionRef<absl::Status()> attempt) {
  return RetryAborted(clock, clock.now(), attempt);
}

// Grows by `rate` a second up to `capacity`.
class Allowance {
 public:
  Allowance(double capacity, double rate) : capacity_(capacity), rate_(rate), left_(capacity) {}

  // May leave less than zero: the cost of a check is known only afterwards.
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
  Allowance checks_;
  Allowance cpu_;
  Backoff backoff_;
  bool change_pending_ = false;
  bool urgent_ = true;
  SteadyTime waiting_ = SteadyTime::InfiniteFuture();
  SteadyTime last_start_ = SteadyTime::InfinitePast();
};

// CPU time of the calling thread and of all child processes that have ended.
absl::Duration CpuUsed();

// From 0.8 to 1.2, so that nodes that fail at the same moment do not retry at the same moment.
std::function<double()> RandomJitter();

struct EventHandler {
  std::function<void()> run;
  std::shared_ptr<std::atomic<bool>> busy;  // EventLoop::busy
};

// What the loop waits for, until this is destroyed. Must not outlive its loop. Handlers run one at
// a time, on the loop's thread, and may destroy their own source.
class EventSource {
 public:
  ~EventSource();
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;

  // Whether it is waited for.
  absl::Status Enable(bool enabled);
  // A timer only: fires once, `delay` from now at the earliest, by the steady clock.
  // InfiniteDuration: never.
  absl::Status FireAfter(absl::Duration delay);

 private:
  friend class EventLoop;
  explicit EventSource(EventHandler handler) : handler_(std::move(handler)) {}
  EventHandler handler_;
  sd_event_source* source_ = nullptr;
};

// libsystemd's sd-event. A host program with a loop of its own polls fd() and calls Dispatch(). Not
// safe for use by several threads at once.
class EventLoop {
 public:
  using SourceOrError = absl::StatusOr<std::unique_ptr<EventSource>>;

  // ResourceExhausted: no descriptors or memory.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // For a host program's loop to poll for input.
  int fd() const;
  // Runs what is ready and arms timers: call it before the first poll of fd(), and whenever that is
  // readable.
  absl::Status Dispatch();
  // Runs until Exit(); returns its code.
  absl::StatusOr<int> Run();
  void Exit(int code);

  // `handler` runs while `fd` is readable. The descriptor stays the caller's.
  SourceOrError AddReadable(int fd, std::function<void()> handler);
  // Not armed: see FireAfter.
  SourceOrError AddTimer(std::function<void()> handler);
  // Blocks the signal in the calling thread, which must be before other threads are started.
  SourceOrError AddSignal(int signal, std::function<void()> handler);
  // Calls `feed` three times within WatchdogSec= while the loop runs, if the service manager asks
  // for that (else false).
  absl::StatusOr<bool> EnableWatchdog(std::function<void()> feed);

  // Whether a handler runs: for other threads, also when the loop is gone.
  std::shared_ptr<const std::atomic<bool>> busy() const { return busy_; }

 private:
  explicit EventLoop(sd_event* event) : event_(event) {}
  sd_event* event_;
  std::unique_ptr<EventSource> watchdog_;
  const std::shared_ptr<std::atomic<bool>> busy_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_CLOCK_H_
