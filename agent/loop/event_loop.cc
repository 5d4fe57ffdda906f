// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace kipt::agent {
namespace {

// A round is never cut short, and the host program has other things to do.
constexpr absl::Duration kLongestDispatch = absl::Milliseconds(10);

absl::Status Error(absl::string_view what) { return absl::ErrnoToStatus(errno, what); }

}  // namespace

EventSource::~EventSource() {
  if (enabled_ && !loop_.IsForked()) Enable(false).IgnoreError();
}

absl::Status EventSource::Enable(bool enabled) {
  if (enabled == enabled_) return absl::OkStatus();
  epoll_event event = {.events = EPOLLIN, .data = {.ptr = this}};
  // Removing fails only where the descriptor was closed, which removes it, too.
  if (epoll_ctl(loop_.fd(), enabled ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd_, &event) != 0 && enabled) {
    return Error(absl::StrCat("cannot wait for descriptor ", fd_));
  }
  enabled_ = enabled;
  return absl::OkStatus();
}

Timer::~Timer() {
  std::erase(loop_.timers_, this);
  loop_.Arm();
}

void Timer::FireAfter(absl::Duration delay) {
  delay = std::max(delay, absl::ZeroDuration());
  due_ = SteadyNow() + delay;
  latest_ = due_ + std::min(delay, tolerance_);
  loop_.Arm();
}

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  std::unique_ptr<EventLoop> loop(new EventLoop);
  const auto opened = [](OwnedFd& fd, int result) {
    fd = OwnedFd(result);
    return fd.valid();
  };
  if (!opened(loop->epoll_, epoll_create1(EPOLL_CLOEXEC)) ||
      !opened(loop->timer_fd_, timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) ||
      !opened(loop->more_fd_, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {
    return Error("cannot make an event loop");
  }
  // Null: timer_fd_.
  epoll_event event = {.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (epoll_ctl(loop->fd(), EPOLL_CTL_ADD, loop->timer_fd_.get(), &event) != 0) {
    return Error("cannot make an event loop");
  }
  SourceOrError more = loop->AddReadable(loop->more_fd_.get(), [fd = loop->more_fd_.get()] {
    eventfd_t ignored = 0;
    eventfd_read(fd, &ignored);
  });
  if (!more.ok()) return more.status();
  loop->more_ = *std::move(more);
  return loop;
}

void EventLoop::Arm() {
  SteadyTime latest = SteadyTime::InfiniteFuture();
  for (const Timer* timer : timers_) latest = std::min(latest, timer->latest_);
  if (IsForked() || std::exchange(armed_, latest) == latest) return;
  itimerspec at = {};  // never
  if (latest != SteadyTime::InfiniteFuture()) {
    at.it_value = absl::ToTimespec(latest - SteadyTime());
  }
  timerfd_settime(timer_fd_.get(), TFD_TIMER_ABSTIME, &at, nullptr);
}

std::function<void()> EventLoop::TakeDue() {
  std::function<void()> handler;
  const auto first = std::min_element(
      timers_.begin(), timers_.end(),
      [](const Timer* one, const Timer* other) { return one->due_ < other->due_; });
  if (first != timers_.end() && (*first)->due_ <= SteadyNow()) {
    handler = (*first)->handler_;
    (*first)->due_ = (*first)->latest_ = SteadyTime::InfiniteFuture();
  }
  // What has fired is armed anew, also for the moment at which it fired.
  armed_ = SteadyTime::InfinitePast();
  Arm();
  return handler;
}

absl::StatusOr<bool> EventLoop::Turn(int milliseconds) {
  if (IsForked()) return absl::InternalError("the event loop failed: it is another process's");
  // One at a time: a handler may destroy other sources.
  epoll_event event = {};
  const int ready = epoll_wait(epoll_.get(), &event, /*maxevents=*/1, milliseconds);
  if (ready < 0 && errno == EINTR) return false;
  if (ready < 0) return absl::InternalError(Error("the event loop failed").message());
  // The kernel reports a timer a moment after it is due.
  if (ready == 0 && armed_ > SteadyNow()) return false;
  // Copies: the handler may destroy the source that holds it.
  const auto* source = static_cast<const EventSource*>(event.data.ptr);
  const std::function<void()> handler = source != nullptr ? source->handler_ : TakeDue();
  if (handler == nullptr) return true;
  const absl::Cleanup ended = [busy = busy_] { *busy = false; };
  *busy_ = true;
  handler();
  return true;
}

absl::Status EventLoop::Dispatch() {
  const SteadyTime end = SteadyNow() + kLongestDispatch;
  while (!exit_code_) {
    const absl::StatusOr<bool> ran = Turn(0);
    if (!ran.ok() || !*ran) return ran.status();
    if (SteadyNow() >= end) {
      DispatchAgain();
      break;
    }
  }
  return absl::OkStatus();
}

void EventLoop::DispatchAgain() { eventfd_write(more_fd_.get(), 1); }

absl::StatusOr<int> EventLoop::Run() {
  while (!exit_code_) {
    const absl::StatusOr<bool> ran = Turn(-1);
    if (!ran.ok()) return ran.status();
  }
  return *exit_code_;
}

EventLoop::SourceOrError EventLoop::AddReadable(int fd, std::function<void()> handler) {
  std::unique_ptr<EventSource> source(new EventSource(*this, fd, std::move(handler)));
  if (absl::Status status = source->Enable(true); !status.ok()) return status;
  return source;
}

std::unique_ptr<Timer> EventLoop::AddTimer(std::function<void()> handler,
                                           absl::Duration tolerance) {
  std::unique_ptr<Timer> timer(new Timer(*this, std::move(handler), tolerance));
  timers_.push_back(timer.get());
  return timer;
}

EventLoop::SourceOrError EventLoop::AddSignal(int signal, std::function<void()> handler) {
  const auto failed = [signal] { return Error(absl::StrCat("cannot wait for signal ", signal)); };
  sigset_t mask{};
  if (sigaddset(&mask, signal) != 0) return failed();
  pthread_sigmask(SIG_BLOCK, &mask, nullptr);
  OwnedFd fd(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return failed();
  SourceOrError source = AddReadable(fd.get(), [fd = fd.get(), handler = std::move(handler)] {
    signalfd_siginfo ignored = {};
    // What cannot be read has come all the same.
    if (read(fd, &ignored, sizeof(ignored)) > 0 || errno != EAGAIN) handler();
  });
  if (source.ok()) (*source)->owned_ = std::move(fd);
  return source;
}

absl::StatusOr<bool> EventLoop::EnableWatchdog(std::function<void()> feed) {
  // sd_watchdog_enabled(3).
  const char* const process = std::getenv("WATCHDOG_PID");
  const char* const text = std::getenv("WATCHDOG_USEC");
  if (text == nullptr || (process != nullptr && absl::StrCat(getpid()) != process)) return false;
  int64_t microseconds = 0;
  if (!absl::SimpleAtoi(text, &microseconds) || microseconds <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot serve the service manager's watchdog: WATCHDOG_USEC is ", text));
  }
  const absl::Duration period = absl::Microseconds(microseconds) / 3;
  watchdog_ = AddTimer(
      [this, period, feed = std::move(feed)] {
        feed();
        watchdog_->FireAfter(period);
      },
      /*tolerance=*/period);
  watchdog_->FireAfter(absl::ZeroDuration());
  return true;
}

}  // namespace kipt::agent
