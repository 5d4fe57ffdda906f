// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/family_phase.h
//
// From one round's report to what is told of each family. Pure.
#ifndef KIPT_AGENT_LOOP_FAMILY_PHASE_H_
#define KIPT_AGENT_LOOP_FAMILY_PHASE_H_

#include <string>

#include "absl/types/span.h"
#include "agent/loop/agent_state.h"
#include "agent/loop/reconciler.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

struct FamilyVerdict {
  FamilyPhase phase = FamilyPhase::kPending;
  // Empty where in place.
  std::string reason;
  // What tells one reason from another: the words may differ from one attempt to the next (a
  // process ID, a count) where the reason is the same.
  std::string key;
  // FamilyState::pending_changes; 0 where it is not known what stands.
  int pending_changes = 0;

  bool operator==(const FamilyVerdict&) const = default;
};

// `fights` are those that go on. `observe`: nothing was to be done, whatever is wanting.
FamilyVerdict JudgeFamily(netlink::Family family, const SyncReport& report,
                          absl::Span<const Fight> fights, bool observe = false);

// Takes the verdict over into `state`. True where that is another phase, or another reason for it:
// `since` is `now` then.
bool Update(const FamilyVerdict& verdict, absl::Time now, FamilyState& state, std::string& key);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_FAMILY_PHASE_H_
