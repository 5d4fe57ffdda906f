// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <exception>
#include <limits>
#include <utility>

#include "absl/strings/string_view.h"
#include "agent/loop/clock.h"

namespace kipt::agent {
namespace {

// A round is never cut short, and the host program has other things to do.
constexpr absl::Duration kLongestDispatch = absl::Milliseconds(10);

absl::Status Error(int result, absl::string_view what) {
  // Success needs no memory: timers are set where that ran out.
  return result >= 0 ? absl::OkStatus() : absl::ErrnoToStatus(-result, what);
}

absl::Status Failed(int result) {
  return absl::InternalError(Error(result, "the event loop failed").message());
}

template <typename... Event>
int RunHandler(sd_event_source* /*source*/, Event... /*event*/, void* data) {
  const auto* handler = static_cast<EventHandler*>(data);
  // Copies: the handler may destroy the source that holds it.
  const auto busy = handler->busy;
  const auto thrown = handler->thrown;
  *busy = true;
  // A host program's may throw, and libsystemd's frames are in between.
  try {
    const std::function<void()> run = handler->run;
    run();
  } catch (...) {
    *thrown = std::current_exception();
  }
  *busy = false;
  return 0;
}

}  // namespace

EventSource::~EventSource() { sd_event_source_disable_unref(source_); }

absl::Status EventSource::Enable(bool enabled) {
  return Error(sd_event_source_set_enabled(source_, enabled ? SD_EVENT_ON : SD_EVENT_OFF),
               "cannot change what the event loop waits for");
}

absl::Status EventSource::FireAfter(absl::Duration delay) {
  // From now: the loop's own time is that of the beginning of its turn.
  const absl::Duration at = SteadyNow() - SteadyTime() + std::max(delay, absl::ZeroDuration());
  int result =
      sd_event_source_set_time(source_, static_cast<uint64_t>(absl::ToInt64Microseconds(at)));
  if (result >= 0) result = sd_event_source_set_enabled(source_, SD_EVENT_ONESHOT);
  return Error(result, "cannot set a timer");
}

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  sd_event* event = nullptr;
  const int result = sd_event_new(&event);
  if (result < 0) return Error(result, "cannot make an event loop");
  std::unique_ptr<EventLoop> loop(new EventLoop(event));
  loop->more_fd_ = OwnedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!loop->more_fd_.valid()) return Error(-errno, "cannot make an event loop");
  SourceOrError more = loop->AddReadable(loop->more_fd_.get(), [fd = loop->more_fd_.get()] {
    eventfd_t ignored = 0;
    eventfd_read(fd, &ignored);
  });
  if (!more.ok()) return more.status();
  loop->more_ = *std::move(more);
  return loop;
}

EventLoop::~EventLoop() {
  watchdog_.reset();
  more_.reset();
  sd_event_unref(event_);
}

int EventLoop::fd() const { return sd_event_get_fd(event_); }

int EventLoop::Turn(uint64_t timeout) {
  const int result = sd_event_run(event_, timeout);
  if (*thrown_ == nullptr) return result;
  // The next turn arms the timers that were set.
  DispatchAgain();
  std::rethrow_exception(std::exchange(*thrown_, nullptr));
}

absl::Status EventLoop::Dispatch() {
  const SteadyTime end = SteadyNow() + kLongestDispatch;
  do {
    const int result = Turn(0);
    if (result == -ESTALE || result == 0) return absl::OkStatus();  // Exit() ran, nothing is ready
    if (result < 0) return Failed(result);
  } while (SteadyNow() < end);
  // Timers that are due, or were set in the last turn, do not make fd() readable.
  DispatchAgain();
  return absl::OkStatus();
}

void EventLoop::DispatchAgain() { eventfd_write(more_fd_.get(), 1); }

absl::StatusOr<int> EventLoop::Run() {
  while (sd_event_get_state(event_) != SD_EVENT_FINISHED) {
    const int result = Turn(std::numeric_limits<uint64_t>::max());
    if (result < 0) return Failed(result);
  }
  int code = 0;
  sd_event_get_exit_code(event_, &code);
  return code;
}

void EventLoop::Exit(int code) { sd_event_exit(event_, code); }

EventLoop::SourceOrError EventLoop::AddReadable(int fd, std::function<void()> handler) {
  std::unique_ptr<EventSource> source(new EventSource(Handler(std::move(handler))));
  const int result = sd_event_add_io(event_, &source->source_, fd, EPOLLIN,
                                     RunHandler<int, uint32_t>, &source->handler_);
  if (result < 0) return Error(result, absl::StrCat("cannot wait for descriptor ", fd));
  return source;
}

EventLoop::SourceOrError EventLoop::AddTimer(std::function<void()> handler,
                                             absl::Duration tolerance) {
  std::unique_ptr<EventSource> source(new EventSource(Handler(std::move(handler))));
  const int result = sd_event_add_time(event_, &source->source_, CLOCK_MONOTONIC,
                                       std::numeric_limits<int64_t>::max(),
                                       static_cast<uint64_t>(absl::ToInt64Microseconds(tolerance)),
                                       RunHandler<uint64_t>, &source->handler_);
  if (result < 0) return Error(result, "cannot make a timer");
  return source;
}

EventLoop::SourceOrError EventLoop::AddSignal(int signal, std::function<void()> handler) {
  sigset_t mask{};
  sigaddset(&mask, signal);
  pthread_sigmask(SIG_BLOCK, &mask, nullptr);
  std::unique_ptr<EventSource> source(new EventSource(Handler(std::move(handler))));
  const int result = sd_event_add_signal(event_, &source->source_, signal,
                                         RunHandler<const signalfd_siginfo*>, &source->handler_);
  if (result < 0) return Error(result, absl::StrCat("cannot wait for signal ", signal));
  return source;
}

absl::StatusOr<bool> EventLoop::EnableWatchdog(std::function<void()> feed) {
  uint64_t microseconds = 0;
  const int result = sd_watchdog_enabled(/*unset_environment=*/0, &microseconds);
  if (result < 0) return Error(result, "cannot serve the service manager's watchdog");
  if (result == 0) return false;
  // sd_event's own would wait for a service manager that does not read.
  const absl::Duration period = absl::Microseconds(microseconds) / 3;
  SourceOrError timer = AddTimer(
      [this, period, feed = std::move(feed)] {
        feed();
        watchdog_->FireAfter(period).IgnoreError();
      },
      /*tolerance=*/period);
  if (!timer.ok()) return timer.status();
  watchdog_ = *std::move(timer);
  absl::Status armed = watchdog_->FireAfter(absl::ZeroDuration());
  if (!armed.ok()) return armed;
  return true;
}

}  // namespace kipt::agent
