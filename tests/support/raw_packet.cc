// SPDX-License-Identifier: Apache-2.0
#include "tests/support/raw_packet.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_packet.h>
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

#include "tests/support/checksum.h"

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

PacketBytes Ip(IpEnds ends, uint16_t id, int protocol, const PacketBytes& payload) {
  constexpr uint8_t kVersionAndLength = 0x45;
  constexpr uint8_t kTimeToLive = 64;
  PacketBytes packet = {kVersionAndLength, 0};
  Put16(packet, static_cast<uint16_t>(kIpHeader + payload.size()));
  Put16(packet, id);
  Put16(packet, 0);
  packet.push_back(kTimeToLive);
  packet.push_back(static_cast<uint8_t>(protocol));
  Put16(packet, 0);
  Put32(packet, ends.source);
  Put32(packet, ends.destination);
  SetChecksum(packet, 10, Checksum(packet));
  packet.insert(packet.end(), payload.begin(), payload.end());
  return packet;
}

PacketBytes Udp(Ports ports, uint16_t length) {
  PacketBytes payload;
  Put16(payload, ports.source);
  Put16(payload, ports.destination);
  Put16(payload, length);
  Put16(payload, 0);
  Put32(payload, 0);
  return payload;
}

PacketBytes Icmp(IpEnds ends, uint16_t id, uint8_t type, uint8_t code, uint32_t rest,
                 const PacketBytes& quoted) {
  PacketBytes payload = {type, code, 0, 0};
  Put32(payload, rest);
  payload.insert(payload.end(), quoted.begin(), quoted.end());
  SetChecksum(payload, 2, Checksum(payload));
  return Ip(ends, id, IPPROTO_ICMP, payload);
}

absl::Status Send(int fd, const PacketBytes& packet, const void* address, socklen_t size) {
  const ssize_t sent =
      sendto(fd, packet.data(), packet.size(), 0, static_cast<const sockaddr*>(address), size);
  const int error = sent < 0 ? errno : 0;
  close(fd);
  // What an output hook drops is told so.
  return error == 0 || error == EPERM ? absl::OkStatus() : absl::ErrnoToStatus(error, "sendto");
}

}  // namespace

PacketBytes TcpPacket(IpEnds ends, uint16_t id, Ports ports, uint32_t sequence,
                      uint32_t acknowledged, uint8_t flags) {
  constexpr uint8_t kHeaderWords = 5 << 4;
  constexpr uint16_t kHeaderBytes = 20;
  PacketBytes payload;
  Put16(payload, ports.source);
  Put16(payload, ports.destination);
  Put32(payload, sequence);
  Put32(payload, acknowledged);
  payload.push_back(kHeaderWords);
  payload.push_back(flags);
  Put16(payload, 65535);  // window
  Put32(payload, 0);      // checksum, urgent pointer
  PacketBytes summed;
  Put32(summed, ends.source);
  Put32(summed, ends.destination);
  Put16(summed, IPPROTO_TCP);
  Put16(summed, kHeaderBytes);
  summed.insert(summed.end(), payload.begin(), payload.end());
  SetChecksum(payload, 16, Checksum(summed));
  return Ip(ends, id, IPPROTO_TCP, payload);
}

PacketBytes UdpPacket(IpEnds ends, uint16_t id, Ports ports) {
  return Ip(ends, id, IPPROTO_UDP, Udp(ports, /*length=*/12));
}

PacketBytes DamagedUdpPacket(IpEnds ends, uint16_t id, Ports ports) {
  return Ip(ends, id, IPPROTO_UDP, Udp(ports, /*length=*/4));
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

absl::Status SendOnWire(const PacketBytes& packet, const std::string& interface,
                        const std::vector<uint8_t>& mac) {
  const int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "a packet socket");
  sockaddr_ll to = {};
  to.sll_family = AF_PACKET;
  to.sll_protocol = htons(ETHERTYPE_IP);
  to.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  to.sll_halen = static_cast<uint8_t>(mac.size());
  std::copy(mac.begin(), mac.end(), to.sll_addr);
  return Send(fd, packet, &to, sizeof(to));
}

PacketReceiver::PacketReceiver(int protocol)
    : fd_(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol)) {
  EXPECT_GE(fd_, 0) << "a raw socket: " << std::strerror(errno);
}

PacketReceiver::~PacketReceiver() { close(fd_); }

int PacketReceiver::Count(uint16_t id, int wait_ms) {
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
