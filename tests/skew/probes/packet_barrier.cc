// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/probes/packet_barrier.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "tests/skew/probes/socket_address.h"
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
