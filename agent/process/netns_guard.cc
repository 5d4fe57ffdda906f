// SPDX-License-Identifier: Apache-2.0
#include "agent/process/netns_guard.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"

namespace kipt::agent {
namespace {

// Not /proc/self: that is the main thread's.
constexpr char kThreadNetns[] = "/proc/thread-self/ns/net";

}  // namespace

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

}  // namespace kipt::agent
