// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/node/interface_state.h"

#include <arpa/inet.h>
#include <linux/ipv6_route.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/process/files.h"

namespace kipt::skew {
namespace {

// Of /proc/net/ipv6_route (rt6_info_route() of the kernel's net/ipv6/route.c).
constexpr size_t kFlagsField = 8;

}  // namespace

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

absl::Status WaitUntilLocal(const testing::Netns& netns, const std::string& ipv6_address) {
  in6_addr address = {};
  if (inet_pton(AF_INET6, ipv6_address.c_str(), &address) != 1) {
    return absl::InvalidArgumentError(absl::StrCat(ipv6_address, " is no IPv6 address"));
  }
  const std::string line = absl::StrCat(
      absl::BytesToHexString({reinterpret_cast<const char*>(&address), sizeof(address)}), " 80 ");
  const testing::InNetns inside(netns);
  const absl::Time deadline = absl::Now() + absl::Seconds(5);
  while (absl::Now() < deadline) {
    const absl::StatusOr<std::string> routes = agent::ReadFile("/proc/thread-self/net/ipv6_route");
    if (!routes.ok()) return routes.status();
    for (const absl::string_view route : absl::StrSplit(*routes, '\n')) {
      const std::vector<absl::string_view> fields = absl::StrSplit(route, ' ', absl::SkipEmpty());
      uint32_t flags = 0;
      if (absl::StartsWith(route, line) && fields.size() > kFlagsField &&
          absl::SimpleHexAtoi(fields[kFlagsField], &flags) && (flags & RTF_LOCAL) != 0) {
        return absl::OkStatus();
      }
    }
    absl::SleepFor(absl::Milliseconds(1));
  }
  return absl::DeadlineExceededError(absl::StrCat(ipv6_address, " has no local route"));
}

}  // namespace kipt::skew
