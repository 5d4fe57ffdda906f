// SPDX-License-Identifier: Apache-2.0
#include "agent/process/network_namespaces.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "agent/process/read_file.h"

namespace kipt::agent {
namespace {

absl::Status NamespaceError(int error, absl::string_view step, const std::string& path) {
  const std::string what = absl::StrCat("--netns=", path, ": ", step, ": ");
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(absl::StrCat(
          what, "no such file; give the path of a namespace, such as /run/netns/NAME"));
    case EPERM:
    case EACCES:
      return absl::PermissionDeniedError(
          absl::StrCat(what, "not permitted; entering a namespace needs CAP_SYS_ADMIN"));
    case EINVAL:
      return absl::InvalidArgumentError(absl::StrCat(
          what, "not a network namespace; give the path of one, such as /run/netns/NAME"));
    default:
      return absl::ErrnoToStatus(error, what);
  }
}

absl::StatusOr<OwnedFd> OpenNamespace(const std::string& path) {
  OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return NamespaceError(errno, "open", path);
  return fd;
}

absl::Status Enter(const OwnedFd& namespace_fd, const std::string& path) {
  if (setns(namespace_fd.get(), CLONE_NEWNET) == 0) return absl::OkStatus();
  return NamespaceError(errno, "setns", path);
}

// Not /proc/self: that is the main thread's.
constexpr char kThreadNetns[] = "/proc/thread-self/ns/net";

// A thread starts with the signal mask of the one that starts it.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

std::string ErrorText(int error) { return std::generic_category().message(error); }

// Opening a namespace does nothing; opening what only stands in its place might wait.
std::optional<uint64_t> NamedInode(const std::string& path, int& error) {
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  error = fd.valid() && fstat(fd.get(), &status) == 0 ? 0 : errno;
  if (error != 0) return std::nullopt;
  if (ioctl(fd.get(), NS_GET_NSTYPE) == CLONE_NEWNET) return status.st_ino;
  error = EINVAL;
  return std::nullopt;
}

class Lister {
 public:
  explicit Lister(const NetworkNamespacePaths& paths) : paths_(paths) {}

  NetworkNamespaces List() && {
    ListOwn();
    ListNames();
    ListProcesses();
    return std::move(result_);
  }

 private:
  // Says whether it is a new one.
  bool Add(uint64_t inode, const std::string& name, const std::string& path) {
    if (!seen_.insert(inode).second) return false;
    result_.found.push_back({.inode = inode, .name = name, .path = path, .own = false});
    return true;
  }

  void Problem(const std::string& text) { result_.problems.push_back(text); }

  void ListOwn() {
    struct stat status = {};
    if (stat(paths_.own.c_str(), &status) != 0) {
      return Problem(absl::StrCat("cannot read ", paths_.own, ": ", ErrorText(errno)));
    }
    Add(status.st_ino, "", paths_.own);
    result_.found.back().own = true;
  }

  void ListNames() {
    std::vector<std::string> names;
    const int error = ListDirectory(paths_.names, names);
    for (const std::string& name : names) {
      const std::string path = absl::StrCat(paths_.names, "/", name);
      int reason = 0;
      const std::optional<uint64_t> inode = NamedInode(path, reason);
      if (inode) {
        Name(*inode, path);
      } else if (reason == EINVAL) {
        Problem(absl::StrCat(path, " is no network namespace (any more)"));
      } else if (reason != ENOENT) {
        Problem(absl::StrCat("cannot open ", path, ": ", ErrorText(reason)));
      }
    }
    if (error != 0 && error != ENOENT) {
      Problem(absl::StrCat("cannot list ", paths_.names, ": ", ErrorText(error)));
    }
  }

  // The own one may have a name, too.
  void Name(uint64_t inode, const std::string& path) {
    if (Add(inode, path, path)) return;
    NetworkNamespace& first = result_.found.front();
    if (first.own && first.inode == inode && first.name.empty()) first.name = path;
  }

  void ListProcesses() {
    std::vector<std::string> names;
    const int error = ListDirectory(paths_.proc, names);
    std::set<uint32_t> processes;
    for (const std::string& name : names) {
      uint32_t process = 0;
      if (absl::SimpleAtoi(name, &process)) processes.insert(process);
    }
    if (error != 0) Problem(absl::StrCat("cannot list ", paths_.proc, ": ", ErrorText(error)));
    std::map<int, size_t> unreadable;
    for (const uint32_t process : processes) {
      const std::string path = absl::StrCat(paths_.proc, "/", process, "/ns/net");
      struct stat status = {};
      if (stat(path.c_str(), &status) == 0) {
        NameProcess(status.st_ino, process, path);
      } else if (errno != ENOENT && errno != ESRCH) {
        ++unreadable[errno];
      }
    }
    for (const auto& [reason, count] : unreadable) {
      Problem(absl::StrCat(
          "the network namespaces of ", count, " processes cannot be seen: ", ErrorText(reason),
          reason == EACCES || reason == EPERM ? " (CAP_SYS_PTRACE is needed)" : ""));
    }
  }

  void NameProcess(uint64_t inode, uint32_t process, const std::string& path) {
    const bool is_nameless_own = !result_.found.empty() && result_.found.front().own &&
                                 result_.found.front().inode == inode &&
                                 result_.found.front().name.empty();
    if (!is_nameless_own && seen_.count(inode) != 0) return;
    const absl::StatusOr<std::string> command =
        ReadFile(absl::StrCat(paths_.proc, "/", process, "/comm"));
    const std::string name =
        absl::StrCat("pid ", process, " (", absl::StripSuffix(command.value_or(""), "\n"), ")");
    if (is_nameless_own) {
      result_.found.front().name = name;
    } else {
      Add(inode, name, path);
    }
  }

  const NetworkNamespacePaths& paths_;
  NetworkNamespaces result_;
  std::set<uint64_t> seen_;
};

}  // namespace

absl::Status EnterNetworkNamespace(const std::string& path) {
  const absl::StatusOr<OwnedFd> fd = OpenNamespace(path);
  return fd.ok() ? Enter(*fd, path) : fd.status();
}

NetnsGuard::NetnsGuard() : fd_(open(kThreadNetns, O_RDONLY | O_CLOEXEC)) {}

absl::Status NetnsGuard::Check() const {
  struct stat made = {};
  struct stat now = {};
  if (!fd_.valid() || fstat(fd_.get(), &made) != 0 || stat(kThreadNetns, &now) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot read ", kThreadNetns, ": mount /proc"));
  }
  if (made.st_dev == now.st_dev && made.st_ino == now.st_ino) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this thread is in another network namespace than the one it worked in until now");
}

absl::StatusOr<VisitedNamespace> VisitedNamespace::Open(const std::string& path) {
  absl::StatusOr<OwnedFd> fd = OpenNamespace(path);
  if (!fd.ok()) return fd.status();
  struct stat about = {};
  if (fstat(fd->get(), &about) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("stat ", path));
  VisitedNamespace visited(path, *std::move(fd), about.st_ino);
  // Now is when a wrong path or a missing capability can be told to who gave the path.
  if (absl::Status status = visited.Visit([] {}); !status.ok()) return status;
  return visited;
}

absl::Status VisitedNamespace::Visit(absl::FunctionRef<void()> work) const {
  absl::Status status;
  const auto visit = [&] {
    status = Enter(fd_, path_);
    if (status.ok()) work();
  };
  try {
    const SignalsBlocked blocked;
    // Who has entered another namespace does not go back: the thread ends.
    std::thread(visit).join();
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no thread to enter ", path_, " with: ", error.what()));
  }
  return status;
}

NetworkNamespaces ListNetworkNamespaces(const NetworkNamespacePaths& paths) {
  return Lister(paths).List();
}

}  // namespace kipt::agent
