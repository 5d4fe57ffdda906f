// SPDX-License-Identifier: Apache-2.0
//
// How one knows that a packet will not come any more, without waiting for an arbitrary time.
#ifndef KIPT_TESTS_SKEW_PROBES_PACKET_BARRIER_H_
#define KIPT_TESTS_SKEW_PROBES_PACKET_BARRIER_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/process/files.h"

namespace kipt::skew {

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

#endif  // KIPT_TESTS_SKEW_PROBES_PACKET_BARRIER_H_
