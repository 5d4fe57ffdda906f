// SPDX-License-Identifier: Apache-2.0
//
// What a daemon waits for: descriptors, timers and signals.
#ifndef KIPT_AGENT_LOOP_EVENT_LOOP_H_
#define KIPT_AGENT_LOOP_EVENT_LOOP_H_

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/process/files.h"

struct sd_event;
struct sd_event_source;

namespace kipt::agent {

struct EventHandler {
  std::function<void()> run;
  std::shared_ptr<std::atomic<bool>> busy;     // EventLoop::busy
  std::shared_ptr<std::exception_ptr> thrown;  // by a handler, until the loop throws it
};

// What the loop waits for, until this is destroyed. Must not outlive its loop. Handlers run one at
// a time, on the loop's thread, and may destroy their own source. What one throws, Dispatch or Run
// throws once the handler has ended, and the loop is as before.
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
  // readable. Begins nothing after 10 ms: fd() is readable then, and after an exception.
  absl::Status Dispatch();
  // fd() is readable until the next Dispatch.
  void DispatchAgain();
  // Runs until Exit(); returns its code.
  absl::StatusOr<int> Run();
  void Exit(int code);

  // `handler` runs while `fd` is readable. The descriptor stays the caller's.
  SourceOrError AddReadable(int fd, std::function<void()> handler);
  // Not armed: see FireAfter. Fires up to `tolerance` late, together with other timers where that
  // is possible, so that the processor sleeps longer.
  SourceOrError AddTimer(std::function<void()> handler,
                         absl::Duration tolerance = absl::Milliseconds(1));
  // Blocks the signal in the calling thread, which must be before other threads are started.
  SourceOrError AddSignal(int signal, std::function<void()> handler);
  // Calls `feed` at least once within two thirds of WatchdogSec= while the loop runs, if the
  // service manager asks for that (else false).
  absl::StatusOr<bool> EnableWatchdog(std::function<void()> feed);

  // Whether a handler runs: for other threads, also after the loop is destroyed.
  std::shared_ptr<const std::atomic<bool>> busy() const { return busy_; }

 private:
  explicit EventLoop(sd_event* event) : event_(event) {}
  // One turn, of `timeout` microseconds at most, as sd_event_run(3).
  int Turn(uint64_t timeout);
  EventHandler Handler(std::function<void()> run) const { return {std::move(run), busy_, thrown_}; }

  sd_event* event_;
  std::unique_ptr<EventSource> watchdog_;
  // Readable where DispatchAgain was called.
  OwnedFd more_fd_;
  std::unique_ptr<EventSource> more_;
  const std::shared_ptr<std::atomic<bool>> busy_ = std::make_shared<std::atomic<bool>>(false);
  const std::shared_ptr<std::exception_ptr> thrown_ = std::make_shared<std::exception_ptr>();
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_EVENT_LOOP_H_
