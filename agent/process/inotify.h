// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/inotify.h
//
// One inotify(7) instance. It tells what programs of this machine do to files of this machine; of
// what is mounted over a watched path it tells nothing.
#ifndef KIPT_AGENT_PROCESS_INOTIFY_H_
#define KIPT_AGENT_PROCESS_INOTIFY_H_

#include <sys/inotify.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/process/files.h"

namespace kipt::agent {

// The name in a watched directory; empty where the watched thing itself is meant.
inline absl::string_view NameOf(const inotify_event& event) {
  return event.len == 0 ? "" : event.name;
}

// Move-only. Not safe for use by several threads at once.
class Inotify {
 public:
  // ResourceExhausted: no descriptors or memory, or too many instances of this user.
  static absl::StatusOr<Inotify> Create();

  // Readable when there are events.
  int fd() const { return fd_.get(); }

  // Watches what stands at `path` now for `mask`, and returns the number of the watch. What is
  // watched already keeps its number, and `mask` replaces its mask (or, with IN_MASK_ADD, widens
  // it).
  //
  // NotFound: nothing stands there. PermissionDenied: it may not be read. ResourceExhausted: too
  // many watches of this user. FailedPrecondition: a component of the path, or the last one with
  // IN_ONLYDIR, is no directory.
  absl::StatusOr<int> Watch(const std::string& path, uint32_t mask);
  void GiveUp(int watch);

  // Hands over what is queued, without blocking, at most about as much as the kernel queues by
  // default: whoever makes events faster than they are read does not keep us here. What is left
  // keeps fd() readable. `wd` is as Watch() returned it, and -1 with IN_Q_OVERFLOW; one that was
  // given up may still be named.
  absl::Status Take(absl::FunctionRef<void(const inotify_event&)> handle);

 private:
  explicit Inotify(OwnedFd fd) : fd_(std::move(fd)) {}
  OwnedFd fd_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_INOTIFY_H_
