// SPDX-License-Identifier: Apache-2.0
//
// Addresses of sockets, waiting for them, and how one knows that a packet will not come any more.
#ifndef KIPT_TESTS_SKEW_PROBES_SOCKETS_H_
#define KIPT_TESTS_SKEW_PROBES_SOCKETS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/process/files.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::skew {

// An address of either family with its port, as the socket calls take and give it: sockaddr_in,
// sockaddr_in6, or (packets.h) sockaddr_ll.
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

// From now on `epoll` tells when `fd` has `events` (EPOLLIN, ...), by its number. The error is the
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

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_PROBES_SOCKETS_H_
