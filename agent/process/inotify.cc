// SPDX-License-Identifier: Apache-2.0
#include "agent/process/inotify.h"

#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"

namespace kipt::agent {

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

absl::Status Inotify::Take(absl::FunctionRef<void(const inotify_event&)> handle) {
  // 1 MiB in all; fs.inotify.max_queued_events is 16384 unless somebody raised it.
  constexpr int kMostReads = 64;
  alignas(inotify_event) std::array<char, size_t{16} << 10> buffer;
  for (int reads = 0; reads < kMostReads; ++reads) {
    const ssize_t count = read(fd_.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) return absl::ErrnoToStatus(errno, "reading inotify events");
    // The kernel hands over whole events only, each padded to the alignment of the next.
    for (const char* at = buffer.data(); at < buffer.data() + count;) {
      const auto& event = *reinterpret_cast<const inotify_event*>(at);
      handle(event);
      at += sizeof event + event.len;
    }
  }
  return absl::OkStatus();
}

}  // namespace kipt::agent
