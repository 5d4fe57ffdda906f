// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/event_loop.h
//
// One thread, one event loop: libsystemd's sd-event behind values and owners. A host program with a
// loop of its own polls fd() and calls Dispatch().
#ifndef KIPT_AGENT_LOOP_EVENT_LOOP_H_
#define KIPT_AGENT_LOOP_EVENT_LOOP_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

struct sd_event;
struct sd_event_source;

namespace kipt::agent {

// Something that the loop waits for, until this is destroyed. Must not outlive its loop. Handlers
// run on the thread that runs the loop, one at a time, and may destroy their own source.
class EventSource {
 public:
  ~EventSource();
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;

  // Whether it is waited for. Of a file: what comes meanwhile is found later.
  absl::Status Enable(bool enabled);
  // A timer only: fires once, `delay` from now at the earliest, whatever is done to the system's
  // clock. InfiniteDuration: never.
  absl::Status FireAfter(absl::Duration delay);

 private:
  friend class EventLoop;
  explicit EventSource(std::function<void()> handler) : handler_(std::move(handler)) {}
  std::function<void()> handler_;
  sd_event_source* source_ = nullptr;
};

// Not safe for use by several threads at once.
class EventLoop {
 public:
  // ResourceExhausted: no descriptors or memory.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // To be polled for input by a loop around this one.
  int fd() const;
  // Runs whatever is ready and returns. Call it once before polling fd() for the first time, and
  // after each time it was readable: timers are armed here.
  absl::Status Dispatch();
  // Runs until Exit(); returns its code.
  absl::StatusOr<int> Run();
  void Exit(int code);

  // `handler` runs while `fd` is readable. The descriptor stays the caller's.
  absl::StatusOr<std::unique_ptr<EventSource>> AddReadable(int fd, std::function<void()> handler);
  // Not armed: see FireAfter.
  absl::StatusOr<std::unique_ptr<EventSource>> AddTimer(std::function<void()> handler);
  // Blocks the signal in the calling thread, which must be before other threads are started.
  absl::StatusOr<std::unique_ptr<EventSource>> AddSignal(int signal, std::function<void()> handler);
  // Tells the service manager that the loop turns, as often as it wants to know (WatchdogSec=).
  // False: it does not want to know.
  absl::StatusOr<bool> EnableWatchdog();

 private:
  explicit EventLoop(sd_event* event) : event_(event) {}
  sd_event* event_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_EVENT_LOOP_H_
