// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/xtables_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

namespace kipt::agent {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(1);
constexpr absl::Duration kLongestPause = absl::Milliseconds(10);

absl::Status NotAFile(const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat(path,
                   " is not a file, so no program can take the lock of iptables-legacy: remove it. "
                   "In a container, remove it on the host, and give the hostPath volume the type "
                   "FileOrCreate; a volume without a type makes a directory"));
}

absl::Status OpenFailure(const std::string& path, int error_number) {
  const std::string what = absl::StrCat("cannot open the lock of iptables-legacy, ", path, ": ",
                                        ErrorText(error_number));
  switch (error_number) {
    case EISDIR:
      return NotAFile(path);
    case EROFS:
      return absl::FailedPreconditionError(absl::StrCat(
          what,
          "; the file is missing and cannot be made here: mount the host's file here, as the "
          "kube-proxy DaemonSet does (hostPath of type FileOrCreate)"));
    case ENOENT:
    case ENOTDIR:
      return absl::FailedPreconditionError(absl::StrCat(what, "; its directory is missing"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          absl::StrCat(what, "; the file belongs to root with mode 0600: run as uid 0"));
    default:
      return absl::ErrnoToStatus(error_number, what);
  }
}

// Whether the file at `path` is still the one that is open as `fd`: if it was removed, other
// programs lock a new one.
bool IsStillThere(const std::string& path, int fd) {
  struct stat opened = {};
  struct stat current = {};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &current) == 0 &&
         opened.st_dev == current.st_dev && opened.st_ino == current.st_ino;
}

absl::StatusOr<OwnedFd> OpenLock(const std::string& path) {
  // O_NONBLOCK: a FIFO in its place must not stop us for ever.
  OwnedFd fd(open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600));
  if (!fd.valid()) return OpenFailure(path, errno);
  struct stat status = {};
  if (fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return NotAFile(path);
  return fd;
}

std::string CommandName(pid_t pid) {
  const absl::StatusOr<std::string> name = ReadFile(absl::StrCat("/proc/", pid, "/comm"));
  if (!name.ok()) return "a process that cannot be seen";
  return std::string(absl::StripSuffix(*name, "\n"));
}

}  // namespace

absl::Duration Jittered(absl::Duration mean) {
  thread_local std::minstd_rand random{std::random_device()()};
  return mean * std::uniform_real_distribution<double>(0.5, 1.5)(random);
}

std::string DescribeXtablesLockHolder(const std::string& path) {
  constexpr char kUnseen[] = "no process that can be seen from here holds it";
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return kUnseen;
  // As the kernel prints it: fs/locks.c, lock_get_status().
  const std::string file =
      absl::StrFormat("%02x:%02x:%d", major(status.st_dev), minor(status.st_dev), status.st_ino);
  const absl::StatusOr<std::string> locks = ReadFile("/proc/locks");
  std::vector<std::string> holders;
  for (const absl::string_view line : absl::StrSplit(locks.value_or(""), '\n')) {
    // "1: FLOCK  ADVISORY  WRITE 4711 00:1a:53 0 EOF"; one that waits has "->" after the number.
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int pid = 0;
    if (words.size() > 5 && words[1] == "FLOCK" && words[5] == file &&
        absl::SimpleAtoi(words[4], &pid)) {
      holders.push_back(absl::StrCat("process ", pid, " (", CommandName(pid), ")"));
    }
  }
  if (holders.empty()) return kUnseen;
  return absl::StrCat("held by ", absl::StrJoin(holders, ", "));
}

XtablesLock::~XtablesLock() {
  if (!valid()) return;
  // Others notice a use of the lock by a close of its file (XtablesLockWatch), which has to come
  // before another one gets the lock.
  std::array<char, 40> path;
  absl::SNPrintF(path.data(), path.size(), "/proc/thread-self/fd/%d", locked_.get());
  OwnedFd(open(path.data(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)).Close();
  flock(locked_.get(), LOCK_UN);
}

absl::StatusOr<XtablesLock> AcquireXtablesLock(const std::string& path, absl::Duration wait) {
  const auto start = std::chrono::steady_clock::now();
  absl::Duration pause = kFirstPause;
  absl::StatusOr<OwnedFd> fd = OpenLock(path);
  while (fd.ok()) {
    if (flock(fd->get(), LOCK_EX | LOCK_NB) == 0) {
      if (IsStillThere(path, fd->get())) return XtablesLock(*std::move(fd));
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
      return absl::ErrnoToStatus(errno, absl::StrCat("flock ", path));
    }
    const absl::Duration left = wait - absl::FromChrono(std::chrono::steady_clock::now() - start);
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("the lock of iptables-legacy, ", path, ", was not free for ",
                       absl::FormatDuration(wait), ": ", DescribeXtablesLockHolder(path)));
    }
    absl::SleepFor(std::min(Jittered(pause), left));
    pause = std::min(pause * 2, kLongestPause);
    if (!IsStillThere(path, fd->get())) fd = OpenLock(path);
  }
  return fd.status();
}

}  // namespace kipt::agent
