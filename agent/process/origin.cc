// SPDX-License-Identifier: Apache-2.0
#include "agent/process/origin.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "agent/process/files.h"

namespace kipt::agent {
namespace {

// Nothing: this kernel has no cookies.
absl::StatusOr<std::optional<uint64_t>> ReadCookie() {
#ifdef SO_NETNS_COOKIE
  const OwnedFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "socket");
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) == 0) return cookie;
  if (errno != ENOPROTOOPT) return absl::ErrnoToStatus(errno, "reading SO_NETNS_COOKIE");
#endif
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Origin> ReadOrigin(const OriginPaths& paths) {
  constexpr size_t kMostBytes = 128;
  const absl::StatusOr<std::string> boot_id = ReadFile(paths.boot_id, kMostBytes);
  if (!boot_id.ok()) return boot_id.status();
  Origin origin{.boot_id = std::string(absl::StripAsciiWhitespace(*boot_id)),
                .network_namespace = {}};
  if (origin.boot_id.empty()) {
    return absl::NotFoundError(absl::StrCat(paths.boot_id, " is empty"));
  }
  struct stat about = {};
  if (stat(paths.netns.c_str(), &about) != 0) return ReadFailure(errno, paths.netns);
  const absl::StatusOr<std::optional<uint64_t>> cookie = ReadCookie();
  if (!cookie.ok()) return cookie.status();
  origin.network_namespace = {.device = about.st_dev, .inode = about.st_ino, .cookie = *cookie};
  return origin;
}

}  // namespace kipt::agent
