// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/node_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agent/process/read_file.h"

namespace kipt::agent {
namespace {

struct DirectoryCloser {
  void operator()(DIR* directory) const { closedir(directory); }
};

absl::Status Failure(int error, absl::string_view path) {
  if (error == EXDEV) {
    return absl::FailedPreconditionError(
        absl::StrCat("reading ", path, ": its links lead out of the host's root"));
  }
  return absl::ErrnoToStatus(error, absl::StrCat("reading ", path));
}

std::string Resolved(const OwnedFd& fd) {
  std::array<char, PATH_MAX> buffer{};
  const std::string link = absl::StrCat("/proc/self/fd/", fd.get());
  const ssize_t size = readlink(link.c_str(), buffer.data(), buffer.size());
  return size < 0 ? std::string() : std::string(buffer.data(), static_cast<size_t>(size));
}

// What was located, to be read.
OwnedFd OpenLocated(const OwnedFd& located, int flags) {
  return OwnedFd(
      open(absl::StrCat("/proc/self/fd/", located.get()).c_str(), O_RDONLY | O_CLOEXEC | flags));
}

}  // namespace

NodeFiles::NodeFiles(std::string root)
    : root_(std::move(root)), fd_(open(root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {}

absl::Status NodeFiles::Check() const {
  return fd_.valid() ? absl::OkStatus() : Failure(ENOENT, root_);
}

std::string NodeFiles::Shown(absl::string_view path) const {
  return absl::StrCat(absl::StripSuffix(root_, "/"), "/", absl::StripPrefix(path, "/"));
}

// Without reading it: opening a device or a FIFO may do something, or wait. Negative: errno.
OwnedFd NodeFiles::Locate(const std::string& path) const {
  open_how how = {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  OwnedFd found(static_cast<int>(syscall(SYS_openat2, fd_.get(), path.c_str(), &how, sizeof how)));
  // Before Linux 5.6, or where a filter does not know the call.
  if (!found.valid() && (errno == ENOSYS || errno == EPERM)) return LocateByPath(path);
  return found;
}

OwnedFd NodeFiles::LocateByPath(const std::string& path) const {
  OwnedFd found(open(Shown(path).c_str(), O_PATH | O_CLOEXEC));
  if (root_ == "/") return found;
  // Where links lead out of the root, it is another file than the node's, or none although the
  // node has it.
  const bool is_the_nodes = found.valid() ? absl::StartsWith(Resolved(found), Resolved(fd_) + "/")
                                          : errno != ENOENT || !HasLink(path);
  if (is_the_nodes) return found;
  errno = EXDEV;
  return OwnedFd();
}

// Keeps errno where there is none.
bool NodeFiles::HasLink(const std::string& path) const {
  const int error = errno;
  for (size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    char target = 0;
    if (readlink(Shown(path.substr(0, end)).c_str(), &target, sizeof target) > 0) return true;
  }
  errno = error;
  return false;
}

absl::StatusOr<std::string> NodeFiles::Read(const std::string& path, size_t most_bytes) const {
  const std::string shown = Shown(path);
  const OwnedFd located = Locate(path);
  struct stat status = {};
  if (!located.valid() || fstat(located.get(), &status) != 0) return Failure(errno, shown);
  if (!S_ISREG(status.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(shown, " is no regular file"));
  }
  const OwnedFd file = OpenLocated(located, O_NONBLOCK);
  if (!file.valid()) return Failure(errno, shown);
  absl::StatusOr<std::string> text = ReadToEnd(file.get(), shown, most_bytes);
  if (absl::IsResourceExhausted(text.status())) {
    return absl::ResourceExhaustedError(
        absl::StrCat(shown, " is larger than ", most_bytes >> 20, " MiB"));
  }
  return text;
}

absl::StatusOr<std::set<std::string>> NodeFiles::List(
    const std::string& path, const std::function<bool(absl::string_view)>& is_wanted) const {
  const OwnedFd located = Locate(path);
  if (!located.valid()) return Failure(errno, Shown(path));
  OwnedFd fd = OpenLocated(located, O_DIRECTORY);
  if (!fd.valid()) return Failure(errno, Shown(path));
  const std::unique_ptr<DIR, DirectoryCloser> directory(fdopendir(fd.get()));
  if (directory == nullptr) return Failure(errno, Shown(path));
  fd.Release();
  std::set<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    if (entry->d_type != DT_DIR && is_wanted(entry->d_name)) names.insert(entry->d_name);
  }
  if (errno != 0) return Failure(errno, Shown(path));
  return names;
}

}  // namespace kipt::agent
