// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/node/test_node.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/ipv6_route.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/process/files.h"
#include "tests/support/run_program.h"

namespace kipt::skew {
namespace {

using testing::InNetns;
using testing::IpFamily;
using testing::Netns;

// A veth pair: `near` is the side of the node, or of the second node towards its pod. Both sides
// know their addresses as hosts (/32, /128): nothing is resolved, every route is written down.
struct Link {
  int number;
  Place near;
  Place far;
  const char* near_interface;
  const char* near_v4;
  const char* near_v6;
};
constexpr char kFarInterface[] = "eth0";

constexpr Link kLinks[] = {
    {1, Place::kNode, Place::kRefusedClient, "refused", "192.168.50.2", "fd00:50::2"},
    {2, Place::kNode, Place::kAllowedClient, "allowed", "192.168.52.2", "fd00:52::2"},
    {3, Place::kNode, Place::kBeyond, "beyond", "192.168.53.2", "fd00:53::2"},
    {4, Place::kNode, Place::kPodA, "pod_a", "192.168.54.2", "fd00:54::2"},
    {5, Place::kNode, Place::kPodB, "pod_b", "192.168.55.2", "fd00:55::2"},
    {6, Place::kNode, Place::kSecondNode, "second", "192.168.51.2", "fd00:51::2"},
    {7, Place::kSecondNode, Place::kRemotePod, "pod_r", "192.168.56.3", "fd00:56::3"},
};

struct PlaceRow {
  Place place;
  const char* name;
  const char* v4;
  const char* v6;
};
constexpr PlaceRow kPlaceRows[] = {
    {Place::kNode, "node", "192.168.50.2", "fd00:50::2"},
    {Place::kRefusedClient, "refused client", "192.168.50.9", "fd00:50::9"},
    {Place::kAllowedClient, "allowed client", "203.0.113.9", "fd00:203::9"},
    {Place::kBeyond, "beyond", "192.168.53.3", "fd00:53::3"},
    {Place::kPodA, "pod a", "10.180.0.1", "fd00:180::1"},
    {Place::kPodB, "pod b", "10.180.0.2", "fd00:180::2"},
    {Place::kSecondNode, "second node", "192.168.51.3", "fd00:51::3"},
    {Place::kRemotePod, "remote pod", "10.180.1.1", "fd00:180:1::1"},
};

const PlaceRow& RowOf(Place place) {
  return *std::find_if(std::begin(kPlaceRows), std::end(kPlaceRows),
                       [place](const PlaceRow& row) { return row.place == place; });
}

// Locally administered; the last byte is 1 on the near side, 2 on the far side.
std::string MacText(const Link& link, bool near) {
  return absl::StrCat("02:00:00:00:0", link.number, near ? ":01" : ":02");
}

std::string AsHost(absl::string_view address) {
  return absl::StrCat(address, address.find(':') == absl::string_view::npos ? "/32" : "/128");
}

std::string AddAddress(absl::string_view address, absl::string_view interface) {
  const bool v6 = address.find(':') != absl::string_view::npos;
  return absl::StrCat("addr add ", AsHost(address), " dev ", interface, v6 ? " nodad" : "", "\n");
}

// The host on the other side, permanently: the first packet needs no address resolution.
std::string AddNeighbour(absl::string_view address, absl::string_view mac,
                         absl::string_view interface) {
  return absl::StrCat("neigh add ", address, " lladdr ", mac, " dev ", interface,
                      " nud permanent\nroute add ", AsHost(address), " dev ", interface, "\n");
}

std::string AddRoute(absl::string_view prefix, absl::string_view gateway) {
  return absl::StrCat("route add ", prefix, " via ", gateway, "\n");
}

// Indices differ between the sides: the kernel reports the carrier of such a pair at once, others
// may wait for a second (linkwatch_urgent_event() of net/core/link_watch.c).
std::string MakePair(const Link& link, const Netns& far) {
  return absl::StrCat("link add name ", link.near_interface, " index ", 100 + link.number,
                      " address ", MacText(link, true), " type veth peer name ", kFarInterface,
                      " index ", 2, " address ", MacText(link, false), " netns ", far.Path(), "\n",
                      "link set ", link.near_interface, " up\n");
}

std::string NearSide(const Link& link) {
  std::string commands = absl::StrCat(AddAddress(link.near_v4, link.near_interface),
                                      AddAddress(link.near_v6, link.near_interface));
  for (const IpFamily family : {IpFamily::kIpv4, IpFamily::kIpv6}) {
    absl::StrAppend(&commands, AddNeighbour(AddressOf(link.far, family), MacText(link, false),
                                            link.near_interface));
  }
  return commands;
}

std::string FarSide(const Link& link) {
  std::string commands = absl::StrCat("link set ", kFarInterface, " up\n");
  for (const IpFamily family : {IpFamily::kIpv4, IpFamily::kIpv6}) {
    const bool v6 = family == IpFamily::kIpv6;
    const char* gateway = v6 ? link.near_v6 : link.near_v4;
    absl::StrAppend(&commands, AddAddress(AddressOf(link.far, family), kFarInterface),
                    AddNeighbour(gateway, MacText(link, true), kFarInterface));
    if (link.far != Place::kBeyond) {
      absl::StrAppend(&commands, AddRoute(v6 ? "::/0" : "0.0.0.0/0", gateway));
      continue;
    }
    // All that is left of the world lives there, so that whatever is forwarded to it is received.
    const std::array<const char*, 3> back =
        v6 ? std::array{"fd00:50::/28", "fd00:180::/32", "fd00:203::/64"}
           : std::array{"192.168.0.0/16", "10.180.0.0/16", "203.0.113.0/24"};
    for (const char* prefix : back) absl::StrAppend(&commands, AddRoute(prefix, gateway));
    absl::StrAppend(&commands, AddRoute(AsHost(BoundVip(family)), gateway),
                    AddAddress(RoutedVip(family), "lo"), "route add local ",
                    v6 ? "::/0" : "0.0.0.0/0", " dev lo table main\n");
  }
  return commands;
}

// What the node has in addition to its links.
std::string NodeItself() {
  std::string commands;
  for (const IpFamily family : {IpFamily::kIpv4, IpFamily::kIpv6}) {
    const bool v6 = family == IpFamily::kIpv6;
    absl::StrAppend(
        &commands, AddAddress(BoundVip(family), "lo"),
        AddRoute(v6 ? "fd00:180:1::/48" : "10.180.1.0/24", AddressOf(Place::kSecondNode, family)),
        AddRoute(v6 ? "::/0" : "0.0.0.0/0", AddressOf(Place::kBeyond, family)));
  }
  return commands;
}

// What a network namespace and its interfaces need before packets of a test go through them.

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
    // A pod that reaches itself through the node enters and leaves by one interface.
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
    // A stream makes hundreds of unanswered connections a second.
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

// Gives the calling thread's network namespace, which has no interfaces yet but lo, what packets of
// a test need of it whatever the machine's own settings are: both families on, addresses usable at
// once, no source filter, no limit on ICMP errors. `forwards`: it is a router.
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

// The first side of a veth pair that comes up sends nothing until the kernel has, in its own time,
// noticed the carrier that the second one gave it.
absl::Status WaitUntilRunning(const Netns& netns, const std::string& interface) {
  const InNetns inside(netns);
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

// An IPv6 address takes packets once it has its local route, which a worker of the kernel adds some
// time after ip(8) has ended (addrconf_dad_completed() of net/ipv6/addrconf.c).
absl::Status WaitUntilLocal(const Netns& netns, const std::string& ipv6_address) {
  in6_addr address = {};
  if (inet_pton(AF_INET6, ipv6_address.c_str(), &address) != 1) {
    return absl::InvalidArgumentError(absl::StrCat(ipv6_address, " is no IPv6 address"));
  }
  const std::string line = absl::StrCat(
      absl::BytesToHexString({reinterpret_cast<const char*>(&address), sizeof(address)}), " 80 ");
  const InNetns inside(netns);
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

absl::Status RunIp(const Netns& netns, const std::string& commands) {
  const InNetns inside(netns);
  const testing::ProgramResult result = testing::RunProgram({"ip", "-batch", "-"}, commands);
  if (result.exit_code == 127) return absl::NotFoundError(absl::StrCat("ip(8): ", result.err));
  if (result.exit_code == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("ip -batch: ", result.err, "of\n", commands));
}

}  // namespace

const char* NameOf(Place place) { return RowOf(place).name; }

std::string AddressOf(Place place, IpFamily family) {
  return family == IpFamily::kIpv6 ? RowOf(place).v6 : RowOf(place).v4;
}

std::string BoundVip(IpFamily family) {
  return family == IpFamily::kIpv6 ? "fd00:1:2:3::4" : "1.2.3.4";
}

std::string RoutedVip(IpFamily family) {
  return family == IpFamily::kIpv6 ? "fd00:1:2:3::5" : "1.2.3.5";
}

std::string AllowedRange(IpFamily family) {
  return family == IpFamily::kIpv6 ? "fd00:203::/64" : "203.0.113.0/24";
}

std::string PodCidr(IpFamily family) {
  return family == IpFamily::kIpv6 ? "fd00:180::/32" : "10.180.0.0/16";
}

absl::StatusOr<std::unique_ptr<TestNode>> TestNode::Create() {
  std::unique_ptr<TestNode> node(new TestNode());
  for (const Place place : kAllPlaces) {
    absl::StatusOr<Netns> netns = Netns::Create();
    if (!netns.ok()) return netns.status();
    node->places_.push_back(*std::move(netns));
    const bool forwards = place == Place::kNode || place == Place::kSecondNode;
    const InNetns inside(node->places_.back());
    if (absl::Status status = SetSysctls(forwards); !status.ok()) return status;
  }

  // Pairs first; then each place configures its sides of them.
  std::array<std::string, std::size(kAllPlaces)> commands;
  for (const Link& link : kLinks) {
    commands[static_cast<size_t>(link.near)] += MakePair(link, node->At(link.far));
    commands[static_cast<size_t>(link.near)] += NearSide(link);
    commands[static_cast<size_t>(link.far)] += FarSide(link);
    if (link.near != Place::kNode) continue;
    node->addresses_v4_.emplace_back(link.near_v4);
    node->addresses_v6_.emplace_back(link.near_v6);
  }
  node->addresses_v4_.push_back(BoundVip(IpFamily::kIpv4));
  node->addresses_v6_.push_back(BoundVip(IpFamily::kIpv6));
  commands[static_cast<size_t>(Place::kNode)] += NodeItself();
  // The node, and then the second node, come before those they make an interface for.
  for (const Place place :
       {Place::kNode, Place::kSecondNode, Place::kRefusedClient, Place::kAllowedClient,
        Place::kBeyond, Place::kPodA, Place::kPodB, Place::kRemotePod}) {
    absl::Status status = RunIp(node->At(place), commands[static_cast<size_t>(place)]);
    if (!status.ok()) return status;
  }
  for (const Link& link : kLinks) {
    absl::Status status = WaitUntilRunning(node->At(link.near), link.near_interface);
    status.Update(WaitUntilRunning(node->At(link.far), kFarInterface));
    status.Update(WaitUntilLocal(node->At(link.near), link.near_v6));
    status.Update(WaitUntilLocal(node->At(link.far), AddressOf(link.far, IpFamily::kIpv6)));
    if (!status.ok()) return status;
  }
  for (const auto& [place, vip] : {std::pair(Place::kNode, BoundVip(IpFamily::kIpv6)),
                                   std::pair(Place::kBeyond, RoutedVip(IpFamily::kIpv6))}) {
    if (absl::Status status = WaitUntilLocal(node->At(place), vip); !status.ok()) return status;
  }
  return node;
}

const Netns& TestNode::At(Place place) const { return places_[static_cast<size_t>(place)]; }

const std::vector<std::string>& TestNode::NodeAddresses(IpFamily family) const {
  return family == IpFamily::kIpv6 ? addresses_v6_ : addresses_v4_;
}

std::string TestNode::NodeMacTowards(Place neighbour) const {
  for (const Link& link : kLinks) {
    if (link.far != neighbour || link.near != Place::kNode) continue;
    return {2, 0, 0, 0, static_cast<char>(link.number), 1};
  }
  return "";
}

}  // namespace kipt::skew
