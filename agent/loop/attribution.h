// SPDX-License-Identifier: Apache-2.0
//
// Which of the processes that committed may have caused the damage that a check found.
#ifndef KIPT_AGENT_LOOP_ATTRIBUTION_H_
#define KIPT_AGENT_LOOP_ATTRIBUTION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "agent/loop/incident.h"
#include "agent/loop/plan.h"
#include "agent/loop/writer_watch.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// Names the processes that committed between the last check that found an item in place and the
// first that found it damaged. However late it is repaired, they remain the ones.
class WriterAttribution {
 public:
  // These were reported. `others`: and some by unknown writers.
  void NoteCommits(absl::Span<const Commits> commits, bool others);
  // A check found `plan`, and rules of other programs that `appeared` since ForgetAppeared.
  void NoteCheck(const Plan& plan, absl::Span<const Item> appeared = {});
  // These were made: what is missing from now on was damaged anew.
  void NoteApplied(absl::Span<const Change> applied);

  // Forgets what has appeared.
  void ForgetAppeared() { appeared_.clear(); }

  // The processes that may have damaged `items`, or made them. Any process, where they were not
  // missing at the last check.
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

#endif  // KIPT_AGENT_LOOP_ATTRIBUTION_H_
