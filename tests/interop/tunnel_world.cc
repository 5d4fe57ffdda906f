// SPDX-License-Identifier: Apache-2.0
#include "tests/interop/tunnel_world.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/support/background_program.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

enum class Caller : uint8_t { kPod, kNode, kOtherPod };

// Who asks whom; by family.
struct Route {
  Way way;
  const char* name;
  Caller from;
  const char* source[2];
  const char* target[2];
  // What the node masquerades it with; the source where it does not.
  const char* masqueraded[2];
};

constexpr Route kRoutes[] = {
    {Way::kToNode,
     "to the node",
     Caller::kPod,
     {"10.9.1.2", "fd09:1::2"},
     {"10.9.1.254", "fd09:1::254"},
     {"10.9.1.2", "fd09:1::2"}},
    {Way::kFromNode,
     "from the node",
     Caller::kNode,
     {"10.9.1.254", "fd09:1::254"},
     {"10.9.3.2", "fd09:3::2"},
     {"10.9.3.254", "fd09:3::254"}},
    {Way::kForwarded,
     "forwarded",
     Caller::kPod,
     {"10.9.1.2", "fd09:1::2"},
     {"10.9.3.2", "fd09:3::2"},
     {"10.9.3.254", "fd09:3::254"}},
    {Way::kTunnelled,
     "tunnelled",
     Caller::kPod,
     {"10.9.1.2", "fd09:1::2"},
     {"10.9.2.2", "fd09:2::2"},
     {"10.9.0.1", "fd09::1"}},
    {Way::kFromTunnel,
     "from the tunnel",
     Caller::kOtherPod,
     {"10.9.2.2", "fd09:2::2"},
     {"10.9.1.2", "fd09:1::2"},
     {"10.9.1.254", "fd09:1::254"}},
};

// One end of a link: its addresses are 10.9.NET.HOST and fd09:NET::HOST (host 254 as in the text).
struct End {
  std::string interface;
  int net;
  int host;
};

void Ip(const std::string& lines) {
  const ProgramResult result = RunProgram({"ip", "-batch", "-"}, lines);
  EXPECT_EQ(result.exit_code, 0) << lines << result;
}

std::string Ipv4(const End& end) { return absl::StrCat("10.9.", end.net, ".", end.host); }
std::string Ipv6(const End& end) {
  return absl::StrCat(end.net == 0 ? "fd09::" : absl::StrCat("fd09:", end.net, "::"), end.host);
}
std::string Mac(const End& end) {
  return absl::StrCat("02:00:00:00:0", end.net, ":", end.host == 254 ? "fe" : "0",
                      end.host == 254 ? "" : absl::StrCat(end.host));
}

// The lines that make `end` known to itself, and `there` to it for good: no packet asks who has an
// address, which would be counted with the others.
std::string SetUp(const End& end, const End& there) {
  const std::string& dev = end.interface;
  return absl::StrCat("addr add ", Ipv4(end), "/24 dev ", dev, "\naddr add ", Ipv6(end), "/64 dev ",
                      dev, " nodad\nlink set ", dev, " up\nneigh replace ", Ipv4(there), " lladdr ",
                      Mac(there), " dev ", dev, " nud permanent\n", "neigh replace ", Ipv6(there),
                      " lladdr ", Mac(there), " dev ", dev, " nud permanent\n");
}

std::string DefaultRoutes(const End& via) {
  return absl::StrCat("route add default via ", Ipv4(via), "\nroute add ::/0 via ", Ipv6(via),
                      "\n");
}

void Link(const End& here, const End& there, const Netns& netns, bool default_route) {
  Ip(absl::StrCat("link add ", here.interface, " address ", Mac(here), " type veth peer name ",
                  there.interface, " address ", Mac(there), " netns ", netns.Path(), "\n",
                  SetUp(here, there)));
  const InNetns inside(netns);
  Ip(SetUp(there, here) + (default_route ? DefaultRoutes(here) : ""));
}

// Reports of MLDv2 leave with a number of the kernel's own where the mark is (sk_buff has one place
// for both, mark and reserved_tailroom), and would be counted as marked; those of MLDv1 do not.
void ReportAsMldv1() { SetSysctl("ipv6/conf/default/force_mld_version", "1"); }

void Forward() {
  SetSysctl("ipv4/ip_forward", "1");
  SetSysctl("ipv6/conf/all/forwarding", "1");
}

// The tunnel's end in the calling thread's namespace, and the way to the pods at the other.
void AddTunnel(const End& under, const End& there_under, int host, int there_host) {
  const End here = {kTunnelInterface, 0, host};
  const End there = {kTunnelInterface, 0, there_host};
  Ip(absl::StrCat("link add ", kTunnelInterface, " address ", Mac(here), " type vxlan id 42 local ",
                  Ipv4(under), " remote ", Ipv4(there_under), " dstport ", kVxlanPort, " dev ",
                  under.interface, "\n", SetUp(here, there), "route add 10.9.", there_host,
                  ".0/24 via ", Ipv4(there), "\nroute add fd09:", there_host, "::/64 via ",
                  Ipv6(there), "\n"));
}

template <typename Make>
void ForEachCall(const std::vector<Way>& ways, uint16_t port, Make make) {
  for (const Way way : ways) {
    const Route& route = kRoutes[static_cast<size_t>(way)];
    EXPECT_EQ(route.way, way);
    for (const IpFamily family : kBothFamilies) {
      for (const Protocol protocol : kBothProtocols) {
        make(absl::StrCat(route.name, " ", NameOf(family), " ", NameOf(protocol), " ", port), route,
             family == IpFamily::kIpv4 ? 0 : 1, protocol);
      }
    }
  }
}

}  // namespace

TunnelWorld::TunnelWorld(const std::vector<uint16_t>& ports)
    : pod_(NewNetns()), neighbour_(NewNetns()), other_node_(NewNetns()), other_pod_(NewNetns()) {
  const End under = {"under", 9, 1};
  const End there_under = {"under", 9, 2};
  ReportAsMldv1();
  Forward();
  Link(under, there_under, other_node_, /*default_route=*/false);
  Link({"pods", 1, 254}, {"eth0", 1, 2}, pod_, /*default_route=*/true);
  Link({"neighbour", 3, 254}, {"eth0", 3, 2}, neighbour_, /*default_route=*/true);
  AddTunnel(under, there_under, 1, 2);
  servers_.emplace_back(ports);
  {
    const InNetns inside(other_node_);
    ReportAsMldv1();
    Forward();
    Link({"pods", 2, 254}, {"eth0", 2, 2}, other_pod_, /*default_route=*/true);
    AddTunnel(there_under, under, 2, 1);
  }
  for (const Netns* netns : {&pod_, &neighbour_, &other_pod_}) {
    const InNetns inside(*netns);
    servers_.emplace_back(ports);
  }
  // A link loses packets for a moment after it was brought up.
  const Answers unchanged = Unchanged(kAllWays, ports.front());
  EXPECT_TRUE(WaitUntil(
      [&] { return Ask(kAllWays, ports.front(), absl::Milliseconds(100)) == unchanged; }));
}

std::map<std::string, EchoCall> TunnelWorld::Open(const std::vector<Way>& ways,
                                                  uint16_t port) const {
  std::map<std::string, EchoCall> calls;
  const auto node = Netns::Current();
  EXPECT_TRUE(node.ok()) << node.status();
  ForEachCall(ways, port,
              [&](const std::string& name, const Route& route, int family, Protocol protocol) {
                const InNetns inside(route.from == Caller::kNode  ? *node
                                     : route.from == Caller::kPod ? pod_
                                                                  : other_pod_);
                calls.emplace(name, EchoCall({.protocol = protocol,
                                              .address = route.target[family],
                                              .port = port,
                                              .source = route.source[family]}));
              });
  return calls;
}

Answers TunnelWorld::Ask(const std::vector<Way>& ways, uint16_t port,
                         absl::Duration patience) const {
  std::map<std::string, EchoCall> calls = Open(ways, port);
  return EchoCall::AskAll(calls, patience);
}

Answers TunnelWorld::Unchanged(const std::vector<Way>& ways, uint16_t port) {
  Answers answers;
  ForEachCall(ways, port, [&](const std::string& name, const Route& route, int family, Protocol) {
    answers[name] = route.source[family];
  });
  return answers;
}

Answers TunnelWorld::Masqueraded(const std::vector<Way>& ways, uint16_t port) {
  Answers answers;
  ForEachCall(ways, port, [&](const std::string& name, const Route& route, int family, Protocol) {
    answers[name] = route.masqueraded[family];
  });
  return answers;
}

Answers TunnelWorld::Nothing(const std::vector<Way>& ways, uint16_t port) {
  Answers answers;
  ForEachCall(ways, port,
              [&](const std::string& name, const Route&, int, Protocol) { answers[name] = ""; });
  return answers;
}

}  // namespace kipt::testing
