// SPDX-License-Identifier: Apache-2.0
//
// Watches for commits of other processes, and notes which ones made them.
#ifndef KIPT_AGENT_LOOP_WRITER_WATCH_H_
#define KIPT_AGENT_LOOP_WRITER_WATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "agent/loop/clock.h"
#include "agent/loop/event_loop.h"
#include "agent/loop/incident.h"
#include "agent/loop/writer.h"
#include "netlink/backend.h"

namespace kipt::agent {

// Commits of one writer that were reported together.
struct Commits {
  // Generations, as in netlink::RulesetChange.
  uint32_t first = 0;
  uint32_t last = 0;
  Writer writer = {};
};

// What was noticed between two rounds.
struct SeenWriters {
  // Watching failed, and stopped.
  bool stopped = false;
  uint64_t changes = 0;
  uint64_t lost_events = 0;
  // When the loop woke for the first of the changes.
  SteadyTime first = SteadyTime::InfiniteFuture();
  // Each writer of one Drain once, oldest first, at most RulesetChanges::kMaxWriters in all.
  std::vector<Commits> commits = {};
  // There were commits of other writers, or of unknown ones.
  bool others = false;
};

// Must be destroyed before its loop and before the backend that it watches.
class WriterWatch {
 public:
  // `on_sight` is called when changes were noticed; it may call all members.
  WriterWatch(EventLoop& loop, WriterSources sources, std::function<void()> on_sight)
      : loop_(loop), sources_(std::move(sources)), on_sight_(std::move(on_sight)) {}

  // Only while nothing is watched. Errors are Backend::Watch's and the loop's.
  absl::Status Watch(netlink::Backend& backend, netlink::WatchMode mode);
  void Stop();
  bool watching() const { return monitor_ != nullptr; }
  // Why it last stopped without Stop(); OK where it never did.
  const absl::Status& failure() const { return failure_; }

  // While paused, changes queue in the kernel until Drain() or Pause(false). For a storm.
  void Pause(bool pause);
  // Notes what is queued, without calling on_sight. Later changes are reported again.
  void Drain();
  // What was noticed since the last Take.
  SeenWriters Take() { return std::exchange(seen_, {}); }
  // Only `commits` and `others` of it; the rest is left for Take.
  SeenWriters TakeCommits();
  const SeenWriters& seen() const { return seen_; }

 private:
  void OnReadable();
  void Fail(absl::Status status);
  void Note(const netlink::RulesetChange& change);

  EventLoop& loop_;
  WriterSources sources_;
  std::function<void()> on_sight_;
  std::unique_ptr<netlink::Monitor> monitor_;
  std::unique_ptr<EventSource> readable_;
  absl::Status failure_;
  SeenWriters seen_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_WRITER_WATCH_H_
