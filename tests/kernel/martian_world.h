// SPDX-License-Identifier: Apache-2.0
//
// A node that routes 127.0.0.0/8 as kube-proxy makes it (route_localnet), a neighbour on its link,
// and packets that meet the node's connection tracking in every way there is.
#ifndef KIPT_TESTS_KERNEL_MARTIAN_WORLD_H_
#define KIPT_TESTS_KERNEL_MARTIAN_WORLD_H_

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/netns.h"
#include "tests/support/raw_packet.h"

namespace kipt::testing {

// How connection tracking takes the packet.
enum class Meeting : uint8_t {
  kNew,
  kEstablished,  // it goes the way the connection was made
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
void PrintTo(const MartianCase& row, std::ostream* stream);

// What became of one packet.
struct Fate {
  int received = 0;
  // Per hook: that it came there ("in new", "out dnat", ...), and that it was let through
  // ("in passed").
  std::map<std::string, int> counters;

  bool operator==(const Fate&) const = default;
};
void PrintTo(const Fate& fate, std::ostream* stream);

class MartianWorld {
 public:
  // `row` must outlive the world. What goes wrong fails the test. Without probes there are no
  // counters, no DNAT, and nothing but the rules that are tested has connections tracked.
  explicit MartianWorld(const MartianCase& row, bool with_probes = true);

  // Where the rules that are tested belong.
  const Netns& node() const { return node_; }

  // Makes the connection that the packet is to belong to.
  void MakeConnection();
  // Sends the packet, once.
  Fate SendPacket();

 private:
  void ConnectNeighbour();
  void LoadProbes();
  IpEnds Ends() const;
  // By the way of the case, and against it.
  void Forth(const PacketBytes& packet);
  void Back(const PacketBytes& packet);
  void Establish();
  void Ask();
  PacketBytes Packet() const;
  PacketBytes FirstPacket(IpEnds ends) const;
  PacketBytes InvalidPacket(IpEnds ends) const;
  std::map<std::string, int> ReadCounters() const;

  const MartianCase& row_;
  Netns node_;
  Netns neighbour_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_KERNEL_MARTIAN_WORLD_H_
