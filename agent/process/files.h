// SPDX-License-Identifier: Apache-2.0
//
// Files: owning descriptors, reading files whole, listing directories, watching, and resolving the
// node's paths inside a container. No streams, because programs that other threads start would
// inherit their descriptors.
#ifndef KIPT_AGENT_PROCESS_FILES_H_
#define KIPT_AGENT_PROCESS_FILES_H_

#include <sys/inotify.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kipt::agent {

// "No such file or directory".
inline std::string ErrorText(int error) { return std::generic_category().message(error); }

// As absl::ErrnoToStatus: "reading PATH: ...".
absl::Status ReadFailure(int error, absl::string_view path);

// Owns a file descriptor, or none. Move-only.
class OwnedFd {
 public:
  OwnedFd() = default;
  // Negative, as open(2) returns on failure: none.
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept { std::swap(fd_, other.fd_); }
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
  // The caller owns it from now on.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Reads from the current offset of `fd`; blocks on a pipe. `name` appears in messages.
// ResourceExhausted: there are more than `most` bytes. Other errors are ReadFailure's.
absl::StatusOr<std::string> ReadToEnd(int fd, const std::string& name, size_t most);

// The same for a whole file; does not block on a FIFO. NotFound: there is no such file.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most = size_t{16} << 20);

// Whether proc(5) shows a network namespace's files in the directory of `path`. If not, a file that
// is missing there says nothing of the kernel.
bool ShowsProcNet(const std::string& path);

// Appends the sorted names in a directory. Returns 0, or the errno that made the list incomplete.
int ListDirectory(const std::string& path, std::vector<std::string>& names);

struct WalkedPath {
  // Opened with O_PATH; none after an error.
  OwnedFd file;
  int error = 0;  // errno
  // For an absolute path: the path, then the location and the target of each link in the place of
  // its last component. The last one is the file's name without links.
  std::vector<std::string> names;
};

// Called before `name` is looked up in `directory`. Returning false ends the walk.
using BeforeLookup = std::function<bool(const OwnedFd& directory, const std::string& name)>;

// Follows `path` as the kernel does (path_resolution(7)), with the directory `root` as "/", which
// no link leaves; a relative path begins in the current directory. A rename during the walk has no
// effect. Opens no file for reading, which could affect a device or block on a FIFO.
WalkedPath WalkPath(const std::string& root, const std::string& path,
                    const BeforeLookup& before = nullptr);

// Files under a root, by the node's paths, with or without a leading slash. Errors name them as
// this process sees them. NotFound: there is no such file.
class NodeFiles {
 public:
  explicit NodeFiles(std::string root) : root_(std::move(root)) {}

  // Those of `paths` that are absent here and may exist on the node, as this process sees them: a
  // pod's root is a directory or volume into which parts of the node are mounted, and they, or
  // what a link among them leads to, are in none of these. `mounts` is in the form of
  // proc_pid_mounts(5); if it cannot be read, each may.
  std::vector<std::string> Hidden(absl::Span<const absl::string_view> paths,
                                  const std::string& mounts = kMounts) const;
  static constexpr char kMounts[] = "/proc/thread-self/mounts";

  // NotFound: the root is no directory.
  absl::Status Check() const;

  // It is a link that leads to no file.
  bool IsDangling(const std::string& path) const;

  // "/host/etc/cni/net.d": `path` as this process sees it.
  std::string Shown(absl::string_view path) const;

  // The whole of a regular file of at most `most_bytes`. FailedPrecondition: it is no regular file.
  // ResourceExhausted: it is larger.
  absl::StatusOr<std::string> Read(const std::string& path, size_t most_bytes) const;

  // The names in a directory for which `is_wanted` holds, without those of directories.
  absl::StatusOr<std::set<std::string>> List(
      const std::string& path, const std::function<bool(absl::string_view)>& is_wanted) const;

 private:
  std::string root_;
};

// The name in a watched directory; empty for events about the watched file itself.
inline absl::string_view NameOf(const inotify_event& event) {
  return event.len == 0 ? "" : event.name;
}

// One inotify(7) instance. Move-only. Not safe for use by several threads at once.
class Inotify {
 public:
  // ResourceExhausted: no descriptors or memory, or too many instances of this user.
  static absl::StatusOr<Inotify> Create();

  // Readable when there are events.
  int fd() const { return fd_.get(); }

  // inotify_add_watch(2): returns the number of the watch, the same for a file that is watched
  // already. ResourceExhausted: too many watches of this user. Other errors as
  // absl::ErrnoToStatus.
  absl::StatusOr<int> Watch(const std::string& path, uint32_t mask);
  void GiveUp(int watch);

  // Passes queued events to `handle` without blocking, at most 1 MiB of them: a busy writer must
  // not keep the caller here. `wd` is Watch()'s number, possibly of a watch that was given up, and
  // -1 with IN_Q_OVERFLOW.
  absl::Status Take(absl::FunctionRef<void(const inotify_event&)> handle);

 private:
  explicit Inotify(OwnedFd fd) : fd_(std::move(fd)) {}
  OwnedFd fd_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_FILES_H_
