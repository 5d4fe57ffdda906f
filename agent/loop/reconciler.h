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
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/loop/clock.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "agent/policy/retirement.h"
#include "netlink/backend.h"

namespace kipt::agent {

class SupportSource;

// A rule of somebody else's in a base chain that sends packets to a user chain which is none of
// kubelet's: "CNI-HOSTPORT-DNAT", "cali-INPUT".
struct ForeignJump {
  netlink::ChainId base_chain;
  std::string target;

  auto operator<=>(const ForeignJump&) const = default;
};

// The rule that keeps neighbours from 127.0.0.1, whoever wrote it, and however (CVE-2020-8558).
struct MartianProtection {
  // It stands, and packets for this node come to it: `rule`, `way` and not `dormant`; or it is the
  // native table's.
  bool stands = false;
  // It is in KUBE-FIREWALL, and whatever comes into that chain comes to it.
  bool rule = false;
  // Packets for this node come from INPUT into KUBE-FIREWALL.
  bool way = false;
  // Table ip filter is dormant: none of its rules sees a packet.
  bool dormant = false;
  // Packets that it has dropped since it was made; and those of them that the native table has.
  uint64_t dropped = 0;
  uint64_t dropped_natively = 0;

  bool operator==(const MartianProtection&) const = default;
};

// What one look at the kernel found.
struct Plan {
  uint32_t generation = 0;
  // What it is about; of the others it says nothing.
  std::vector<netlink::Family> families = {};
  Diff diff;
  // Where kube-proxy lives (ownership.h).
  std::vector<netlink::Family> claimed_by_kube_proxy = {};
  // In the base chains that were read, each once, sorted.
  std::vector<ForeignJump> foreign_jumps = {};
  MartianProtection martians = {};
  // RuleSupport said that iptables can hold no rule, and one that stands proves that it can: `diff`
  // is against what is wanted then.
  bool support_disproved = false;
  // What of diff.stale is to go, and what of the other iptables mode; where that was asked for.
  std::optional<Retirement> retirement = {};
  std::optional<Retirement> other_retirement = {};

  bool operator==(const Plan&) const = default;
};

struct RetireReport {
  // OK where it is known what goes and what stays, and that was done that was to be done.
  absl::Status status;
  uint32_t generation = 0;
  Retirement plan;
  // What was known of others; empty where nothing could have gone anyway.
  Dependents dependents;
  // The rules of all tables were looked at.
  bool surveyed = false;
  // plan.changes were done.
  bool applied = false;
};

struct RetiredMode {
  std::string iptables_mode;
  RetireReport report;
};

struct FamilyResult {
  netlink::Family family = netlink::Family::kIPv4;
  // OK: what was wanted of this family stands, but for the findings.
  absl::Status status;
  // The tables whose changes were refused. What was wanted of the others stands, unless this is
  // empty.
  std::vector<netlink::Table> refused = {};
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
  // What was retired after that, in which iptables mode; where that was asked for.
  std::vector<RetiredMode> retired = {};
  // How often the kernel was read; more than one when others kept changing it.
  int looks = 0;
  // Spent inside Backend::Apply.
  absl::Duration applying;
  // Why a rule about connection labels was refused, where that was for want of the match connlabel:
  // `plan`, `families` and `status` then are of the attempt without such rules.
  absl::Status labels_refused;

  // `diff` was applied to `in`.
  void NoteApplied(const Diff& diff, absl::Span<const netlink::Family> in);
  // The first error there is.
  absl::Status FirstError() const;
  // The kernel refused a rule because it has no such match or target of xtables; connlabel, which
  // may be missing alone, is not meant.
  bool LacksExtension() const;
  // FamilyResult::refused of `family`.
  std::vector<netlink::Table> RefusedTablesOf(netlink::Family family) const;
  // Whether what was wanted of `family` stands; OK also for one that was not asked for.
  absl::Status StatusOf(netlink::Family family) const;
  // What the plan wants of `family` and what was not done, because it was held back. Meaningless
  // where StatusOf(family) is not OK.
  std::vector<Change> PendingOf(netlink::Family family) const;
};

// Who depends on what, beside the rules of the backend itself.
struct RetirementSources {
  std::function<CniConfigs()> cni;
  // Empty where that cannot be read: the martian rule is not at stake on such nodes.
  std::function<std::vector<std::string>()> route_localnet;
  // Looks at the rules of the other iptables mode through DependentsCollector::OtherMode.
  std::function<void(DependentsCollector&)> other_mode;
};

// Whether `change` takes away one half of what drops packets by a mark or a label, the rule that
// sets it or the rule that drops, and a table of its own has the other half: where the new half
// there could not be put in place, the old halves stay, or a packet that was dropped would pass.
bool WaitsForOtherTables(const Ruleset& desired, const Change& change);

// Whether `diff` adds a rule, which iptables may be unable to hold (RuleSupport).
bool AddsRules(const Diff& diff);

// What of a plan may be done now: called between a look and its transaction; returns the plan's
// diff less the changes that are to wait.
using Restraint = std::function<Diff(const Plan& plan)>;

// Not safe for use by several threads at once. The backend and `support` must outlive it.
class Reconciler {
 public:
  // What the node can hold is asked of `support` when, and only when, rules are to be added, and
  // what transactions show is noted there: what it lacks is then left out. Without a source the
  // node can hold everything.
  Reconciler(netlink::Backend* backend, Clock clock, SupportSource* support = nullptr);

  // Reads and compares; changes nothing. Errors are Backend::Read's, but Aborted is retried for
  // five seconds and then becomes DeadlineExceeded.
  absl::StatusOr<Plan> Look(const PolicyInput& input);

  // Makes stand what `input` wants, as far as the node can hold it. Both families go in one
  // transaction. Where the ruleset moved in between, looks again: ten times at once, then every 100
  // ms, for five seconds. Where the transaction is refused, or the families cannot be read
  // together, each family is tried alone, and then each of its tables, so that one cannot keep the
  // others from their rules. Where a rule was refused for want of the match connlabel
  // (SyncReport::labels_refused), all is done once more without what needs it, so that labels
  // cannot keep the marks from their rules. Without `restraint` all of each plan is done.
  SyncReport Sync(const PolicyInput& input, const Restraint& restraint = {});

  // What another mode, bit or family left behind, and who claims it; with `apply` what nobody
  // claims goes, in one transaction on the generation at which that was found out. All rules of all
  // tables are looked at, but only where something might go.
  //
  // A chain that the kernel says is in use, by something that no rule shows (the verdict of a map's
  // element), stays, and the rest goes all the same.
  //
  // Errors as Look's and Backend::Apply's.
  RetireReport Retire(const PolicyInput& input, const RetirementSources& sources,
                      const RetirementOptions& options, bool apply);
  // The same in one attempt, for who has something more urgent to do: Aborted where others wrote
  // meanwhile; nothing was done.
  RetireReport TryRetire(const PolicyInput& input, const RetirementSources& sources,
                         const RetirementOptions& options, bool apply);

 private:
  // What the rules are made from.
  struct Goal {
    PolicyInput input;
    RuleSupport support;
  };
  // What stands, at one generation.
  struct Observation {
    netlink::Snapshot snapshot;
    std::optional<netlink::ObservedNativeTable> native;
  };

  // `input` on this node, by what is known of it.
  Goal GoalOf(const PolicyInput& input) const;
  // Asks `support_` for the first time, if `plan` adds rules. True: the plan is not what the node
  // can hold.
  bool AskSupport(const PolicyInput& input, const Plan& plan);
  absl::StatusOr<Observation> Observe(absl::Span<const netlink::ChainQuery> queries);
  absl::Status RetireOnce(const PolicyInput& input, const RetirementSources& sources,
                          const RetirementOptions& options, bool apply, RetireReport& report);
  // Plans and applies until the kernel finds no more chains in use.
  absl::Status RetireUnused(const PolicyInput& input, const netlink::Snapshot& snapshot,
                            const Diff& diff, const RetirementOptions& options, bool apply,
                            RetireReport& report);

  // Reads and compares, once.
  absl::StatusOr<Plan> LookOnce(const Goal& goal, absl::Span<const netlink::ChainQuery> queries);
  absl::StatusOr<Plan> LookAt(const Goal& goal);
  // What Sync does for one goal; and once more without labels, where they were refused.
  SyncReport SyncGoal(const Goal& goal, const Restraint& restraint);
  SyncReport SyncLabels(const Goal& goal, const Restraint& restraint);
  // Looks at what `queries` ask for and applies what concerns `families`.
  absl::Status SyncFamilies(const Goal& goal, absl::Span<const netlink::ChainQuery> queries,
                            absl::Span<const netlink::Family> families, const Restraint& restraint,
                            SyncReport& report);
  // Others were not in the way, and it was not for a missing match, which every table lacks then: a
  // bare chain of another one, the hint, would say that iptables can be used.
  static bool IsRefusal(const absl::Status& status);
  // What Sync does where the transaction that report.plan led to was refused; `both` is why.
  void SyncEachFamily(const Goal& goal, const absl::Status& both, const Restraint& restraint,
                      SyncReport& report);
  // The same for the one of `tried` of one family; `alone` is why.
  FamilyResult SyncEachTable(const Goal& goal, netlink::Family family, const absl::Status& alone,
                             const Diff& tried, const Restraint& restraint, SyncReport& report);
  // What Sync does where the families could not be read together.
  void LookAtEachFamily(const Goal& goal, const Restraint& restraint, SyncReport& report);

  netlink::Backend* backend_;
  Clock clock_;
  SupportSource* support_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_RECONCILER_H_
