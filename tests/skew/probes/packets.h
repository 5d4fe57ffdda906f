// SPDX-License-Identifier: Apache-2.0
//
// The contents by which receivers recognise packets of a battery and of streams. Lengths matter: a
// rule's byte counter shows which packets it has counted (drop_counters.h).
#ifndef KIPT_TESTS_SKEW_PROBES_PACKETS_H_
#define KIPT_TESTS_SKEW_PROBES_PACKETS_H_

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/process/files.h"
#include "tests/skew/node/test_node.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/raw_packet.h"

namespace kipt::skew {

// An address of either family with its port, as the socket calls take and give it: sockaddr_in,
// sockaddr_in6, or sockaddr_ll.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(sockaddr_storage);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  // As inet_ntop writes it, without the port.
  std::string Text() const;
};

// InvalidArgument: `address` is not one of `family`, or `port` none.
absl::StatusOr<SocketAddress> AddressAt(testing::IpFamily family, const std::string& address,
                                        int port);
// 0.0.0.0 or ::.
SocketAddress AnyAddress(testing::IpFamily family, int port);

// AF_INET or AF_INET6.
int DomainOf(testing::IpFamily family);

// From now on `epoll` reports `events` (EPOLLIN, ...) of `fd`, by its number. The error is the
// kernel's.
absl::Status Watch(int epoll, int fd, uint32_t events);

// How one knows that a packet will not come any more, without waiting for an arbitrary time.

// Virtual interfaces hand packets on through one queue per CPU (netif_rx() and process_backlog() of
// net/core/dev.c), in order, and a packet's further ways go through the queue of the same CPU. So
// what was sent before has arrived, or will not, when as many packets as it has hops have come
// back, one after the other, through the loopback interface of every CPU. Usually that is at once;
// on a busy machine it is when ksoftirqd has had its turn.
class PacketBarrier {
 public:
  // With a network namespace of its own, which has no rules.
  static absl::StatusOr<PacketBarrier> Create();

  // Returns when all packets that this process has sent before are where they go, and those with
  // which kernels answered them. Moves the calling thread from CPU to CPU; afterwards it may run
  // where it might before. DeadlineExceeded: a queue has not moved for five seconds.
  absl::Status Pass() const;

 private:
  explicit PacketBarrier(agent::OwnedFd fd) : fd_(std::move(fd)) {}
  // A datagram socket that is connected to itself.
  agent::OwnedFd fd_;
};

// Of a battery: one connection of a probe. Bytes only ever come back to this machine.
struct Message {
  // The battery, and how many rounds of questions it has asked.
  uint64_t battery = 0;
  uint32_t round = 0;
  uint32_t probe = 0;
  uint32_t connection = 0;
  // Of an answer: 1 + the Place that gives it. Of a question: 0.
  uint32_t answerer = 0;

  bool operator==(const Message&) const = default;
};
inline constexpr size_t kMessageBytes = sizeof(Message);
static_assert(kMessageBytes == 24);
using MessageBytes = std::array<uint8_t, kMessageBytes>;

// Of a stream.
struct StreamMessage {
  uint64_t streams = 0;
  uint32_t stream = 0;
  uint32_t number = 0;
};
inline constexpr size_t kStreamMessageBytes = sizeof(StreamMessage);
static_assert(kStreamMessageBytes == 16);
using StreamMessageBytes = std::array<uint8_t, kStreamMessageBytes>;

template <typename AMessage>
std::array<uint8_t, sizeof(AMessage)> BytesOf(const AMessage& message) {
  std::array<uint8_t, sizeof(AMessage)> bytes = {};
  std::memcpy(bytes.data(), &message, sizeof(message));
  return bytes;
}
// Nothing where it is of another length.
template <typename AMessage>
std::optional<AMessage> MessageIn(const void* bytes, size_t size) {
  if (size != sizeof(AMessage)) return std::nullopt;
  AMessage message;
  std::memcpy(&message, bytes, sizeof(message));
  return message;
}

// A number that no other battery or stream has, on any node.
uint64_t FreshNumber();

// Packets made byte by byte, from the IP header on: to addresses that no socket of a neighbour
// sends to, and many a second without a socket for each.

struct FrameEnds {
  testing::IpFamily family = testing::IpFamily::kIpv4;
  // As inet_pton reads them.
  std::string source;
  std::string destination;
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
};

using FrameBytes = testing::PacketBytes;

// With all checksums.
FrameBytes UdpFrame(const FrameEnds& ends, const void* payload, size_t size);
// IPv4. A SYN may carry a payload (RFC 9293, 3.4), which the kernel disregards and hands to raw
// sockets.
FrameBytes TcpFrame(const FrameEnds& ends, uint32_t sequence, uint8_t flags, const void* payload,
                    size_t size);

// Lengths of packets with a payload of that many bytes, as iptables counts them.
size_t UdpLength(testing::IpFamily family, size_t payload);
// Of the kernel's own SYN: with its usual 20 bytes of options.
size_t KernelSynLength(testing::IpFamily family);
size_t TcpFrameLength(size_t payload);

// Where frames go to. Move-only.
class FrameSender {
 public:
  // What `from` puts on the wire to the node unchanged, past its own routing and hooks. IPv4.
  // InvalidArgument: it is no neighbour of the node.
  static absl::StatusOr<FrameSender> OnWire(const TestNode& node, Place from);
  // What `from` routes to `destination`, through all its hooks.
  static absl::StatusOr<FrameSender> Routed(const TestNode& node, Place from,
                                            testing::IpFamily family,
                                            const std::string& destination);

  // False where the kernel has no room. What one of its output hooks drops is taken.
  bool Send(const FrameBytes& frame) const;

 private:
  FrameSender(agent::OwnedFd fd, const SocketAddress& to) : fd_(std::move(fd)), to_(to) {}
  agent::OwnedFd fd_;
  SocketAddress to_;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_PROBES_PACKETS_H_
