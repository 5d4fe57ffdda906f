// SPDX-License-Identifier: Apache-2.0
#include "host_loop.h"

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <utility>

namespace node_agent {

absl::StatusOr<std::unique_ptr<HostLoop>> HostLoop::Create() {
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) return absl::ErrnoToStatus(errno, "epoll_create1");
  return std::unique_ptr<HostLoop>(new HostLoop(epoll));
}

HostLoop::~HostLoop() {
  for (const int fd : owned_) close(fd);
  close(epoll_);
}

absl::Status HostLoop::WatchReadable(int fd, std::function<void()> handler) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) < 0) {
    return absl::ErrnoToStatus(errno, "epoll_ctl");
  }
  handlers_[fd] = std::move(handler);
  return absl::OkStatus();
}

absl::Status HostLoop::Own(int fd, std::function<void()> handler) {
  if (fd < 0) return absl::ErrnoToStatus(errno, "timerfd_create or signalfd");
  owned_.push_back(fd);
  return WatchReadable(fd, std::move(handler));
}

absl::Status HostLoop::Every(absl::Duration period, std::function<void()> handler) {
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  const absl::Status status = Own(timer, [timer, handler = std::move(handler)] {
    uint64_t expirations = 0;
    if (read(timer, &expirations, sizeof(expirations)) == sizeof(expirations)) handler();
  });
  if (!status.ok()) return status;
  const itimerspec when = {.it_interval = absl::ToTimespec(period),
                           .it_value = absl::ToTimespec(period)};
  if (timerfd_settime(timer, 0, &when, nullptr) < 0) {
    return absl::ErrnoToStatus(errno, "timerfd_settime");
  }
  return absl::OkStatus();
}

absl::Status HostLoop::OnSignals(absl::Span<const int> signals, std::function<void(int)> handler) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  if (const int error = pthread_sigmask(SIG_BLOCK, &set, nullptr); error != 0) {
    return absl::ErrnoToStatus(error, "pthread_sigmask");
  }
  const int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  return Own(fd, [fd, handler = std::move(handler)] {
    signalfd_siginfo info = {};
    while (read(fd, &info, sizeof(info)) == sizeof(info)) {
      handler(static_cast<int>(info.ssi_signo));
    }
  });
}

absl::Status HostLoop::Run() {
  while (!stopped_) {
    epoll_event event = {};
    const int ready = epoll_wait(epoll_, &event, 1, -1);
    if (ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "epoll_wait");
    if (ready > 0) handlers_.at(event.data.fd)();
  }
  return absl::OkStatus();
}

}  // namespace node_agent
