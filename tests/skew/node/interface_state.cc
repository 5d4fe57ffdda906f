// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/node/interface_state.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/process/files.h"

namespace kipt::skew {

absl::Status WaitUntilRunning(const testing::Netns& netns, const std::string& interface) {
  const testing::InNetns inside(netns);
  const agent::OwnedFd socket_fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  const absl::Time deadline = absl::Now() + absl::Seconds(5);
  while (absl::Now() < deadline) {
    if (ioctl(socket_fd.get(), SIOCGIFFLAGS, &request) < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("the flags of ", interface));
    }
    if ((request.ifr_flags & IFF_RUNNING) != 0) return absl::OkStatus();
    absl::SleepFor(absl::Milliseconds(1));
  }
  return absl::DeadlineExceededError(absl::StrCat(interface, " has no carrier"));
}

}  // namespace kipt::skew
