// SPDX-License-Identifier: Apache-2.0
//
// Three network namespaces: outside is a client, a neighbour of the node; the calling thread's own
// is the node, which forwards; inside is a receiver behind it. All neighbours know each other's
// addresses.
#ifndef KIPT_TESTS_INTEROP_PACKET_WORLD_H_
#define KIPT_TESTS_INTEROP_PACKET_WORLD_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/netns_fixture.h"
#include "tests/support/packet_stream.h"

namespace kipt::testing {

// Addresses in host order.
inline constexpr uint32_t kLoopback = 0x7f000001;       // 127.0.0.1
inline constexpr uint32_t kClient = 0x0a4d0102;         // 10.77.1.2
inline constexpr uint32_t kNodeOutside = 0x0a4d0101;    // 10.77.1.1
inline constexpr uint32_t kNodeInside = 0x0a4d0201;     // 10.77.2.1
inline constexpr uint32_t kReceiver = 0x0a4d0202;       // 10.77.2.2
inline constexpr char kOutsideInterface[] = "outside";  // the node's

class PacketWorld {
 public:
  // What goes wrong fails the test. The node takes packets for 127.0.0.0/8 from the client
  // (route_localnet), as kube-proxy makes it do.
  PacketWorld();

  const Netns& client() const { return client_; }
  const Netns& receiver() const { return receiver_; }

  // From the client: to the node's loopback address, and through the node to the receiver. To be
  // used inside client().
  static StreamPath MartianPath(uint16_t port);
  static StreamPath ForwardedPath(uint16_t port);

  // Sends packets from the client to the node: whether `taker` receives one.
  bool Reaches(PacketTaker& taker, uint32_t destination, uint16_t port) const;

 private:
  Netns client_;
  Netns receiver_;
};

// Packets of each named counter in the table "inet observer".
std::map<std::string, uint64_t> Witnessed();
// Counts the martian packets that come to the node from now on, before any rule drops them.
void WitnessMartians();
uint64_t MartiansArrived();

// A pair of interfaces: `here`, of the calling thread's network namespace, with `here_address`
// ("10.0.0.1/24"), and `there` in `netns`, with its own, and with a default route to here.
struct VethEnd {
  std::string interface;
  std::string address;
  std::string mac;
};
void ConnectVeth(const VethEnd& here, const VethEnd& there, const Netns& netns);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_INTEROP_PACKET_WORLD_H_
