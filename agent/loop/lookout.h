// SPDX-License-Identifier: Apache-2.0
//
// Who writes: watches for commits of other processes (Lookout), describes each writer in terms that
// an operator can act upon, and names those that may have done the damage of a check (Suspects).
#ifndef KIPT_AGENT_LOOP_LOOKOUT_H_
#define KIPT_AGENT_LOOP_LOOKOUT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "agent/loop/clock.h"
#include "agent/loop/events.h"
#include "agent/loop/plan.h"
#include "netlink/backend.h"

namespace kipt::agent {

struct WriterSources {
  std::string proc = "/proc";
  // Writers are looked up in `proc` only if this is the initial PID namespace, as their IDs are.
  std::string pid_namespace = "/proc/self/ns/pid";
};

// Reads /proc, so call it before the writer ends. Believes /proc only if comm is still what the
// kernel reported, because the ID may be reused. What cannot be read stays empty.
Writer IdentifyWriter(const netlink::RulesetChange& change, const WriterSources& sources = {});

// Whether one of `writers` was started by a process named kube-proxy, and whether that still runs.
// Believes the name, and reads /proc.
std::optional<bool> KubeProxyAmong(absl::Span<const Writer> writers, const WriterSources& sources);

// Commits of one writer that were reported together.
struct Commits {
  // Generations, as in netlink::RulesetChange.
  uint32_t first = 0;
  uint32_t last = 0;
  Writer writer = {};
};

// What was noticed between two rounds.
struct Sighting {
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
class Lookout {
 public:
  // `on_sight` is called when changes were noticed; it may call all members.
  Lookout(EventLoop& loop, WriterSources sources, std::function<void()> on_sight)
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
  Sighting Take() { return std::exchange(seen_, {}); }
  // Only `commits` and `others` of it; the rest is left for Take.
  Sighting TakeCommits();
  const Sighting& seen() const { return seen_; }

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
  Sighting seen_;
};

// Names the processes that committed between the last check that found an item in place and the
// first that found it damaged. They stay the suspects however late it is repaired.
class Suspects {
 public:
  // These were reported. `others`: and some by unknown writers.
  void NoteCommits(absl::Span<const Commits> commits, bool others);
  // A check found `plan`, and rules of other programs that `appeared` since ForgetAppeared.
  void NoteCheck(const Plan& plan, absl::Span<const Item> appeared = {});
  // These were made: what is missing from now on was damaged anew.
  void NoteApplied(absl::Span<const Change> applied);

  // Forgets what has appeared.
  void ForgetAppeared() { appeared_.clear(); }

  // Who may have damaged `items`, or made them. Any process, where they were not missing at the
  // last check.
  Suspected Of(absl::Span<const Item> items) const;

 private:
  // Between two checks: the generations after `after`, up to `until`.
  struct Window {
    uint32_t after = 0;
    uint32_t until = 0;
    std::vector<Writer> writers = {};
    bool others = false;

    // Adds their writer, if some of them are of these generations.
    void Ascribe(const Commits& commits);
  };

  // Whether all commits of `window` have been reported: the kernel is a moment late.
  bool IsComplete(const Window& window) const;

  std::map<Item, std::shared_ptr<Window>> missing_;
  std::map<Item, std::shared_ptr<Window>> appeared_;
  // Commits that the next check may be about.
  std::vector<Commits> recent_;
  // There were some by unknown writers.
  bool recent_others_ = false;
  // Generations: of each family's last check, and the latest that was reported.
  std::map<netlink::Family, uint32_t> checked_;
  std::optional<uint32_t> reported_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_LOOKOUT_H_
