// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/reconciler.h
//
// Snapshot -> Diff -> Transaction -> SyncReport: one look, and one synchronisation, through
// whichever Backend it is given.
#ifndef KIPT_AGENT_LOOP_RECONCILER_H_
#define KIPT_AGENT_LOOP_RECONCILER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "netlink/backend.h"

namespace kipt::agent {

// A rule of somebody else's in a base chain that sends packets to a user chain which is none of
// kubelet's: "CNI-HOSTPORT-DNAT", "cali-INPUT".
struct ForeignJump {
  netlink::ChainId base_chain;
  std::string target;

  auto operator<=>(const ForeignJump&) const = default;
};

// What one look at the kernel found.
struct Plan {
  uint32_t generation = 0;
  Diff diff;
  // Where kube-proxy lives (ownership.h).
  std::vector<netlink::Family> claimed_by_kube_proxy = {};
  // In the base chains that were read, each once, sorted.
  std::vector<ForeignJump> foreign_jumps = {};

  bool operator==(const Plan&) const = default;
};

struct FamilyResult {
  netlink::Family family = netlink::Family::kIPv4;
  // OK: what was wanted of this family stands, but for the findings.
  absl::Status status;
};

struct SyncReport {
  // OK where a look at one of the families succeeded; else nothing is known and `families` is
  // empty.
  absl::Status status;
  // The last look that led to what was done.
  Plan plan;
  // What was done, in order.
  std::vector<Change> applied;
  std::vector<FamilyResult> families;
  // How often the kernel was read; more than one when others kept changing it.
  int looks = 0;
  // Spent inside Backend::Apply.
  absl::Duration applying;

  // The first error there is.
  absl::Status FirstError() const;
  // Whether what was wanted of `family` stands; OK also for one that was not asked for.
  absl::Status StatusOf(netlink::Family family) const;
};

// Time, passed in so that tests need not wait.
struct Clock {
  std::function<absl::Time()> now;
  std::function<void(absl::Duration)> sleep;
};
Clock SystemClock();

// What of a plan may be done now: called between a look and its transaction; returns the plan's
// changes less those that are to wait.
using Restraint = std::function<std::vector<Change>(const Plan& plan)>;

// Not safe for use by several threads at once. The backend must outlive it.
class Reconciler {
 public:
  Reconciler(netlink::Backend* backend, Clock clock);

  // Reads and compares; changes nothing. Errors are Backend::Read's, but Aborted is retried for
  // five seconds and then becomes DeadlineExceeded.
  absl::StatusOr<Plan> Look(const Ruleset& desired);

  // Makes `desired` stand. Both families go in one transaction. Where the ruleset moved in between,
  // looks again: ten times at once, then every 100 ms, for five seconds. Where the transaction is
  // refused, or the families cannot be read together, each family is tried alone, so that one
  // cannot keep the other from its rules.
  // Without `restraint` all of each plan is done.
  SyncReport Sync(const Ruleset& desired, const Restraint& restraint = {});

 private:
  // Reads and compares, once.
  absl::StatusOr<Plan> LookOnce(const Ruleset& desired,
                                absl::Span<const netlink::ChainQuery> queries);
  // Retries `attempt` as long as it returns Aborted, within the bounds above.
  absl::Status RetryAborted(const std::function<absl::Status()>& attempt);
  // Looks at what `queries` ask for and applies what concerns `families`.
  absl::Status SyncFamilies(const Ruleset& desired, absl::Span<const netlink::ChainQuery> queries,
                            absl::Span<const netlink::Family> families, const Restraint& restraint,
                            SyncReport& report);
  // What Sync does where a transaction of both families was refused.
  void SyncEachFamily(const Ruleset& desired, const Restraint& restraint, SyncReport& report);
  // What Sync does where the families could not be read together.
  void LookAtEachFamily(const Ruleset& desired, const Restraint& restraint, SyncReport& report);

  netlink::Backend* backend_;
  Clock clock_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_RECONCILER_H_
