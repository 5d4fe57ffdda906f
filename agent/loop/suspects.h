// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/suspects.h
//
// Who writes: a Lookout hears of commits, and Suspects, which is pure, tells which of their writers
// may have done the damage that a check finds.
#ifndef KIPT_AGENT_LOOP_SUSPECTS_H_
#define KIPT_AGENT_LOOP_SUSPECTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "agent/loop/clock.h"
#include "agent/loop/event_loop.h"
#include "agent/loop/events.h"
#include "agent/loop/plan.h"
#include "agent/loop/writer.h"
#include "netlink/backend.h"

namespace kipt::agent {

// What is damaged, repaired and fought over: one rule or chain, wherever it is to be inserted.
struct Item {
  netlink::ChainId chain;
  // "-A INPUT -j KUBE-FIREWALL", "-D INPUT ..." for a rule that is to be deleted, ":KUBE-FIREWALL
  // - [0:0]" for a chain.
  std::string text;

  auto operator<=>(const Item&) const = default;
};

// What `operation` makes or deletes. The place of a rule is left out: it differs from one check to
// the next as other programs add and delete rules, and the item is the same.
Item ItemOf(const netlink::Operation& operation);

// Whether a rule or chain is missing, or no packet comes to it, until `change` is made.
bool IsAddition(const Change& change);

// Commits of one writer that were heard of together.
struct Commits {
  // Generations, as in netlink::RulesetChange: of the first and of the last.
  uint32_t first = 0;
  uint32_t last = 0;
  Writer writer = {};

  bool operator==(const Commits&) const = default;
};

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

// Which processes may have done the damage that a check finds: those that committed between the
// check before and this one. Damage that is repaired later is ascribed to the same processes, not
// to those that wrote while it waited.
class Suspects {
 public:
  // These were heard of. `others`: and some whose writer is not known.
  void NoteCommits(absl::Span<const Commits> commits, bool others);
  // A check found `plan`.
  void NoteCheck(const Plan& plan);
  // These were made: what is missing from now on was damaged anew.
  void NoteApplied(absl::Span<const Change> applied);
  // Something else is desired: what is missing now was not damaged.
  void Forget();

  // Who may have damaged `items`. Anybody, where they were not missing at the last check.
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

  // Since the last check of `family`, until one at `generation`.
  std::shared_ptr<Window> WindowOf(netlink::Family family, uint32_t generation) const;

  // Whether all commits of `window` have been heard of. The kernel reports a commit a moment after
  // its effect can be read.
  bool IsComplete(const Window& window) const;

  std::map<Item, std::shared_ptr<Window>> missing_;
  // Commits that the next check may be about.
  std::vector<Commits> recent_;
  // The same of commits whose writer is not known.
  bool recent_others_ = false;
  // Generations: of each family's last check, and the youngest that was heard of.
  std::map<netlink::Family, uint32_t> checked_;
  std::optional<uint32_t> heard_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_SUSPECTS_H_
