// SPDX-License-Identifier: Apache-2.0
//
// The two Monitors of nf_tables (WatchMode). See netlink/README.md, "Events".
#ifndef KIPT_NETLINK_NFT_MONITOR_H_
#define KIPT_NETLINK_NFT_MONITOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "netlink/backend.h"
#include "netlink/fork_count.h"
#include "netlink/socket.h"

namespace kipt::netlink {

// Counts `change` in `changes`, and remembers its writer where that is known.
void Record(RulesetChange change, RulesetChanges& changes);

// The generations of our own commits since the last commit of another program. nf_tables compares
// NFNL_BATCH_GENID and commits under one lock, so a commit on generation G leads to the one after
// G.
class OwnCommits {
 public:
  // A commit on `generation` has succeeded, and changed something, as all of ours do.
  void Add(uint32_t generation);

  // Whether every commit that led from generation `from` to `to` was ours.
  bool Explain(uint32_t from, uint32_t to) const;

 private:
  uint32_t first_ = 0;
  uint32_t last_ = 0;
};

// A socket for NFNLGRP_NFTABLES. It stays in the network namespace in which it was opened,
// whichever thread watches later.
class EventSocket {
 public:
  // Not a member of the group yet, so that no commit takes longer.
  static absl::StatusOr<std::unique_ptr<EventSocket>> Open();

  // Joins the group until the monitor is destroyed. Messages that `own_port` caused are left out.
  // Replaces an older monitor, whose Drain then fails (FailedPrecondition); both have the same fd.
  absl::StatusOr<std::unique_ptr<Monitor>> Watch(uint32_t own_port);

  // Whether it has a monitor: the kernel reports commits in any case.
  bool watched() const { return current_ != nullptr; }

 private:
  class EventMonitor;
  explicit EventSocket(MnlSocketPtr socket) : socket_(std::move(socket)), forks_(ForkCount()) {}

  int fd() const;
  absl::Status Join();
  void Leave();
  // Datagrams that the socket had to drop in its life; 0 before Linux 4.12.
  uint32_t dropped() const;

  MnlSocketPtr socket_;
  uint64_t forks_;
  // The monitor that the socket belongs to now.
  const EventMonitor* current_ = nullptr;
};

// Calls `read_generation` at each Drain, which is due every 100 ms. Its errors are Drain's.
// `own` must outlive the monitor.
absl::StatusOr<std::unique_ptr<Monitor>> NewPollMonitor(
    std::function<absl::StatusOr<uint32_t>()> read_generation, const OwnCommits& own);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_NFT_MONITOR_H_
