// SPDX-License-Identifier: Apache-2.0
#include "agent/process/inotify.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kipt::agent {
namespace {

// 1 MiB in all; fs.inotify.max_queued_events is 16384 unless somebody raised it.
constexpr size_t kBufferSize = size_t{16} << 10;
constexpr int kMostReads = 64;

}  // namespace

absl::StatusOr<Inotify> Inotify::Create() {
  OwnedFd fd(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (fd.valid()) return Inotify(std::move(fd));
  const int error = errno;
  return absl::ErrnoToStatus(
      error, error == EMFILE ? "inotify_init1: too many descriptors of this process, or instances "
                               "of this user (raise fs.inotify.max_user_instances)"
                             : "inotify_init1");
}

absl::StatusOr<int> Inotify::Watch(const std::string& path, uint32_t mask) {
  const int watch = inotify_add_watch(fd_.get(), path.c_str(), mask);
  if (watch >= 0) return watch;
  const int error = errno;
  return absl::ErrnoToStatus(
      error,
      absl::StrCat("watching ", path,
                   error == ENOSPC
                       ? ": too many watches of this user (raise fs.inotify.max_user_watches)"
                       : ""));
}

void Inotify::GiveUp(int watch) { inotify_rm_watch(fd_.get(), watch); }

absl::Status Inotify::Take(const std::function<void(const InotifyEvent&)>& handle) {
  std::array<char, kBufferSize> buffer;
  for (int reads = 0; reads < kMostReads; ++reads) {
    const ssize_t count = read(fd_.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) return absl::ErrnoToStatus(errno, "reading inotify events");
    // The kernel hands over whole events only, and the name is padded with NUL.
    const absl::string_view events(buffer.data(), static_cast<size_t>(count));
    inotify_event event = {};
    for (size_t at = 0; at + sizeof event <= events.size(); at += sizeof event + event.len) {
      std::memcpy(&event, events.data() + at, sizeof event);
      absl::string_view name = events.substr(at + sizeof event, event.len);
      handle({.watch = event.wd, .mask = event.mask, .name = name.substr(0, name.find('\0'))});
    }
  }
  return absl::OkStatus();
}

}  // namespace kipt::agent
