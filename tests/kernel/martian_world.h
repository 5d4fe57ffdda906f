// SPDX-License-Identifier: Apache-2.0
//
// A node that routes 127.0.0.0/8 as kube-proxy makes it (route_localnet), a neighbour on its link,
// and packets that meet the node's connection tracking in every way there is.
#ifndef KIPT_TESTS_KERNEL_MARTIAN_WORLD_H_
#define KIPT_TESTS_KERNEL_MARTIAN_WORLD_H_

#include <netinet/in.h>

#include <cstdint>
#include <map>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/matchers.h"
#include "tests/support/netns.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/raw_packet.h"
#include "tests/support/run_program.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {

inline constexpr uint32_t kLocal = 0x7f000001;       // 127.0.0.1
inline constexpr uint32_t kOtherLocal = 0x7f000002;  // 127.0.0.2
inline constexpr uint32_t kNode = 0x0a090001;        // 10.9.0.1
inline constexpr uint32_t kNeighbour = 0x0a090002;   // 10.9.0.2
inline const std::vector<uint8_t> kNodeMac = {2, 0, 0, 0, 0, 1};

// IP ids: of the packet that is tested, of those that make its connection, and of the last one,
// which shows on arrival that all packets before it were processed.
inline constexpr uint16_t kTested = 0x4b69;
inline constexpr uint16_t kOther = 0x4b70;
inline constexpr uint16_t kLast = 0x4b71;

// On packets that the test makes, to exclude answers of the node's own stack.
inline constexpr uint32_t kOurMark = 1;

inline constexpr Ports kPorts = {1234, 5555};
inline constexpr uint16_t kEchoId = 7;
// The ports of a connection that announces another one, and the port of that one.
inline constexpr Ports kAnnouncing = {5555, 9999};
inline constexpr uint16_t kAnnounced = 7777;

inline constexpr char kProbes[] = R"(
table ip probe {
  ct expectation later {
    protocol EXPECTED
    dport 7777
    timeout 1m
    size 8
    l3proto ip
  }
  chain raw_in {
    type filter hook prerouting priority raw
    NOTRACK
  }
  chain raw_out {
    type filter hook output priority raw
    meta mark != 1 drop
    NOTRACK
  }
  chain dnat_in {
    type nat hook prerouting priority dstnat
    ip daddr 10.9.0.1 ip id 0x4b69 DNAT
  }
  chain dnat_out {
    type nat hook output priority -100
    ip daddr 10.9.0.1 ip id 0x4b69 DNAT
  }
  chain announce {
    type filter hook output priority -150
    udp dport 9999 ct expectation set "later"
  }
}
)";

// Count the packet as what it is seen, and once more where it was let through.
inline constexpr char kCounters[] = R"(
table ip probe {
  counter DIRECTION_new { }
  counter DIRECTION_established { }
  counter DIRECTION_related { }
  counter DIRECTION_invalid { }
  counter DIRECTION_untracked { }
  counter DIRECTION_dnat { }
  counter DIRECTION_passed { }
  chain see_DIRECTION {
    type filter hook HOOK priority -50
    ip id != 0x4b69 accept
    ct state new counter name DIRECTION_new
    ct state established counter name DIRECTION_established
    ct state related counter name DIRECTION_related
    ct state invalid counter name DIRECTION_invalid
    ct state untracked counter name DIRECTION_untracked
    ct status dnat counter name DIRECTION_dnat
  }
  chain pass_DIRECTION {
    type filter hook HOOK priority 50
    ip id 0x4b69 counter name DIRECTION_passed
  }
}
)";

// How connection tracking takes the packet.
enum class Meeting : uint8_t {
  kNew,
  kEstablished,  // in the direction in which the connection was made
  kAnswer,       // established, too: the other side made it
  kRelated,
  kDnat,
  kInvalid,
  kUntracked
};
// From the neighbour, or made on the node.
enum class Way : uint8_t { kIn, kOut };

struct MartianCase {
  std::string name;
  Meeting meeting;
  Way way;
  int protocol;  // IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP
  // False: its addresses are no martian's.
  bool martian = true;
};
inline void PrintTo(const MartianCase& row, std::ostream* stream) { *stream << row.name; }

// What became of one packet.
struct Fate {
  int received = 0;
  // Per hook: that it came there ("in new", "out dnat", ...), and that it was let through
  // ("in passed").
  std::map<std::string, int> counters;

  bool operator==(const Fate&) const = default;
};
inline void PrintTo(const Fate& fate, std::ostream* stream) {
  *stream << "received " << fate.received;
  for (const auto& [name, count] : fate.counters) *stream << ", " << name << " " << count;
}

class MartianWorld {
 public:
  // `row` must outlive the world. Errors fail the test. Without probes there are no counters and no
  // DNAT, and only the tested rules turn connection tracking on.
  explicit MartianWorld(const MartianCase& row, bool with_probes = true)
      : row_(row), node_(NewNetns()), neighbour_(NewNetns()) {
    const InNetns inside(node_);
    MustRun({"ip", "link", "add", "veth0", "address", "02:00:00:00:00:01", "type", "veth", "peer",
             "name", "veth1", "address", "02:00:00:00:00:02", "netns", neighbour_.Path()});
    MustRun({"ip", "address", "add", "10.9.0.1/24", "dev", "veth0"});
    MustRun({"ip", "link", "set", "veth0", "up"});
    // The neighbour does not answer an ARP request from 127.0.0.1.
    MustRun({"ip", "neigh", "replace", "10.9.0.2", "lladdr", "02:00:00:00:00:02", "dev", "veth0"});
    {
      const InNetns there(neighbour_);
      MustRun({"ip", "link", "set", "veth1", "up"});
    }
    SetSysctl("ipv4/conf/all/route_localnet", "1");
    SetSysctl("ipv4/conf/veth0/route_localnet", "1");
    SetSysctl("ipv4/conf/all/rp_filter", "0");
    SetSysctl("ipv4/conf/veth0/rp_filter", "0");
    if (!with_probes) return;
    const std::string probes = absl::StrCat(
        absl::StrReplaceAll(
            kProbes,
            {{"EXPECTED", row_.protocol == IPPROTO_TCP ? "tcp" : "udp"},
             {"NOTRACK", row_.meeting == Meeting::kUntracked ? "ip id 0x4b69 notrack" : ""},
             {"DNAT", row_.meeting == Meeting::kDnat ? "dnat to 127.0.0.1" : "accept"}}),
        absl::StrReplaceAll(kCounters, {{"DIRECTION", "in"}, {"HOOK", "input"}}),
        absl::StrReplaceAll(kCounters, {{"DIRECTION", "out"}, {"HOOK", "output"}}));
    MustRun({"nft", "-f", "-"}, probes);
    // A packet from the middle of a connection is not taken for its beginning.
    SetSysctl("netfilter/nf_conntrack_tcp_loose", "0");
  }

  // Where the rules that are tested belong.
  const Netns& node() const { return node_; }

  // Makes the connection that the packet is to belong to.
  void MakeConnection() {
    if (row_.meeting == Meeting::kEstablished) Establish();
    if (row_.meeting == Meeting::kAnswer) Ask();
    if (row_.meeting == Meeting::kRelated) {
      Back(UdpPacket(Ends().Reversed(), kOther, kAnnouncing));
    }
  }
  // Sends the packet, once.
  Fate SendPacket() {
    const InNetns inside(node_);
    PacketReceiver tested(row_.protocol);
    PacketReceiver last(IPPROTO_UDP);
    Forth(Packet());
    // Takes the same way, and no rule here is about it.
    Forth(UdpPacket(row_.way == Way::kIn ? IpEnds{kNeighbour, kNode} : IpEnds{kLocal, kLocal},
                    kLast, {1, 2}));
    EXPECT_EQ(last.Count(kLast, /*wait_ms=*/5000), 1) << "no packet comes through at all";
    return {.received = tested.Count(kTested, /*wait_ms=*/0), .counters = ReadCounters()};
  }

 private:
  IpEnds Ends() const {
    const uint32_t outside = row_.way == Way::kIn ? kNeighbour : kNode;
    if (row_.martian) return {outside, kLocal};
    return row_.way == Way::kIn ? IpEnds{kNeighbour, kNode} : IpEnds{kOtherLocal, kLocal};
  }
  // By the way of the case, and against it.
  void Forth(const PacketBytes& packet) {
    if (row_.way == Way::kOut) {
      const InNetns inside(node_);
      EXPECT_THAT(SendAsLocal(packet, kOurMark), IsOk());
      return;
    }
    const InNetns inside(neighbour_);
    EXPECT_THAT(SendOnWire(packet, "veth1", kNodeMac), IsOk());
  }
  void Back(const PacketBytes& packet) {
    const InNetns inside(node_);
    EXPECT_THAT(SendAsLocal(packet, kOurMark), IsOk());
  }
  void Establish() {
    const IpEnds ends = Ends();
    const IpEnds back = ends.Reversed();
    if (row_.protocol == IPPROTO_TCP) {
      Forth(TcpPacket(ends, kOther, kPorts, 100, 0, kTcpSyn));
      Back(TcpPacket(back, kOther, kPorts.Reversed(), 500, 101, kTcpSyn | kTcpAck));
      Forth(TcpPacket(ends, kOther, kPorts, 101, 501, kTcpAck));
    } else if (row_.protocol == IPPROTO_UDP) {
      Forth(UdpPacket(ends, kOther, kPorts));
      Back(UdpPacket(back, kOther, kPorts.Reversed()));
    } else {
      Forth(EchoRequest(ends, kOther, kEchoId));
      Back(EchoReply(back, kOther, kEchoId));
    }
  }
  // The node's first packet, to which the one that is tested is the answer.
  void Ask() {
    const IpEnds back = Ends().Reversed();
    if (row_.protocol == IPPROTO_TCP) {
      Back(TcpPacket(back, kOther, kPorts.Reversed(), 100, 0, kTcpSyn));
    } else if (row_.protocol == IPPROTO_UDP) {
      Back(UdpPacket(back, kOther, kPorts.Reversed()));
    } else {
      Back(EchoRequest(back, kOther, kEchoId));
    }
  }
  PacketBytes Packet() const {
    IpEnds ends = Ends();
    const bool icmp = row_.protocol == IPPROTO_ICMP;
    switch (row_.meeting) {
      case Meeting::kDnat:
        // The node makes 127.0.0.1 of it.
        ends.destination = kNode;
        return FirstPacket(ends);
      case Meeting::kEstablished:
        if (row_.protocol != IPPROTO_TCP) return FirstPacket(ends);
        return TcpPacket(ends, kTested, kPorts, 101, 501, kTcpAck);
      case Meeting::kAnswer:
        if (icmp) return EchoReply(ends, kTested, kEchoId);
        if (row_.protocol == IPPROTO_UDP) return FirstPacket(ends);
        return TcpPacket(ends, kTested, kPorts, 500, 101, kTcpSyn | kTcpAck);
      case Meeting::kRelated:
        if (icmp) {
          return Unreachable(ends, kTested, UdpPacket(ends.Reversed(), kOther, kAnnouncing));
        }
        if (row_.protocol == IPPROTO_UDP) return UdpPacket(ends, kTested, {1234, kAnnounced});
        return TcpPacket(ends, kTested, {1234, kAnnounced}, 100, 0, kTcpSyn);
      case Meeting::kInvalid:
        // Of no connection, and not the beginning of one.
        if (icmp) return EchoReply(ends, kTested, kEchoId);
        if (row_.protocol == IPPROTO_UDP) return DamagedUdpPacket(ends, kTested, kPorts);
        return TcpPacket(ends, kTested, kPorts, 100, 200, kTcpAck);
      case Meeting::kNew:
      case Meeting::kUntracked:
        break;
    }
    return FirstPacket(ends);
  }
  PacketBytes FirstPacket(IpEnds ends) const {
    if (row_.protocol == IPPROTO_TCP) return TcpPacket(ends, kTested, kPorts, 100, 0, kTcpSyn);
    if (row_.protocol == IPPROTO_UDP) return UdpPacket(ends, kTested, kPorts);
    return EchoRequest(ends, kTested, kEchoId);
  }
  std::map<std::string, int> ReadCounters() const {
    const ProgramResult listed = RunProgram({"nft", "list", "counters"});
    EXPECT_EQ(listed.exit_code, 0) << listed;
    std::map<std::string, int> counters;
    std::istringstream words(listed.out);
    std::string name;
    for (std::string word; words >> word;) {
      if (word == "counter") words >> name;
      int packets = 0;
      if (word == "packets" && words >> packets && packets != 0) counters[name] = packets;
    }
    return counters;
  }

  const MartianCase& row_;
  Netns node_;
  Netns neighbour_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_KERNEL_MARTIAN_WORLD_H_
