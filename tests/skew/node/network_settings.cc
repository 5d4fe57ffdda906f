// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/node/network_settings.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/ipv6_route.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
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

struct Sysctl {
  const char* name;
  const char* value;
  // Absent from some kernels, or without some module.
  bool may_be_absent = false;
};

// First: it sets others back to what routers have.
constexpr Sysctl kForwarding[] = {
    {"ipv4/ip_forward", "1"},
    {"ipv6/conf/all/forwarding", "1"},
    {"ipv6/conf/default/forwarding", "1"},
};

// A new namespace takes IPv4's from the machine.
constexpr Sysctl kEverywhere[] = {
    {"ipv4/conf/all/rp_filter", "0"},
    {"ipv4/conf/default/rp_filter", "0"},
    {"ipv4/conf/all/route_localnet", "0"},
    {"ipv4/conf/default/route_localnet", "0"},
    {"ipv4/conf/lo/route_localnet", "0"},
    {"ipv4/conf/all/accept_local", "0"},
    {"ipv4/conf/default/accept_local", "0"},
    // A pod that reaches itself through the node goes in and out of one interface.
    {"ipv4/conf/all/send_redirects", "0"},
    {"ipv4/conf/default/send_redirects", "0"},
    {"ipv6/conf/all/accept_redirects", "0"},
    {"ipv6/conf/default/accept_redirects", "0"},
    {"ipv6/conf/all/disable_ipv6", "0"},
    {"ipv6/conf/default/disable_ipv6", "0"},
    {"ipv6/conf/lo/disable_ipv6", "0"},
    {"ipv6/conf/default/accept_dad", "0"},
    {"ipv6/conf/default/accept_ra", "0"},
    {"ipv6/conf/default/router_solicitations", "0"},
    // No link-local addresses (IN6_ADDR_GEN_MODE_NONE).
    {"ipv6/conf/default/addr_gen_mode", "1"},
    // No limits on errors: by type, and by second and destination.
    {"ipv4/icmp_ratemask", "0"},
    {"ipv4/icmp_ratelimit", "0"},
    {"ipv6/icmp/ratelimit", "0"},
    {"ipv6/icmp/ratemask", "255", true},          // since 5.1
    {"ipv4/icmp_msgs_per_sec", "1000000", true},  // of a namespace since 6.13
    {"ipv4/icmp_msgs_burst", "10000", true},
    // A stream makes hundreds of connections a second that nobody answers.
    {"netfilter/nf_conntrack_udp_timeout", "10", true},
};

absl::Status Set(const Sysctl& sysctl) {
  const std::string path = absl::StrCat("/proc/sys/net/", sysctl.name);
  const agent::OwnedFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd.valid()) {
    if (sysctl.may_be_absent && errno == ENOENT) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, absl::StrCat("open ", path));
  }
  const absl::string_view value = sysctl.value;
  if (write(fd.get(), value.data(), value.size()) >= 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("write ", value, " to ", path));
}

// Of /proc/net/ipv6_route (rt6_info_route() of the kernel's net/ipv6/route.c).
constexpr size_t kFlagsField = 8;

}  // namespace

absl::Status SetSysctls(bool forwards) {
  if (forwards) {
    for (const Sysctl& sysctl : kForwarding) {
      if (absl::Status status = Set(sysctl); !status.ok()) return status;
    }
  }
  for (const Sysctl& sysctl : kEverywhere) {
    if (absl::Status status = Set(sysctl); !status.ok()) return status;
  }
  return absl::OkStatus();
}

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
