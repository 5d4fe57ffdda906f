// SPDX-License-Identifier: Apache-2.0
#include "agent/process/network_namespaces.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <set>
#include <system_error>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "agent/process/files.h"

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

std::string ErrorText(int error) { return std::generic_category().message(error); }

// The number of the network namespace at `path`, or 0 and errno. Opening a namespace does nothing;
// opening what only stands in its place might wait.
ino_t NamedInode(const std::string& path) {
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (!fd.valid() || fstat(fd.get(), &status) != 0) return 0;
  if (ioctl(fd.get(), NS_GET_NSTYPE) == CLONE_NEWNET) return status.st_ino;
  errno = EINVAL;
  return 0;
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
  // The one with this number; null where it is new.
  NetworkNamespace* Find(uint64_t inode) {
    const auto found =
        std::find_if(result_.found.begin(), result_.found.end(),
                     [inode](const NetworkNamespace& one) { return one.inode == inode; });
    return found == result_.found.end() ? nullptr : &*found;
  }
  // Whether a name is needed for it: it is new, or our own, which has none at first.
  bool IsNameless(uint64_t inode) {
    const NetworkNamespace* known = Find(inode);
    return known == nullptr || known->name.empty();
  }
  void Name(uint64_t inode, const std::string& name, const std::string& path) {
    if (NetworkNamespace* known = Find(inode); known != nullptr) {
      known->name = name;
    } else {
      result_.found.push_back({.inode = inode, .name = name, .path = path});
    }
  }

  void Problem(const std::string& text) { result_.problems.push_back(text); }

  void ListOwn() {
    struct stat status = {};
    if (stat(paths_.own.c_str(), &status) != 0) {
      return Problem(absl::StrCat("cannot read ", paths_.own, ": ", ErrorText(errno)));
    }
    result_.found.push_back({.inode = status.st_ino, .path = paths_.own, .own = true});
  }

  void ListNames() {
    std::vector<std::string> names;
    const int error = ListDirectory(paths_.names, names);
    for (const std::string& name : names) {
      const std::string path = absl::StrCat(paths_.names, "/", name);
      if (const ino_t inode = NamedInode(path); inode != 0) {
        if (IsNameless(inode)) Name(inode, path, path);
      } else if (errno == EINVAL) {
        Problem(absl::StrCat(path, " is no network namespace (any more)"));
      } else if (errno != ENOENT) {
        Problem(absl::StrCat("cannot open ", path, ": ", ErrorText(errno)));
      }
    }
    if (error != 0 && error != ENOENT) {
      Problem(absl::StrCat("cannot list ", paths_.names, ": ", ErrorText(error)));
    }
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
      const std::string directory = absl::StrCat(paths_.proc, "/", process);
      const std::string path = absl::StrCat(directory, "/ns/net");
      struct stat status = {};
      if (stat(path.c_str(), &status) != 0) {
        if (errno != ENOENT && errno != ESRCH) ++unreadable[errno];
      } else if (IsNameless(status.st_ino)) {
        const std::string command = ReadFile(directory + "/comm").value_or("");
        Name(status.st_ino,
             absl::StrCat("pid ", process, " (", absl::StripSuffix(command, "\n"), ")"), path);
      }
    }
    for (const auto& [reason, count] : unreadable) {
      Problem(absl::StrCat(
          "the network namespaces of ", count, " processes cannot be seen: ", ErrorText(reason),
          reason == EACCES || reason == EPERM ? " (CAP_SYS_PTRACE is needed)" : ""));
    }
  }

  const NetworkNamespacePaths& paths_;
  NetworkNamespaces result_;
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
  // A thread starts with the signal mask of the one that starts it.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    // Who has entered another namespace does not go back: the thread ends.
    std::thread([&] {
      status = Enter(fd_, path_);
      if (status.ok()) work();
    }).join();
  } catch (const std::system_error& error) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("no thread to enter ", path_, " with: ", error.what()));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

NetworkNamespaces ListNetworkNamespaces(const NetworkNamespacePaths& paths) {
  return Lister(paths).List();
}

}  // namespace kipt::agent
