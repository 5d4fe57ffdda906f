// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/probes/packets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/support/netns.h"

namespace kipt::skew {
namespace {

using agent::OwnedFd;
using testing::InNetns;
using testing::IpFamily;
using testing::Netns;

constexpr size_t kIpv4Header = 20;
constexpr size_t kIpv6Header = 40;
constexpr size_t kUdpHeader = 8;
constexpr size_t kTcpHeader = 20;

FrameBytes AddressBytes(IpFamily family, const std::string& address) {
  FrameBytes bytes(family == IpFamily::kIpv6 ? 16 : 4);
  inet_pton(DomainOf(family), address.c_str(), bytes.data());
  return bytes;
}

FrameBytes Addresses(const FrameEnds& ends) {
  FrameBytes bytes = AddressBytes(ends.family, ends.source);
  const FrameBytes destination = AddressBytes(ends.family, ends.destination);
  bytes.insert(bytes.end(), destination.begin(), destination.end());
  return bytes;
}

FrameBytes Bytes(const void* start, size_t size) {
  const auto* first = static_cast<const uint8_t*>(start);
  return {first, first + size};
}

// From a client to a pod of the second node and back there are six.
constexpr int kHops = 8;
constexpr int kPatienceMilliseconds = 5000;

absl::Status PassHere(const OwnedFd& fd) {
  for (int hop = 0; hop < kHops; ++hop) {
    char byte = 0;
    if (send(fd.get(), &byte, 1, 0) != 1) return absl::ErrnoToStatus(errno, "a packet to itself");
    pollfd waiting = {fd.get(), POLLIN, 0};
    int ready = 0;
    do {
      ready = poll(&waiting, 1, kPatienceMilliseconds);
    } while (ready < 0 && errno == EINTR);
    if (ready == 0) return absl::DeadlineExceededError("a packet to itself has not come");
    if (recv(fd.get(), &byte, 1, 0) != 1) return absl::ErrnoToStatus(errno, "a packet to itself");
  }
  return absl::OkStatus();
}

}  // namespace

int DomainOf(IpFamily family) { return family == IpFamily::kIpv6 ? AF_INET6 : AF_INET; }

std::string SocketAddress::Text() const {
  std::array<char, INET6_ADDRSTRLEN> text = {};
  const void* address = nullptr;
  if (storage.ss_family == AF_INET6) {
    address = &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  } else {
    address = &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr;
  }
  return inet_ntop(storage.ss_family, address, text.data(), text.size()) == nullptr ? ""
                                                                                    : text.data();
}

SocketAddress AnyAddress(IpFamily family, int port) {
  SocketAddress result;
  result.storage.ss_family = static_cast<sa_family_t>(DomainOf(family));
  // Zero is both families' "any"; the port is at the same offset in both.
  auto* any = reinterpret_cast<sockaddr_in*>(&result.storage);
  any->sin_port = htons(static_cast<uint16_t>(port));
  result.size = family == IpFamily::kIpv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return result;
}

absl::StatusOr<SocketAddress> AddressAt(IpFamily family, const std::string& address, int port) {
  SocketAddress result = AnyAddress(family, port);
  void* where = nullptr;
  if (family == IpFamily::kIpv6) {
    where = &reinterpret_cast<sockaddr_in6*>(&result.storage)->sin6_addr;
  } else {
    where = &reinterpret_cast<sockaddr_in*>(&result.storage)->sin_addr;
  }
  if (inet_pton(DomainOf(family), address.c_str(), where) != 1 || port < 1 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(address, " port ", port));
  }
  return result;
}

absl::Status Watch(int epoll, int fd, uint32_t events) {
  epoll_event interest = {};
  interest.events = events;
  interest.data.fd = fd;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &interest) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "epoll_ctl");
}

absl::StatusOr<PacketBarrier> PacketBarrier::Create() {
  const absl::StatusOr<Netns> netns = Netns::Create();
  if (!netns.ok()) return netns.status();
  const InNetns inside(*netns);
  OwnedFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const absl::StatusOr<SocketAddress> self = AddressAt(IpFamily::kIpv4, "127.0.0.1", 9);
  if (!fd.valid() || bind(fd.get(), self->get(), self->size) != 0 ||
      connect(fd.get(), self->get(), self->size) != 0) {
    return absl::ErrnoToStatus(errno, "a socket to itself");
  }
  return PacketBarrier(std::move(fd));
}

absl::Status PacketBarrier::Pass() const {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    return absl::ErrnoToStatus(errno, "sched_getaffinity");
  }
  absl::Status status;
  for (size_t cpu = 0; cpu < CPU_SETSIZE && status.ok(); ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    // A CPU that has gone offline since has no packets.
    if (sched_setaffinity(0, sizeof(one), &one) == 0) status = PassHere(fd_);
  }
  if (sched_setaffinity(0, sizeof(allowed), &allowed) != 0) {
    status.Update(absl::ErrnoToStatus(errno, "sched_setaffinity"));
  }
  return status;
}

uint64_t FreshNumber() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

FrameBytes UdpFrame(const FrameEnds& ends, const void* payload, size_t size) {
  return testing::UdpPacket(Addresses(ends), 0, {ends.source_port, ends.destination_port},
                            Bytes(payload, size));
}

FrameBytes TcpFrame(const FrameEnds& ends, uint32_t sequence, uint8_t flags, const void* payload,
                    size_t size) {
  return testing::TcpPacket(Addresses(ends), 0, {ends.source_port, ends.destination_port}, sequence,
                            0, flags, Bytes(payload, size));
}

size_t UdpLength(IpFamily family, size_t payload) {
  return (family == IpFamily::kIpv6 ? kIpv6Header : kIpv4Header) + kUdpHeader + payload;
}

size_t KernelSynLength(IpFamily family) {
  constexpr size_t kOptions = 20;  // MSS, SACK permitted, timestamps, window scale
  return (family == IpFamily::kIpv6 ? kIpv6Header : kIpv4Header) + kTcpHeader + kOptions;
}

size_t TcpFrameLength(size_t payload) { return kIpv4Header + kTcpHeader + payload; }

absl::StatusOr<FrameSender> FrameSender::OnWire(const TestNode& node, Place from) {
  const std::string mac = node.NodeMacTowards(from);
  if (mac.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a packet on the wire from the ", NameOf(from), ", which is no neighbour"));
  }
  const InNetns inside(node.At(from));
  OwnedFd fd(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "a packet socket");
  SocketAddress to;
  const sockaddr_ll link = testing::WireAddress("eth0", {mac.begin(), mac.end()});
  std::memcpy(&to.storage, &link, sizeof(link));
  to.size = sizeof(link);
  return FrameSender(std::move(fd), to);
}

absl::StatusOr<FrameSender> FrameSender::Routed(const TestNode& node, Place from, IpFamily family,
                                                const std::string& destination) {
  absl::StatusOr<SocketAddress> to = AddressAt(family, destination, IPPROTO_RAW);
  if (!to.ok()) return to.status();
  const InNetns inside(node.At(from));
  // IPPROTO_RAW: the header comes along, and nothing is received.
  OwnedFd fd(socket(DomainOf(family), SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_RAW));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "a raw socket");
  return FrameSender(std::move(fd), *to);
}

bool FrameSender::Send(const FrameBytes& frame) const {
  return sendto(fd_.get(), frame.data(), frame.size(), 0, to_.get(), to_.size) >= 0 ||
         errno == EPERM;
}

}  // namespace kipt::skew
