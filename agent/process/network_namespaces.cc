// SPDX-License-Identifier: Apache-2.0
#include "agent/process/network_namespaces.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "agent/process/owned_fd.h"
#include "agent/process/read_file.h"

namespace kipt::agent {
namespace {

struct DirectoryCloser {
  void operator()(DIR* directory) const { closedir(directory); }
};

std::string ErrorText(int error) { return std::generic_category().message(error); }

// The names in a directory; `error` is 0, or why they are not all.
std::vector<std::string> Entries(const std::string& path, int& error) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, DirectoryCloser> directory(opendir(path.c_str()));
  error = directory == nullptr ? errno : 0;
  while (directory != nullptr) {
    errno = 0;
    const dirent* entry = readdir(directory.get());
    error = entry == nullptr ? errno : 0;
    if (entry == nullptr) break;
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

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
    int error = 0;
    for (const std::string& name : Entries(paths_.names, error)) {
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
    int error = 0;
    std::set<uint32_t> processes;
    for (const std::string& name : Entries(paths_.proc, error)) {
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

NetworkNamespaces ListNetworkNamespaces(const NetworkNamespacePaths& paths) {
  return Lister(paths).List();
}

}  // namespace kipt::agent
