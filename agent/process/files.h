// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/files.h
//
// Files: their descriptors, reading them whole, listing directories, watching them, and files as
// the node sees them. There an absolute link begins at the node's root, which is a directory of
// this process where it runs in a container, and no link leads out of it.
//
// Streams are not used: they would leak their descriptors into programs that other threads start.
#ifndef KIPT_AGENT_PROCESS_FILES_H_
#define KIPT_AGENT_PROCESS_FILES_H_

#include <sys/inotify.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

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

// Reads from the current offset of `fd`, and blocks if it is a pipe. `name` appears in messages.
// Errors: ResourceExhausted if there are more than `most` bytes; otherwise as absl::ErrnoToStatus.
absl::StatusOr<std::string> ReadToEnd(int fd, const std::string& name, size_t most);

// Never blocks on a FIFO without a writer, which reads as empty. Errors as ReadToEnd; NotFound if
// the file does not exist.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most = size_t{16} << 20);

// Appends the names in a directory, sorted, without "." and "..". Returns 0, or the errno for which
// they are not all.
int ListDirectory(const std::string& path, std::vector<std::string>& names);

struct WalkedPath {
  // What the path leads to, opened with O_PATH; none where there is an error.
  OwnedFd file;
  // errno; ENOENT where something on the way is missing.
  int error = 0;
  // For an absolute path: the path itself, what the links in the place of its last component name,
  // and where each of them is. The last one is the file's name without links.
  std::vector<std::string> names;
};

// Called before `name` is looked up in `directory`; `last`: only a link can lead further. False
// ends the walk.
using BeforeLookup =
    std::function<bool(const OwnedFd& directory, const std::string& name, bool last)>;

// Follows `path` step by step, as the kernel does (path_resolution(7)), with the directory `root`
// as "/". A relative path begins in the current directory. Directories are held by descriptor, so
// that a rename meanwhile leads nowhere else. Files are not opened to be read: for a device or a
// FIFO that may do something, or wait.
WalkedPath WalkPath(const std::string& root, const std::string& path,
                    const BeforeLookup& before = nullptr);

// Paths are the node's, with or without a slash in front; errors name them as this process sees
// them. NotFound: there is no such file.
class NodeFiles {
 public:
  explicit NodeFiles(std::string root) : root_(std::move(root)) {}

  // Whether there is such a root.
  absl::Status Check() const;

  // "/host/etc/cni/net.d": how this process, and messages, name `path`.
  std::string Shown(absl::string_view path) const;

  // The whole of a regular file of at most `most_bytes`. FailedPrecondition: it is no regular file.
  // ResourceExhausted: it is larger.
  absl::StatusOr<std::string> Read(const std::string& path, size_t most_bytes) const;

  // The names in a directory for which `is_wanted` holds, directories left out. A link to a
  // directory is none.
  absl::StatusOr<std::set<std::string>> List(
      const std::string& path, const std::function<bool(absl::string_view)>& is_wanted) const;

 private:
  std::string root_;
};

// The name in a watched directory; empty where the watched thing itself is meant.
inline absl::string_view NameOf(const inotify_event& event) {
  return event.len == 0 ? "" : event.name;
}

// One inotify(7) instance. It tells what programs of this machine do to files of this machine; of
// what is mounted over a watched path it tells nothing.
//
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

#endif  // KIPT_AGENT_PROCESS_FILES_H_
