// SPDX-License-Identifier: Apache-2.0
#include "tests/support/raw_packet.h"

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace kipt::testing {
namespace {

constexpr size_t kIpHeader = 20;
constexpr size_t kIpIdOffset = 4;

void Put16(PacketBytes& bytes, uint16_t value) {
  bytes.push_back(static_cast<uint8_t>(value >> 8));
  bytes.push_back(static_cast<uint8_t>(value & 0xff));
}

void Put32(PacketBytes& bytes, uint32_t value) {
  Put16(bytes, static_cast<uint16_t>(value >> 16));
  Put16(bytes, static_cast<uint16_t>(value & 0xffff));
}

void Append(PacketBytes& bytes, const PacketBytes& more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

void SetChecksum(PacketBytes& bytes, size_t offset, const PacketBytes& covered) {
  uint32_t sum = 0;
  for (size_t i = 0; i < covered.size(); i += 2) {
    const uint32_t low = i + 1 < covered.size() ? covered[i + 1] : 0;
    sum += static_cast<uint32_t>(covered[i]) << 8 | low;
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  bytes[offset] = static_cast<uint8_t>(~sum >> 8 & 0xff);
  bytes[offset + 1] = static_cast<uint8_t>(~sum & 0xff);
}

// Fills in the checksum at `offset`, which covers the addresses too.
void SetTransportChecksum(const AddressBytes& ends, uint8_t protocol, size_t offset,
                          PacketBytes& segment) {
  PacketBytes covered = ends;
  Put32(covered, static_cast<uint32_t>(segment.size()));
  Put32(covered, protocol);
  Append(covered, segment);
  SetChecksum(segment, offset, covered);
  // Zero would mean that there is none (RFC 768); all ones is the same number.
  if (segment[offset] == 0 && segment[offset + 1] == 0) {
    segment[offset] = segment[offset + 1] = 0xff;
  }
}

PacketBytes Ip(const AddressBytes& ends, uint16_t id, uint8_t protocol,
               const PacketBytes& payload) {
  constexpr uint8_t kTimeToLive = 64;
  PacketBytes packet;
  if (ends.size() == 8) {
    Put16(packet, 0x4500);
    Put16(packet, static_cast<uint16_t>(kIpHeader + payload.size()));
    Put16(packet, id);
    Put16(packet, 0);
    Append(packet, {kTimeToLive, protocol, 0, 0});
    Append(packet, ends);
    SetChecksum(packet, 10, PacketBytes(packet));
  } else {
    Put32(packet, 6U << 28);
    Put16(packet, static_cast<uint16_t>(payload.size()));
    Append(packet, {protocol, kTimeToLive});
    Append(packet, ends);
  }
  Append(packet, payload);
  return packet;
}

PacketBytes Icmp(IpEnds ends, uint16_t id, uint8_t type, uint8_t code, uint32_t rest,
                 const PacketBytes& quoted) {
  PacketBytes payload = {type, code, 0, 0};
  Put32(payload, rest);
  Append(payload, quoted);
  SetChecksum(payload, 2, PacketBytes(payload));
  return Ip(ends, id, IPPROTO_ICMP, payload);
}

absl::Status Send(int fd, const PacketBytes& packet, const void* address, socklen_t size) {
  const ssize_t sent =
      sendto(fd, packet.data(), packet.size(), 0, static_cast<const sockaddr*>(address), size);
  const int error = sent < 0 ? errno : 0;
  close(fd);
  // A drop by an output hook is reported as EPERM.
  return error == 0 || error == EPERM ? absl::OkStatus() : absl::ErrnoToStatus(error, "sendto");
}

}  // namespace

IpEnds::operator AddressBytes() const {
  AddressBytes bytes;
  Put32(bytes, source);
  Put32(bytes, destination);
  return bytes;
}

PacketBytes TcpPacket(const AddressBytes& ends, uint16_t id, Ports ports, uint32_t sequence,
                      uint32_t acknowledged, uint8_t flags, const PacketBytes& payload) {
  constexpr uint8_t kHeaderWords = 5 << 4;
  PacketBytes segment;
  Put16(segment, ports.source);
  Put16(segment, ports.destination);
  Put32(segment, sequence);
  Put32(segment, acknowledged);
  Append(segment, {kHeaderWords, flags});
  Put16(segment, 65535);  // window
  Put32(segment, 0);      // checksum, urgent pointer
  Append(segment, payload);
  SetTransportChecksum(ends, IPPROTO_TCP, 16, segment);
  return Ip(ends, id, IPPROTO_TCP, segment);
}

PacketBytes UdpPacket(const AddressBytes& ends, uint16_t id, Ports ports,
                      const PacketBytes& payload) {
  PacketBytes segment;
  Put16(segment, ports.source);
  Put16(segment, ports.destination);
  Put16(segment, static_cast<uint16_t>(8 + payload.size()));
  Put16(segment, 0);
  Append(segment, payload);
  SetTransportChecksum(ends, IPPROTO_UDP, 6, segment);
  return Ip(ends, id, IPPROTO_UDP, segment);
}

PacketBytes DamagedUdpPacket(IpEnds ends, uint16_t id, Ports ports) {
  PacketBytes packet = UdpPacket(ends, id, ports, {0, 0, 0, 0});
  packet[kIpHeader + 5] = 4;
  return packet;
}

PacketBytes EchoRequest(IpEnds ends, uint16_t id, uint16_t echo_id) {
  return Icmp(ends, id, 8, 0, static_cast<uint32_t>(echo_id) << 16, {});
}

PacketBytes EchoReply(IpEnds ends, uint16_t id, uint16_t echo_id) {
  return Icmp(ends, id, 0, 0, static_cast<uint32_t>(echo_id) << 16, {});
}

PacketBytes Unreachable(IpEnds ends, uint16_t id, const PacketBytes& packet) {
  const size_t quoted = std::min(packet.size(), kIpHeader + 8);
  return Icmp(ends, id, 3, 3, 0,
              PacketBytes(packet.begin(), packet.begin() + static_cast<ptrdiff_t>(quoted)));
}

absl::Status SendAsLocal(const PacketBytes& packet, uint32_t mark) {
  const int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
  if (fd < 0) return absl::ErrnoToStatus(errno, "a raw socket");
  if (setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)) != 0) {
    const int error = errno;
    close(fd);
    return absl::ErrnoToStatus(error, "SO_MARK");
  }
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  std::memcpy(&to.sin_addr, packet.data() + 16, sizeof(to.sin_addr));
  return Send(fd, packet, &to, sizeof(to));
}

sockaddr_ll WireAddress(const std::string& interface, const std::vector<uint8_t>& mac) {
  sockaddr_ll to = {};
  to.sll_family = AF_PACKET;
  to.sll_protocol = htons(ETHERTYPE_IP);
  to.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  to.sll_halen = static_cast<uint8_t>(mac.size());
  std::copy(mac.begin(), mac.end(), to.sll_addr);
  return to;
}

absl::Status SendOnWire(const PacketBytes& packet, const std::string& interface,
                        const std::vector<uint8_t>& mac) {
  const int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "a packet socket");
  const sockaddr_ll to = WireAddress(interface, mac);
  return Send(fd, packet, &to, sizeof(to));
}

PacketReceiver::PacketReceiver(int protocol)
    : fd_(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol)) {}

PacketReceiver::~PacketReceiver() { close(fd_); }

int PacketReceiver::Count(uint16_t id, int wait_ms) {
  if (fd_ < 0) return -1;
  int count = 0;
  pollfd ready = {.fd = fd_, .events = POLLIN, .revents = 0};
  while (poll(&ready, 1, count == 0 ? wait_ms : 0) > 0) {
    std::array<uint8_t, 256> packet = {};
    const ssize_t size = recv(fd_, packet.data(), packet.size(), 0);
    if (size < static_cast<ssize_t>(kIpHeader)) continue;
    if ((packet[kIpIdOffset] << 8 | packet[kIpIdOffset + 1]) == id) ++count;
  }
  return count;
}

}  // namespace kipt::testing
