// SPDX-License-Identifier: Apache-2.0
//
// Two nodes, each with a pod, and a VXLAN tunnel between them; and a neighbour of the one node
// without a tunnel. The calling thread's own network namespace is that node. Covers each way that a
// packet can take through the node.
#ifndef KIPT_TESTS_INTEROP_TUNNEL_WORLD_H_
#define KIPT_TESTS_INTEROP_TUNNEL_WORLD_H_

#include <list>

#include "tests/interop/agent_fixture.h"
#include "tests/support/echo_call.h"

namespace kipt::testing {

inline constexpr uint16_t kVxlanPort = 4789;
// What the interface on the tunnel is called.
inline constexpr char kTunnelInterface[] = "tunnel";

enum class Way : uint8_t {
  kToNode,     // from the pod to an address of the node
  kFromNode,   // from the node to the neighbour, from an address that is not the nearest
  kForwarded,  // from the pod to the neighbour
  kTunnelled,  // from the pod to the other node's pod
  kFromTunnel  // from the other node's pod to the pod
};
inline const std::vector<Way> kAllWays = {Way::kToNode, Way::kFromNode, Way::kForwarded,
                                          Way::kTunnelled, Way::kFromTunnel};

// "tunnelled ipv6 tcp 7001" and so on, with what the other end took the caller for; empty where no
// answer came.
using Answers = std::map<std::string, std::string>;

enum class Caller : uint8_t { kPod, kNode, kOtherPod };

// One end of a link: its addresses are 10.9.NET.HOST and fd09:NET::HOST (host 254 as in the text).
struct End {
  const char* interface;
  int net;
  int host;
};

// Caller and target, and the address that the node masquerades with; the source if it does not.
struct Route {
  Way way;
  const char* name;
  Caller from;
  End source;
  End target;
  End masqueraded;
};
inline constexpr Route kRoutes[] = {
    {Way::kToNode, "to the node", Caller::kPod, {"", 1, 2}, {"", 1, 254}, {"", 1, 2}},
    {Way::kFromNode, "from the node", Caller::kNode, {"", 1, 254}, {"", 3, 2}, {"", 3, 254}},
    {Way::kForwarded, "forwarded", Caller::kPod, {"", 1, 2}, {"", 3, 2}, {"", 3, 254}},
    {Way::kTunnelled, "tunnelled", Caller::kPod, {"", 1, 2}, {"", 2, 2}, {"", 0, 1}},
    {Way::kFromTunnel, "from the tunnel", Caller::kOtherPod, {"", 2, 2}, {"", 1, 2}, {"", 1, 254}},
};

inline void Ip(const std::string& lines) { MustRun({"ip", "-batch", "-"}, lines); }

inline std::string Ipv4(const End& end) { return absl::StrCat("10.9.", end.net, ".", end.host); }
inline std::string Ipv6(const End& end) {
  return absl::StrCat(end.net == 0 ? "fd09::" : absl::StrCat("fd09:", end.net, "::"), end.host);
}
inline std::string TextOf(const End& end, IpFamily family) {
  return family == IpFamily::kIpv4 ? Ipv4(end) : Ipv6(end);
}
inline std::string Mac(const End& end) {
  return absl::StrCat("02:00:00:00:0", end.net, ":", end.host == 254 ? "fe" : "0",
                      end.host == 254 ? "" : absl::StrCat(end.host));
}

// The lines that make `end` known to itself, and `there` to it permanently: ARP requests would be
// counted with the other packets.
inline std::string SetUp(const End& end, const End& there) {
  const std::string& dev = end.interface;
  return absl::StrCat("addr add ", Ipv4(end), "/24 dev ", dev, "\naddr add ", Ipv6(end), "/64 dev ",
                      dev, " nodad\nlink set ", dev, " up\nneigh replace ", Ipv4(there), " lladdr ",
                      Mac(there), " dev ", dev, " nud permanent\n", "neigh replace ", Ipv6(there),
                      " lladdr ", Mac(there), " dev ", dev, " nud permanent\n");
}

inline std::string DefaultRoutes(const End& via) {
  return absl::StrCat("route add default via ", Ipv4(via), "\nroute add ::/0 via ", Ipv6(via),
                      "\n");
}

inline void Link(const End& here, const End& there, const Netns& netns, bool default_route) {
  Ip(absl::StrCat("link add ", here.interface, " address ", Mac(here), " type veth peer name ",
                  there.interface, " address ", Mac(there), " netns ", netns.Path(), "\n",
                  SetUp(here, there)));
  const InNetns inside(netns);
  Ip(SetUp(there, here) + (default_route ? DefaultRoutes(here) : ""));
}

// Reports of MLDv2 leave with a number of the kernel's own where the mark is (sk_buff has one place
// for both, mark and reserved_tailroom), and would be counted as marked; those of MLDv1 do not.
inline void ReportAsMldv1() { SetSysctl("ipv6/conf/default/force_mld_version", "1"); }

inline void Forward() {
  SetSysctl("ipv4/ip_forward", "1");
  SetSysctl("ipv6/conf/all/forwarding", "1");
}

// The tunnel's end in the calling thread's namespace, and the way to the pods at the other.
inline void AddTunnel(const End& under, const End& there_under, int host, int there_host) {
  const End here = {kTunnelInterface, 0, host};
  const End there = {kTunnelInterface, 0, there_host};
  Ip(absl::StrCat("link add ", kTunnelInterface, " address ", Mac(here), " type vxlan id 42 local ",
                  Ipv4(under), " remote ", Ipv4(there_under), " dstport ", kVxlanPort, " dev ",
                  under.interface, "\n", SetUp(here, there), "route add 10.9.", there_host,
                  ".0/24 via ", Ipv4(there), "\nroute add fd09:", there_host, "::/64 via ",
                  Ipv6(there), "\n"));
}

template <typename Make>
inline void ForEachCall(const std::vector<Way>& ways, uint16_t port, Make make) {
  for (const Way way : ways) {
    const Route& route = kRoutes[static_cast<size_t>(way)];
    EXPECT_EQ(route.way, way);
    for (const IpFamily family : kBothFamilies) {
      for (const Protocol protocol : kBothProtocols) {
        make(absl::StrCat(route.name, " ", NameOf(family), " ", NameOf(protocol), " ", port), route,
             family, protocol);
      }
    }
  }
}

class TunnelWorld {
 public:
  // All answer at each of `ports`. Errors fail the test.
  explicit TunnelWorld(const std::vector<uint16_t>& ports)
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

  // The connections of `ways`, both families, UDP and TCP, to `port`: to be asked again and again.
  std::map<std::string, EchoCall> Open(const std::vector<Way>& ways, uint16_t port) const {
    std::map<std::string, EchoCall> calls;
    const auto node = Netns::Current();
    EXPECT_TRUE(node.ok()) << node.status();
    ForEachCall(
        ways, port,
        [&](const std::string& name, const Route& route, IpFamily family, Protocol protocol) {
          const InNetns inside(route.from == Caller::kNode  ? *node
                               : route.from == Caller::kPod ? pod_
                                                            : other_pod_);
          calls.emplace(name, EchoCall({.protocol = protocol,
                                        .address = TextOf(route.target, family),
                                        .port = port,
                                        .source = TextOf(route.source, family)}));
        });
    return calls;
  }
  // Opens them anew and asks once.
  Answers Ask(const std::vector<Way>& ways, uint16_t port, absl::Duration patience) const {
    std::map<std::string, EchoCall> calls = Open(ways, port);
    return EchoCall::AskAll(calls, patience);
  }

  // The answers where no rule interferes, where the node masquerades (which it cannot do with
  // packets for itself), and where nothing gets through.
  static Answers Unchanged(const std::vector<Way>& ways, uint16_t port) {
    return Seen(ways, port, &Route::source);
  }
  static Answers Masqueraded(const std::vector<Way>& ways, uint16_t port) {
    return Seen(ways, port, &Route::masqueraded);
  }
  static Answers Nothing(const std::vector<Way>& ways, uint16_t port) {
    Answers answers = Unchanged(ways, port);
    for (auto& [name, answer] : answers) answer.clear();
    return answers;
  }

 private:
  static Answers Seen(const std::vector<Way>& ways, uint16_t port, End Route::*from) {
    Answers answers;
    ForEachCall(ways, port,
                [&](const std::string& name, const Route& route, IpFamily family, Protocol) {
                  answers[name] = TextOf(route.*from, family);
                });
    return answers;
  }

  const Netns pod_;
  const Netns neighbour_;
  const Netns other_node_;
  const Netns other_pod_;
  // In their namespaces.
  std::list<EchoServer> servers_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_INTEROP_TUNNEL_WORLD_H_
