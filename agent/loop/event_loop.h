// SPDX-License-Identifier: Apache-2.0
//
// What a daemon waits for: descriptors, timers and signals.
#ifndef KIPT_AGENT_LOOP_EVENT_LOOP_H_
#define KIPT_AGENT_LOOP_EVENT_LOOP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/loop/clock.h"
#include "agent/process/files.h"
#include "netlink/fork_count.h"

namespace kipt::agent {

class EventLoop;

// Sources and timers must not outlive their loop. Handlers run one at a time, on the loop's thread,
// and may destroy their own source or timer. What one throws, Dispatch or Run throws, and the loop
// is as before.

// A descriptor or a signal that the loop waits for, until this is destroyed.
class EventSource {
 public:
  ~EventSource();
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;

  // Whether it is waited for. Only true can fail.
  absl::Status Enable(bool enabled);

 private:
  friend class EventLoop;
  EventSource(EventLoop& loop, int fd, std::function<void()> handler)
      : loop_(loop), fd_(fd), handler_(std::move(handler)) {}

  EventLoop& loop_;
  int fd_;
  // A signal's.
  OwnedFd owned_;
  bool enabled_ = false;
  std::function<void()> handler_;
};

class Timer {
 public:
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Fires once, `delay` from now at the earliest, by the steady clock. InfiniteDuration: never.
  void FireAfter(absl::Duration delay);

 private:
  friend class EventLoop;
  Timer(EventLoop& loop, std::function<void()> handler, absl::Duration tolerance)
      : loop_(loop), handler_(std::move(handler)), tolerance_(tolerance) {}

  EventLoop& loop_;
  std::function<void()> handler_;
  absl::Duration tolerance_;
  SteadyTime due_ = SteadyTime::InfiniteFuture();
  SteadyTime latest_ = SteadyTime::InfiniteFuture();
};

// A host program with a loop of its own polls fd() and calls Dispatch(). Not safe for use by
// several threads at once. In a forked process its sources and timers may be destroyed, and nothing
// else.
class EventLoop {
 public:
  using SourceOrError = absl::StatusOr<std::unique_ptr<EventSource>>;

  // ResourceExhausted: no descriptors or memory.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // For a host program's loop to poll for input.
  int fd() const { return epoll_.get(); }
  // Runs what is ready. Begins nothing after 10 ms: fd() is readable then.
  absl::Status Dispatch();
  // fd() is readable until the next Dispatch.
  void DispatchAgain();
  // Runs until Exit(); returns its code.
  absl::StatusOr<int> Run();
  void Exit(int code) { exit_code_ = code; }

  // `handler` runs while `fd` is readable. The descriptor stays the caller's.
  SourceOrError AddReadable(int fd, std::function<void()> handler);
  // Not armed: see FireAfter. Fires up to `tolerance` late, or as long as it was set for, together
  // with other timers where that is possible, so that the processor sleeps longer.
  std::unique_ptr<Timer> AddTimer(std::function<void()> handler,
                                  absl::Duration tolerance = absl::Milliseconds(1));
  // Blocks the signal in the calling thread, which must be before other threads are started.
  SourceOrError AddSignal(int signal, std::function<void()> handler);
  // Calls `feed` at least once within two thirds of WatchdogSec= while the loop runs, if the
  // service manager asks for that (else false). InvalidArgument: what it asks for is no time.
  absl::StatusOr<bool> EnableWatchdog(std::function<void()> feed);

  // Whether a handler runs: for other threads, also after the loop is destroyed.
  std::shared_ptr<const std::atomic<bool>> busy() const { return busy_; }

 private:
  friend class EventSource;
  friend class Timer;

  EventLoop() = default;
  // Runs one handler; false where none is ready within `milliseconds` (-1: ever).
  absl::StatusOr<bool> Turn(int milliseconds);
  // The handler of the timer that is due first; null where none is due.
  std::function<void()> TakeDue();
  // Sets timer_fd_ to the moment when a timer is late.
  void Arm();
  // A child has the descriptors of its parent, whose waiting must stay as it is.
  bool IsForked() const { return netlink::ForkCount() != forks_; }

  const uint64_t forks_ = netlink::ForkCount();
  OwnedFd epoll_;
  OwnedFd timer_fd_;
  SteadyTime armed_ = SteadyTime::InfiniteFuture();
  std::vector<Timer*> timers_;
  std::optional<int> exit_code_;
  const std::shared_ptr<std::atomic<bool>> busy_ = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<Timer> watchdog_;
  // Readable where DispatchAgain was called.
  OwnedFd more_fd_;
  std::unique_ptr<EventSource> more_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_EVENT_LOOP_H_
