// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/lookout.h
//
// Listens to a backend's Monitor inside an event loop, and finds out who the writers are as soon as
// they are heard of: a moment later they may have ended.
#ifndef KIPT_AGENT_LOOP_LOOKOUT_H_
#define KIPT_AGENT_LOOP_LOOKOUT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/loop/clock.h"
#include "agent/loop/event_loop.h"
#include "agent/loop/suspects.h"
#include "agent/loop/writer.h"
#include "netlink/backend.h"

namespace kipt::agent {

// What was noticed between two rounds.
struct Sighting {
  // Watching failed, and stopped.
  bool stopped = false;
  uint64_t changes = 0;
  uint64_t lost_events = 0;
  // By a steady clock: when the loop woke for the first of the changes.
  SteadyTime first = SteadyTime::InfiniteFuture();
  // Each writer of one Drain once, oldest first, at most RulesetChanges::kMaxWriters in all.
  std::vector<Commits> commits = {};
  // There were commits of others, or of writers that are not known.
  bool others = false;
};

// Must be destroyed before its loop and before the backend that it watches.
class Lookout {
 public:
  // `on_sight` is called when changes were noticed; it may call all members.
  Lookout(EventLoop& loop, const WriterSources& sources, std::function<void()> on_sight);

  // Errors are Backend::Watch's and the loop's; nothing is watched then.
  absl::Status Watch(netlink::Backend& backend, netlink::WatchMode mode);
  void Stop();
  bool watching() const { return monitor_ != nullptr; }
  // Why it last stopped without Stop(); OK where it never did.
  const absl::Status& failure() const { return failure_; }

  // False: changes pile up in the kernel, unheard, until Drain() or Pause(false). For a storm.
  void Pause(bool pause);
  // Notes what has piled up, without calling on_sight. Before a look: what comes later than the
  // last Drain is heard of again.
  void Drain();
  // What was noticed since the last Take.
  Sighting Take();
  // Only `commits` and `others` of it; the rest is left for Take.
  Sighting TakeCommits();
  const Sighting& seen() const { return seen_; }

 private:
  void OnReadable();
  void Fail(absl::Status status);
  void Note(const netlink::RulesetChange& change);

  EventLoop& loop_;
  WriterLookup lookup_;
  std::function<void()> on_sight_;
  std::unique_ptr<netlink::Monitor> monitor_;
  std::unique_ptr<EventSource> readable_;
  absl::Status failure_;
  Sighting seen_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_LOOKOUT_H_
