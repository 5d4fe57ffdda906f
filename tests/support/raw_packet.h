// SPDX-License-Identifier: Apache-2.0
//
// Packets made byte by byte, for what no socket of a well-behaved program sends.
#ifndef KIPT_TESTS_SUPPORT_RAW_PACKET_H_
#define KIPT_TESTS_SUPPORT_RAW_PACKET_H_

#include <linux/if_packet.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace kipt::testing {

using PacketBytes = std::vector<uint8_t>;

// The source's and the destination's address as in an IP header: 8 bytes of IPv4, 32 of IPv6.
using AddressBytes = std::vector<uint8_t>;

// Of IPv4, in host order: 0x7f000001 is 127.0.0.1.
struct IpEnds {
  uint32_t source = 0;
  uint32_t destination = 0;

  IpEnds Reversed() const { return {destination, source}; }
  operator AddressBytes() const;  // NOLINT(google-explicit-constructor)
};

struct Ports {
  uint16_t source = 0;
  uint16_t destination = 0;

  Ports Reversed() const { return {destination, source}; }
};

// Flags of TcpPacket.
inline constexpr uint8_t kTcpSyn = 0x02;
inline constexpr uint8_t kTcpReset = 0x04;
inline constexpr uint8_t kTcpAck = 0x10;

// Whole packets, from the IP header on, with all checksums. `id` is the IPv4 header's, by which a
// packet is known again.
PacketBytes TcpPacket(const AddressBytes& ends, uint16_t id, Ports ports, uint32_t sequence,
                      uint32_t acknowledged, uint8_t flags, const PacketBytes& payload = {});
PacketBytes UdpPacket(const AddressBytes& ends, uint16_t id, Ports ports,
                      const PacketBytes& payload = {});
// Its header's length field is shorter than a header.
PacketBytes DamagedUdpPacket(IpEnds ends, uint16_t id, Ports ports);
PacketBytes EchoRequest(IpEnds ends, uint16_t id, uint16_t echo_id);
PacketBytes EchoReply(IpEnds ends, uint16_t id, uint16_t echo_id);
// "Port unreachable", about `packet`.
PacketBytes Unreachable(IpEnds ends, uint16_t id, const PacketBytes& packet);

// From the calling thread's network namespace, through its output hooks, with SO_MARK `mark`.
absl::Status SendAsLocal(const PacketBytes& packet, uint32_t mark);
// The neighbour at `interface` with the hardware address `mac` (6 bytes). A socket of AF_PACKET
// sends there unchanged, past routing and all hooks.
sockaddr_ll WireAddress(const std::string& interface, const std::vector<uint8_t>& mac);
absl::Status SendOnWire(const PacketBytes& packet, const std::string& interface,
                        const std::vector<uint8_t>& mac);

// Takes packets of one protocol that have come through the input hook of the network namespace in
// which it was made.
class PacketReceiver {
 public:
  // `protocol` is an IPPROTO_*.
  explicit PacketReceiver(int protocol);
  ~PacketReceiver();
  PacketReceiver(const PacketReceiver&) = delete;
  PacketReceiver& operator=(const PacketReceiver&) = delete;

  // How many have come with that IP id since the last call; waits `wait_ms` for the first. -1
  // where no socket could be had.
  int Count(uint16_t id, int wait_ms);

 private:
  int fd_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_RAW_PACKET_H_
