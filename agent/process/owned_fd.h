// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/owned_fd.h
#ifndef KIPT_AGENT_PROCESS_OWNED_FD_H_
#define KIPT_AGENT_PROCESS_OWNED_FD_H_

#include <unistd.h>

#include <utility>

namespace kipt::agent {

// The one owner of a file descriptor, or of none. Move-only.
class OwnedFd {
 public:
  OwnedFd() = default;
  // Negative: none, as open(2) answers where it fails.
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  void Close() { *this = OwnedFd(); }
  // Gives up ownership, to whoever closes it from now on.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_OWNED_FD_H_
