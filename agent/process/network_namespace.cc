// SPDX-License-Identifier: Apache-2.0
#include "agent/process/network_namespace.h"

#include <fcntl.h>
#include <sched.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

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

}  // namespace

absl::StatusOr<OwnedFd> OpenNetworkNamespace(const std::string& path) {
  OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return NamespaceError(errno, "open", path);
  return fd;
}

absl::Status EnterNetworkNamespace(const OwnedFd& namespace_fd, const std::string& path) {
  if (setns(namespace_fd.get(), CLONE_NEWNET) == 0) return absl::OkStatus();
  return NamespaceError(errno, "setns", path);
}

absl::Status EnterNetworkNamespace(const std::string& path) {
  const absl::StatusOr<OwnedFd> fd = OpenNetworkNamespace(path);
  return fd.ok() ? EnterNetworkNamespace(*fd, path) : fd.status();
}

}  // namespace kipt::agent
