// SPDX-License-Identifier: Apache-2.0
#include "agent/process/network_namespaces.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cerrno>
#include <exception>
#include <map>
#include <set>
#include <system_error>
#include <thread>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "agent/process/signal_mask.h"

namespace kipt::agent {
namespace {

// Not /proc/self, which is the main thread's.
constexpr char kThreadNetns[] = "/proc/thread-self/ns/net";

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
  // O_NONBLOCK: opening a FIFO would wait.
  OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return NamespaceError(errno, "open", path);
  return fd;
}

absl::Status Enter(const OwnedFd& namespace_fd, const std::string& path) {
  if (setns(namespace_fd.get(), CLONE_NEWNET) == 0) return absl::OkStatus();
  return NamespaceError(errno, "setns", path);
}

// The number of the network namespace at `path`, or 0 and errno. O_NONBLOCK: another kind of file
// at that path might wait.
ino_t NamedInode(const std::string& path) {
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (!fd.valid() || fstat(fd.get(), &status) != 0) return 0;
  if (ioctl(fd.get(), NS_GET_NSTYPE) == CLONE_NEWNET) return status.st_ino;
  errno = EINVAL;
  return 0;
}

// Adds the namespace, or names it: our own has no name at first. `name` may be costly.
void Add(NetworkNamespaces& list, ino_t inode, const std::string& path,
         absl::FunctionRef<std::string()> name) {
  const auto known = absl::c_find_if(
      list.found, [inode](const NetworkNamespace& one) { return one.inode == inode; });
  if (known == list.found.end()) {
    list.found.push_back({.inode = inode, .name = name(), .path = path});
  } else if (known->name.empty()) {
    known->name = name();
  }
}

void AddNames(const NetworkNamespacePaths& paths, NetworkNamespaces& list) {
  std::vector<std::string> names;
  const int error = ListDirectory(paths.names, names);
  for (const std::string& name : names) {
    std::string path = absl::StrCat(paths.names, "/", name);
    if (const ino_t inode = NamedInode(path); inode != 0) {
      Add(list, inode, path, [&] { return path; });
    } else if (errno == EINVAL) {
      list.problems.push_back(absl::StrCat(path, " is no network namespace (any more)"));
    } else if (errno != ENOENT) {
      list.problems.push_back(absl::StrCat("cannot open ", path, ": ", ErrorText(errno)));
    }
  }
  if (error != 0 && error != ENOENT) {
    list.problems.push_back(absl::StrCat("cannot list ", paths.names, ": ", ErrorText(error)));
  }
}

void AddProcesses(const NetworkNamespacePaths& paths, NetworkNamespaces& list) {
  std::vector<std::string> names;
  if (const int error = ListDirectory(paths.proc, names); error != 0) {
    list.problems.push_back(absl::StrCat("cannot list ", paths.proc, ": ", ErrorText(error)));
  }
  std::set<uint32_t> processes;
  for (const std::string& name : names) {
    uint32_t process = 0;
    if (absl::SimpleAtoi(name, &process)) processes.insert(process);
  }
  std::map<int, size_t> unreadable;
  for (const uint32_t process : processes) {
    const std::string directory = absl::StrCat(paths.proc, "/", process);
    const std::string path = absl::StrCat(directory, "/ns/net");
    const auto name = [&] {
      const std::string command = ReadFile(directory + "/comm").value_or("");
      return absl::StrCat("pid ", process, " (", absl::StripSuffix(command, "\n"), ")");
    };
    struct stat status = {};
    if (stat(path.c_str(), &status) == 0) {
      Add(list, status.st_ino, path, name);
    } else if (errno != ENOENT && errno != ESRCH) {
      ++unreadable[errno];
    }
  }
  for (const auto& [reason, count] : unreadable) {
    list.problems.push_back(absl::StrCat(
        "the network namespaces of ", count, " processes cannot be seen: ", ErrorText(reason),
        reason == EACCES || reason == EPERM ? " (CAP_SYS_PTRACE is needed)" : ""));
  }
}

}  // namespace

absl::Status EnterNetworkNamespace(const std::string& path) {
  const absl::StatusOr<OwnedFd> fd = OpenNamespace(path);
  return fd.ok() ? Enter(*fd, path) : fd.status();
}

NetnsGuard::NetnsGuard() : fd_(open(kThreadNetns, O_RDONLY | O_CLOEXEC)), error_(errno) {}

absl::Status NetnsGuard::Opened() const {
  // Without /proc there is no guard.
  if (fd_.valid() || error_ == ENOENT || error_ == ENOTDIR) return absl::OkStatus();
  return absl::ErrnoToStatus(error_, absl::StrCat("opening ", kThreadNetns));
}

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
  if (absl::Status status = visited.Visit([] {}); !status.ok()) return status;
  return visited;
}

absl::Status VisitedNamespace::Visit(absl::FunctionRef<void()> work) const {
  absl::Status status;
  std::thread visitor;
  std::exception_ptr failure;
  try {
    const AllSignalsBlocked inherited;
    // The thread ends instead of going back.
    visitor = std::thread([&] {
      try {
        status = Enter(fd_, path_);
        if (status.ok()) work();
      } catch (...) {
        failure = std::current_exception();
      }
    });
  } catch (const std::system_error& error) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("no thread to enter ", path_, " with: ", error.what()));
  } catch (...) {
    failure = std::current_exception();
  }
  if (visitor.joinable()) visitor.join();
  if (failure != nullptr) std::rethrow_exception(failure);
  return status;
}

NetworkNamespaces ListNetworkNamespaces(const NetworkNamespacePaths& paths) {
  NetworkNamespaces list;
  struct stat status = {};
  if (stat(paths.own.c_str(), &status) == 0) {
    list.found.push_back({.inode = status.st_ino, .path = paths.own, .own = true});
  } else {
    list.problems.push_back(absl::StrCat("cannot read ", paths.own, ": ", ErrorText(errno)));
  }
  AddNames(paths, list);
  AddProcesses(paths, list);
  return list;
}

absl::Status VisitListed(const NetworkNamespace& listed, absl::FunctionRef<void()> work) {
  const absl::StatusOr<VisitedNamespace> visited = VisitedNamespace::Open(listed.path);
  if (!visited.ok()) return visited.status();
  // The path may be of a process that has ended, and another process may have its number now.
  if (visited->inode() == listed.inode) return visited->Visit(work);
  return absl::NotFoundError("it has ended since it was listed");
}

}  // namespace kipt::agent
