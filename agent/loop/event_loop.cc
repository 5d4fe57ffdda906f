// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/event_loop.h"

#include <sys/epoll.h>
#include <systemd/sd-event.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/loop/clock.h"

namespace kipt::agent {
namespace {

// How late a timer may be, so that the kernel can let wake-ups coincide. Small against the pauses
// that are kept with timers, of 50 ms and more.
constexpr uint64_t kTimerAccuracyMicros = 1000;

absl::Status Error(int result, absl::string_view what) {
  if (result >= 0) return absl::OkStatus();
  if (result == -EMFILE || result == -ENFILE || result == -ENOMEM || result == -ENOSPC) {
    return absl::ResourceExhaustedError(absl::ErrnoToStatus(-result, what).message());
  }
  return absl::ErrnoToStatus(-result, what);
}

// sd-event's handler of each kind of source; `Event` is what it is told of.
template <typename... Event>
int RunHandler(sd_event_source* /*source*/, Event... /*event*/, void* data) {
  // A copy: the handler may destroy the source that holds it.
  const std::function<void()> handler = *static_cast<std::function<void()>*>(data);
  handler();
  return 0;
}

}  // namespace

EventSource::~EventSource() {
  if (source_ != nullptr) sd_event_source_disable_unref(source_);
}

absl::Status EventSource::Enable(bool enabled) {
  return Error(sd_event_source_set_enabled(source_, enabled ? SD_EVENT_ON : SD_EVENT_OFF),
               "cannot change what the event loop waits for");
}

absl::Status EventSource::FireAfter(absl::Duration delay) {
  constexpr char kWhat[] = "cannot set a timer";
  if (delay == absl::InfiniteDuration()) {
    return Error(sd_event_source_set_enabled(source_, SD_EVENT_OFF), kWhat);
  }
  // From now: the loop's own idea of it is when this turn began.
  const absl::Duration at =
      SteadyNow() - SteadyTime() + std::clamp(delay, absl::ZeroDuration(), absl::Hours(24 * 365));
  const int result =
      sd_event_source_set_time(source_, static_cast<uint64_t>(absl::ToInt64Microseconds(at)));
  if (result < 0) return Error(result, kWhat);
  return Error(sd_event_source_set_enabled(source_, SD_EVENT_ONESHOT), kWhat);
}

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  sd_event* event = nullptr;
  if (absl::Status status = Error(sd_event_new(&event), "cannot make an event loop");
      !status.ok()) {
    return status;
  }
  return std::unique_ptr<EventLoop>(new EventLoop(event));
}

EventLoop::~EventLoop() { sd_event_unref(event_); }

int EventLoop::fd() const { return sd_event_get_fd(event_); }

absl::Status EventLoop::Dispatch() {
  for (;;) {
    const int result = sd_event_run(event_, 0);
    if (result == 0 || result == -ESTALE) return absl::OkStatus();  // nothing ready, or Exit() ran
    if (result < 0) return Error(result, "the event loop failed");
    if (sd_event_get_state(event_) == SD_EVENT_FINISHED) return absl::OkStatus();
  }
}

absl::StatusOr<int> EventLoop::Run() {
  const int result = sd_event_loop(event_);
  if (result < 0) return Error(result, "the event loop failed");
  return result;
}

void EventLoop::Exit(int code) { sd_event_exit(event_, code); }

absl::StatusOr<std::unique_ptr<EventSource>> EventLoop::AddReadable(int fd,
                                                                    std::function<void()> handler) {
  std::unique_ptr<EventSource> source(new EventSource(std::move(handler)));
  const int result = sd_event_add_io(event_, &source->source_, fd, EPOLLIN,
                                     RunHandler<int, uint32_t>, &source->handler_);
  if (result < 0) return Error(result, absl::StrCat("cannot wait for descriptor ", fd));
  return source;
}

absl::StatusOr<std::unique_ptr<EventSource>> EventLoop::AddTimer(std::function<void()> handler) {
  std::unique_ptr<EventSource> source(new EventSource(std::move(handler)));
  const int result = sd_event_add_time(
      event_, &source->source_, CLOCK_MONOTONIC, std::numeric_limits<uint64_t>::max() - 1,
      kTimerAccuracyMicros, RunHandler<uint64_t>, &source->handler_);
  if (result < 0) return Error(result, "cannot make a timer");
  return source;
}

absl::StatusOr<std::unique_ptr<EventSource>> EventLoop::AddSignal(int signal,
                                                                  std::function<void()> handler) {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, signal);
  if (const int error = pthread_sigmask(SIG_BLOCK, &mask, nullptr); error != 0) {
    return Error(-error, "cannot block a signal");
  }
  std::unique_ptr<EventSource> source(new EventSource(std::move(handler)));
  const int result = sd_event_add_signal(event_, &source->source_, signal,
                                         RunHandler<const signalfd_siginfo*>, &source->handler_);
  if (result < 0) return Error(result, absl::StrCat("cannot wait for signal ", signal));
  return source;
}

absl::StatusOr<bool> EventLoop::EnableWatchdog() {
  const int result = sd_event_set_watchdog(event_, 1);
  if (result < 0) return Error(result, "cannot serve the service manager's watchdog");
  return result > 0;
}

}  // namespace kipt::agent
