// SPDX-License-Identifier: Apache-2.0
#include "tests/support/netns.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kipt::testing {
namespace {

// Not /proc/self/ns/net: that is the main thread's.
constexpr char kThreadNetns[] = "/proc/thread-self/ns/net";

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status << "\n";
  std::abort();
}

Netns MustHave(absl::StatusOr<Netns> netns) {
  Must(netns.status());
  return *std::move(netns);
}

absl::Status BringLoopbackUp() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  ifreq request = {};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP;
  const int refused = ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? errno : 0;
  close(fd);
  if (refused != 0) return absl::ErrnoToStatus(refused, "bringing up lo");
  return absl::OkStatus();
}

}  // namespace

absl::Status Netns::MoveToNew() {
  if (unshare(CLONE_NEWNET) < 0) {
    return absl::ErrnoToStatus(
        errno,
        "unshare(CLONE_NEWNET): this needs root (CAP_SYS_ADMIN), to get a network namespace of its "
        "own");
  }
  return BringLoopbackUp();
}

absl::StatusOr<Netns> Netns::Current() {
  const int fd = open(kThreadNetns, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("open ", kThreadNetns));
  return Netns(fd);
}

absl::StatusOr<Netns> Netns::Create() {
  absl::StatusOr<Netns> back = Current();
  if (!back.ok()) return back;
  absl::Status status = MoveToNew();
  absl::StatusOr<Netns> fresh = Current();
  status.Update(back->Enter());
  if (!status.ok()) return status;
  return fresh;
}

Netns::Netns(Netns&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Netns& Netns::operator=(Netns&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Netns::~Netns() {
  if (fd_ >= 0) close(fd_);
}

std::string Netns::Path() const { return absl::StrCat("/proc/", getpid(), "/fd/", fd_); }

absl::Status Netns::Enter() const {
  if (setns(fd_, CLONE_NEWNET) < 0) return absl::ErrnoToStatus(errno, "setns");
  return absl::OkStatus();
}

InNetns::InNetns(const Netns& netns) : back_(MustHave(Netns::Current())) { Must(netns.Enter()); }

InNetns::~InNetns() { Must(back_.Enter()); }

}  // namespace kipt::testing
