// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "tests/skew/probes/packets.h"
#include "tests/support/netns.h"

namespace kipt::skew {
namespace {

using agent::OwnedFd;
using testing::InNetns;
using testing::IpFamily;
using testing::Netns;

// From a client to a pod behind the second node and back there are six.
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

using testing::IpFamily;

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
  // Zero is both families' "any"; the port stands in the same place in both.
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
    // One that has gone offline since has no packets.
    if (sched_setaffinity(0, sizeof(one), &one) == 0) status = PassHere(fd_);
  }
  if (sched_setaffinity(0, sizeof(allowed), &allowed) != 0) {
    status.Update(absl::ErrnoToStatus(errno, "sched_setaffinity"));
  }
  return status;
}

}  // namespace kipt::skew
