// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/monitor.h
//
// Tells that somebody else has changed the ruleset, or may have. It says nothing about what was
// changed: who wants to know reads. A Monitor may wake for nothing, and events may be lost under
// load; a reader that drains first and then looks misses no change.
#ifndef KIPT_NETLINK_MONITOR_H_
#define KIPT_NETLINK_MONITOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kipt::netlink {

// How a backend is watched.
enum class WatchMode : uint8_t {
  // The kernel reports every commit, and who made it. Makes other writers' commits dearer: the
  // kernel builds notifications of every object in them as soon as anybody listens.
  kEvents,
  // Asked ten times a second; costs other writers nothing and names nobody.
  kPoll,
};

// One commit of somebody else's.
struct RulesetChange {
  // The generation that it led to; 0 where not known.
  uint32_t generation = 0;
  // In RulesetChanges::writers: the generation of the first change of this writer's.
  uint32_t first_generation = 0;
  // NFTA_GEN_PROC_PID: the writer in the initial PID namespace, whichever it lives in itself; 0
  // where not known.
  uint32_t pid = 0;
  // NFTA_GEN_PROC_NAME: the writer's comm (proc_pid_comm(5)), at most 15 bytes of anything; empty
  // where not known.
  std::string command = {};

  bool operator==(const RulesetChange&) const = default;
};

// What has happened since the last Drain, our own commits left out where the backend can tell them
// from others' (the iptables-legacy backend cannot).
struct RulesetChanges {
  // How many distinct writers `writers` holds at most.
  static constexpr size_t kMaxWriters = 8;

  uint64_t count = 0;
  // The last change of each of the first kMaxWriters writers (pid and command), oldest writer
  // first. Empty where writers are not known.
  std::vector<RulesetChange> writers = {};
  // How many of the changes are by none of `writers`, or by a writer or of a generation that is
  // not known.
  uint64_t others = 0;
  // Events that the kernel could not deliver because we were too slow. Harmless: a look follows
  // anyway.
  uint64_t lost = 0;

  bool operator==(const RulesetChanges&) const = default;
};

// Not safe for use by several threads at once. Stays in the network namespace in which its backend
// was created. Must not outlive its backend.
class Monitor {
 public:
  virtual ~Monitor() = default;

  // Becomes readable (poll(2), level-triggered) when there is something to drain. Owned by the
  // monitor.
  virtual int fd() const = 0;

  // Empties the queue without blocking. A count of 0 is not rare: a commit of our own, or a lock
  // that was taken for reading.
  //
  // Any error: the monitor can no longer be relied upon; make a new one.
  virtual absl::StatusOr<RulesetChanges> Drain() = 0;
};

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_MONITOR_H_
