// SPDX-License-Identifier: Apache-2.0
//
// Three network namespaces: outside is a client, a neighbour of the node; the calling thread's own
// is the node, which forwards; inside is a receiver, reached through the node. All neighbours know
// each other's addresses.
#ifndef KIPT_TESTS_INTEROP_PACKET_WORLD_H_
#define KIPT_TESTS_INTEROP_PACKET_WORLD_H_

#include "tests/interop/agent_fixture.h"
#include "tests/support/packet_stream.h"

namespace kipt::testing {

// Addresses in host order.
inline constexpr uint32_t kLoopback = 0x7f000001;     // 127.0.0.1
inline constexpr uint32_t kClient = 0x0a4d0102;       // 10.77.1.2
inline constexpr uint32_t kNodeOutside = 0x0a4d0101;  // 10.77.1.1
inline constexpr uint32_t kNodeInside = 0x0a4d0201;   // 10.77.2.1
inline constexpr uint32_t kReceiver = 0x0a4d0202;     // 10.77.2.2

// A pair of interfaces: `here`, of the calling thread's network namespace, with `here_address`
// ("10.0.0.1/24"), and `there` in `netns`, with its own, and with a default route to here.
struct VethEnd {
  std::string interface;
  std::string address;
  std::string mac;
};

inline std::string AddressOf(const VethEnd& end) {
  return end.address.substr(0, end.address.find('/'));
}

// In the namespace of `end`.
inline void SetUpVeth(const VethEnd& end, const VethEnd& neighbour) {
  MustRun({"ip", "address", "add", end.address, "dev", end.interface});
  MustRun({"ip", "link", "set", end.interface, "up"});
  MustRun({"ip", "neigh", "replace", AddressOf(neighbour), "lladdr", neighbour.mac, "dev",
           end.interface});
}
inline void ConnectVeth(const VethEnd& here, const VethEnd& there, const Netns& netns) {
  MustRun({"ip", "link", "add", here.interface, "address", here.mac, "type", "veth", "peer", "name",
           there.interface, "address", there.mac, "netns", netns.Path()});
  SetUpVeth(here, there);
  const InNetns inside(netns);
  SetUpVeth(there, here);
  MustRun({"ip", "route", "add", "default", "via", AddressOf(here)});
}

class PacketWorld {
 public:
  // Errors fail the test. The node takes packets for 127.0.0.0/8 from the client (route_localnet),
  // as kube-proxy makes it do.
  PacketWorld() : client_(NewNetns()), receiver_(NewNetns()) {
    ConnectVeth({"outside", "10.77.1.1/24", "02:00:00:00:00:01"},
                {"client0", "10.77.1.2/24", "02:00:00:00:00:02"}, client_);
    ConnectVeth({"inside", "10.77.2.1/24", "02:00:00:00:00:03"},
                {"receiver0", "10.77.2.2/24", "02:00:00:00:00:04"}, receiver_);
    SetSysctl("ipv4/ip_forward", "1");
    SetSysctl("ipv4/conf/outside/route_localnet", "1");
  }

  const Netns& client() const { return client_; }
  const Netns& receiver() const { return receiver_; }

  // From the client: to the node or through it; to be used inside client().
  static StreamPath Path(uint32_t destination, uint16_t port) {
    return {.interface = "client0",
            .mac = {2, 0, 0, 0, 0, 1},
            .first_source = kClient,
            .destination = destination,
            .port = port};
  }
  static StreamPath MartianPath(uint16_t port) { return Path(kLoopback, port); }
  static StreamPath ForwardedPath(uint16_t port) { return Path(kReceiver, port); }

  // Sends packets from the client to the node: whether `taker` receives one.
  bool Reaches(PacketTaker& taker, uint32_t destination, uint16_t port) const {
    taker.Forget();
    // On a busy machine the sender may get no CPU for a while: no packet sent is no answer.
    constexpr uint64_t kEnoughSent = 20;
    uint64_t sent = 0;
    for (const absl::Time end = absl::Now() + absl::Seconds(5);
         sent < kEnoughSent && absl::Now() < end;) {
      const InNetns outside(client_);
      PacketSender sender(Path(destination, port), /*per_second=*/2000);
      absl::SleepFor(absl::Milliseconds(30));
      sent += sender.Stop();
    }
    EXPECT_GE(sent, kEnoughSent);
    return WaitUntil([&] { return taker.received().packets > 0; }, absl::Milliseconds(100));
  }

 private:
  Netns client_;
  Netns receiver_;
};

// A fixture in such a world, whose node has a listener for martian packets.
inline constexpr uint16_t kMartianPort = 4001;
template <typename Fixture>
class WithPacketWorld : public Fixture {
 protected:
  void SetUp() override {
    Fixture::SetUp();
    world_.emplace();
    listener_.emplace(kLoopback, kMartianPort);
  }
  // Its thread has this test's mount namespace.
  void TearDown() override { listener_.reset(); }

  bool MartiansArrive() { return world_->Reaches(*listener_, kLoopback, kMartianPort); }

  std::optional<PacketWorld> world_;
  std::optional<PacketTaker> listener_;
};

// Packets of each named counter in the table "inet observer".
inline std::map<std::string, uint64_t> ObserverCounters() {
  const ProgramResult result = RunProgram({"nft", "list", "counters", "table", "inet", "observer"});
  EXPECT_EQ(result.exit_code, 0) << result;
  const std::vector<std::string> words =
      absl::StrSplit(result.out, absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
  std::map<std::string, uint64_t> counters;
  std::string name;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "counter") name = words[i + 1];
    if (words[i] == "packets") counters[name] = std::strtoull(words[i + 1].c_str(), nullptr, 10);
  }
  return counters;
}
// Counts the martian packets that come to the node from now on, before any rule drops them.
inline void ObserveMartians() {
  MustRun({"nft", "-f", "-"}, R"(
table inet observer {
  counter martians { }
  chain arrived {
    type filter hook prerouting priority -400
    iifname "outside" ip daddr 127.0.0.0/8 counter name martians
  }
}
)");
}
inline uint64_t MartiansArrived() { return ObserverCounters().at("martians"); }

}  // namespace kipt::testing

#endif  // KIPT_TESTS_INTEROP_PACKET_WORLD_H_
