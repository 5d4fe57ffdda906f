// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/reconciler.h
//
// Desired -> observed -> diff -> transaction -> report: one check, and one synchronisation, through
// whichever Backend it is given.
#ifndef KIPT_AGENT_LOOP_RECONCILER_H_
#define KIPT_AGENT_LOOP_RECONCILER_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "agent/detect/rule_support.h"
#include "agent/loop/clock.h"
#include "agent/loop/plan.h"
#include "agent/loop/retirer.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "netlink/backend.h"

namespace kipt::agent {

struct FamilyResult {
  netlink::Family family = netlink::Family::kIPv4;
  // OK: what is desired of this family is in place, except for the findings.
  absl::Status status;
  // The tables whose changes were refused. What is desired of the others is in place, unless this
  // is empty.
  std::vector<netlink::Table> refused = {};
};

struct SyncReport {
  // OK where one of the families could be read; else nothing is known and `families` is empty.
  absl::Status status;
  // The last check that led to what was done.
  Plan plan;
  // What was done, in order.
  std::vector<Change> applied;
  std::vector<FamilyResult> families;
  // What was retired after that; where that was asked for.
  std::vector<RetireReport> retired = {};
  // How often the kernel was read; more than one when others kept changing it.
  int looks = 0;
  // Spent inside Backend::Apply.
  absl::Duration applying;
  // Why a rule about connection labels was refused, where that was because the match connlabel is
  // missing: `plan`, `families` and `status` then are of the attempt without such rules.
  absl::Status labels_refused;

  // `diff` was applied to `in`.
  void NoteApplied(const Diff& diff, absl::Span<const netlink::Family> in);
  // The first error there is.
  absl::Status FirstError() const;
  // The kernel refused a rule because it has no such match or target of xtables; connlabel, which
  // may be missing alone, is not meant.
  bool LacksExtension() const;
  // What became of `family`; a success also where it was not asked for.
  FamilyResult ResultOf(netlink::Family family) const;
  // What the plan changes in `family` and what was not done, because it was held back. Meaningless
  // where the family failed.
  std::vector<Change> PendingOf(netlink::Family family) const;
};

// Whether `change` takes away one half of what drops packets by a mark or a label, the rule that
// sets it or the rule that drops, and a table of its own has the other half: where the new half
// there could not be put in place, the old halves stay, or a packet that was dropped would pass.
bool WaitsForOtherTables(const Ruleset& desired, const Change& change);

// What of a plan may be done now: called between a check and its transaction; returns the plan's
// diff without the changes that are to wait.
using Restraint = std::function<Diff(const Plan& plan)>;

// Not safe for use by several threads at once. The backend and `support` must outlive it.
class Reconciler {
 public:
  // What the node can hold is asked of `support` when, and only when, rules are to be added, and
  // what transactions show is noted there: what it lacks is then left out. Without a source the
  // node can hold everything.
  Reconciler(netlink::Backend* backend, Clock clock, SupportSource* support = nullptr);

  // Reads and compares; changes nothing. Errors are Backend::Read's, with Aborted as by
  // RetryAborted.
  absl::StatusOr<Plan> Look(const PolicyInput& input);

  // Puts in place what `input` desires, as far as the node can hold it. Both families go in one
  // transaction. Where the ruleset moved in between, reads again, as RetryAborted does; the
  // patience is that of the whole call. Where the transaction is refused, or the families cannot be
  // read together, each family is tried alone, and then each of its tables, so that one cannot keep
  // the others from their rules. Where a rule was refused because the match connlabel is missing
  // (SyncReport::labels_refused), all is done once more without what needs it, so that labels
  // cannot keep the marks from their rules. Without `restraint` all of each plan is done.
  SyncReport Sync(const PolicyInput& input, const Restraint& restraint = {});

 private:
  // One attempt by what is known of the node; and one more without labels, where they were refused.
  SyncReport SyncAsKnown(const PolicyInput& input, const Restraint& restraint, SteadyTime start);

  netlink::Backend* backend_;
  Clock clock_;
  SupportSource* support_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_RECONCILER_H_
