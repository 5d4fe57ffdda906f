// SPDX-License-Identifier: Apache-2.0
//
// Desired -> observed -> diff -> transaction -> report: one check, or one synchronisation, through
// any Backend.
#ifndef KIPT_AGENT_LOOP_RECONCILER_H_
#define KIPT_AGENT_LOOP_RECONCILER_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
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
  // OK: the desired state of this family is in place, except for the findings.
  absl::Status status;
  // The tables whose changes were refused. Unless empty, the other tables are in place.
  std::vector<netlink::Table> refused = {};
};

struct SyncReport {
  // OK where one of the families could be read; else `families` is empty.
  absl::Status status;
  // The last check that led to what was done.
  Plan plan;
  // What was done, in order.
  std::vector<Change> applied;
  std::vector<FamilyResult> families;
  // What was retired after that; if requested.
  std::vector<RetireReport> retired = {};
  // How often the kernel was read; more than one when others kept changing it.
  int checks = 0;
  // Spent inside Backend::Apply.
  absl::Duration applying;
  // Why a rule about connection labels was refused, where connlabel is missing: `plan`, `families`
  // and `status` then are of the attempt without such rules.
  absl::Status labels_refused;

  // The first error there is.
  absl::Status FirstError() const;
  // The kernel refused a rule because it lacks a match or target of xtables, other than connlabel.
  bool LacksExtension() const;
  // The result of `family`; a success also where it was not asked for.
  FamilyResult ResultOf(netlink::Family family) const;
  // The plan's changes in `family` that were held back. Meaningless where the family failed.
  std::vector<Change> PendingOf(netlink::Family family) const;
};

// Whether `change` removes the rule that sets a drop mark or label, or the one that drops by it.
// They are in different tables: unless both tables get their new rule, the old ones must stay, or a
// packet that was dropped would pass.
bool WaitsForOtherTables(const Ruleset& desired, const Change& change);

// Called between a check and its transaction: returns the plan's changes that may be made now.
using Restraint = std::function<std::vector<Change>(const Plan& plan)>;

// Called after each check, with what it has read.
using RoundObserver = std::function<void(const netlink::Snapshot& observed, const Plan& plan)>;

// Not safe for use by several threads at once. The backend and `support` must outlive it.
class Reconciler {
 public:
  // Asks `support` what the node can hold only when rules are to be added, notes there what
  // transactions show, and leaves out what the node lacks. Null: the node can hold everything.
  Reconciler(netlink::Backend* backend, Clock clock, SupportSource* support = nullptr,
             RoundObserver observer = {})
      : backend_(backend),
        clock_(std::move(clock)),
        support_(support),
        observer_(std::move(observer)) {}

  // Reads and compares; changes nothing. Errors are Backend::Read's, with Aborted as by
  // RetryAborted.
  absl::StatusOr<Plan> Check(const PolicyInput& input);

  // Puts in place what `input` desires, as far as the node can hold it, both families in one
  // transaction. Where the ruleset changed in between, reads again, as RetryAborted does; the
  // patience is that of the whole call. Where other programs commit faster than it can be read,
  // what is missing is added even so (Backend::ReadTorn). Where nothing else is to be changed, that
  // ends the call.
  //
  // Where the transaction is refused, or the families cannot be read together, tries each family
  // alone, and then each table, so that one failure does not block the others. Where a rule was
  // refused because connlabel is missing, repeats all without labels (SyncReport::labels_refused).
  SyncReport Sync(
      const PolicyInput& input,
      const Restraint& restraint = [](const Plan& plan) { return plan.diff.changes; });

 private:
  netlink::Backend* backend_;
  Clock clock_;
  SupportSource* support_;
  RoundObserver observer_;
  LastComparison last_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_RECONCILER_H_
