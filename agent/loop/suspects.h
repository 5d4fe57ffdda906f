// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/suspects.h
//
// Which processes may have done the damage that a check finds: those that committed between the
// check before and this one. Damage that is repaired later is ascribed to the same processes, not
// to those that wrote while it waited. Pure.
#ifndef KIPT_AGENT_LOOP_SUSPECTS_H_
#define KIPT_AGENT_LOOP_SUSPECTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "agent/loop/reconciler.h"
#include "agent/loop/writer.h"

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

struct Suspected {
  // Each once, oldest first, at most twelve. Where there are several, any of them may have done it.
  std::vector<Writer> writers = {};
  // A process that is not among them may have done it, too.
  bool others = true;

  bool operator==(const Suspected&) const = default;
};

// "A", "one of A, B", "A, or another process that was not seen", "somebody who was not seen".
std::string ToString(const Suspected& suspected);

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
