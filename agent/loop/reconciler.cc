// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/reconciler.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "agent/detect/rule_support.h"
#include "agent/loop/martians.h"
#include "agent/policy/ownership.h"
#include "agent/policy/rule_forms.h"
#include "netlink/kernel_error.h"
#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

using netlink::Family;

// What each family is told after one attempt for both: only those that had something to change can
// have failed, but where nothing could be planned all have.
std::vector<FamilyResult> Results(absl::Span<const Family> families, const Diff& diff,
                                  const absl::Status& both) {
  std::vector<FamilyResult> results;
  for (const Family family : families) {
    const bool failed = !both.ok() && (diff.empty() || Changes(diff, family));
    results.push_back({family, failed ? both : absl::OkStatus()});
  }
  return results;
}

std::vector<ForeignJump> ForeignJumps(const netlink::Snapshot& snapshot) {
  std::set<ForeignJump> jumps;
  for (const auto& [id, chain] : snapshot.chains) {
    if (netlink::FindBaseChain(id.table, id.name) == nullptr) continue;
    for (const netlink::ObservedRule& rule : chain.rules) {
      const std::string* target = netlink::JumpTarget(rule);
      if (target != nullptr && !IsKubeletChain({id.family, id.table, *target})) {
        jumps.insert({id, *target});
      }
    }
  }
  return {jumps.begin(), jumps.end()};
}

// `support`, or that iptables can hold rules, if a rule in `snapshot` proves that.
RuleSupport Proven(const RuleSupport& support, const netlink::Snapshot& snapshot) {
  const auto has_xt = [](const auto& chain) {
    const auto& rules = chain.second.rules;
    return std::any_of(rules.begin(), rules.end(), [](const auto& rule) { return rule.xt; });
  };
  if (support.xt || support.refused ||
      std::none_of(snapshot.chains.begin(), snapshot.chains.end(), has_xt)) {
    return support;
  }
  RuleSupport proven = support;
  proven.xt = true;
  proven.reason = "";
  return proven;
}

// What was done before `report`'s attempt is part of it.
void AddEarlier(const SyncReport& earlier, SyncReport& report) {
  report.applied.insert(report.applied.begin(), earlier.applied.begin(), earlier.applied.end());
  report.looks += earlier.looks;
  report.applying += earlier.applying;
}

// That of a rule about connection labels for which the match is missing; null: there is none.
const FamilyResult* LabelsRefused(const SyncReport& report) {
  for (const FamilyResult& result : report.families) {
    if (netlink::MissingExtension(result.status) == netlink::kConnLabelExtension) return &result;
  }
  return nullptr;
}

}  // namespace

void SyncReport::NoteApplied(const Diff& diff, absl::Span<const Family> in) {
  for (const Change& change : diff.changes) {
    const Family family = netlink::ChainOf(change.operation).family;
    if (std::find(in.begin(), in.end(), family) != in.end()) applied.push_back(change);
  }
}

absl::Status SyncReport::FirstError() const {
  if (!status.ok()) return status;
  for (const FamilyResult& result : families) {
    if (!result.status.ok()) return result.status;
  }
  return absl::OkStatus();
}

bool AddsRules(const Diff& diff) {
  return std::any_of(diff.changes.begin(), diff.changes.end(), [](const Change& change) {
    return std::holds_alternative<netlink::AddRule>(change.operation);
  });
}

bool SyncReport::LacksExtension() const {
  return std::any_of(families.begin(), families.end(), [](const FamilyResult& result) {
    const std::optional<std::string> missing = netlink::MissingExtension(result.status);
    return missing && *missing != netlink::kConnLabelExtension;
  });
}

absl::Status SyncReport::StatusOf(Family family) const {
  if (!status.ok()) return status;
  for (const FamilyResult& result : families) {
    if (result.family == family) return result.status;
  }
  return absl::OkStatus();
}

std::vector<netlink::Table> SyncReport::RefusedTablesOf(Family family) const {
  for (const FamilyResult& result : families) {
    if (result.family == family) return result.refused;
  }
  return {};
}

std::vector<Change> SyncReport::PendingOf(Family family) const {
  std::vector<Change> pending;
  for (const Change& change : plan.diff.changes) {
    if (netlink::ChainOf(change.operation).family != family) continue;
    if (std::find(applied.begin(), applied.end(), change) == applied.end()) {
      pending.push_back(change);
    }
  }
  return pending;
}

Reconciler::Reconciler(netlink::Backend* backend, Clock clock, SupportSource* support)
    : backend_(backend), clock_(std::move(clock)), support_(support) {}

Reconciler::Goal Reconciler::GoalOf(const PolicyInput& input) const {
  return {input, support_ != nullptr ? support_->known() : RuleSupport()};
}

bool Reconciler::AskSupport(const PolicyInput& input, const Plan& plan) {
  return support_ != nullptr && AddsRules(plan.diff) &&
         support_->LookOnce(backend_->kind(), input.labels.has_value());
}

absl::StatusOr<Reconciler::Observation> Reconciler::Observe(
    absl::Span<const netlink::ChainQuery> queries) {
  // First, so that a node without one is known for that before anything dearer is read.
  absl::StatusOr<netlink::NativeReading> native = backend_->ReadNativeTable(NativeMartians());
  if (!native.ok()) return native.status();
  absl::StatusOr<netlink::Snapshot> snapshot = backend_->Read(queries);
  if (!snapshot.ok()) return snapshot.status();
  if (native->table && native->generation != snapshot->generation) {
    return absl::AbortedError("the ruleset changed while it was read");
  }
  return Observation{*std::move(snapshot), std::move(native->table)};
}

absl::StatusOr<Plan> Reconciler::LookOnce(const Goal& goal,
                                          absl::Span<const netlink::ChainQuery> queries) {
  const absl::StatusOr<Observation> observed = Observe(queries);
  if (!observed.ok()) return observed.status();
  const netlink::Snapshot& snapshot = observed->snapshot;
  const RuleSupport proven = Proven(goal.support, snapshot);
  Plan plan{.generation = snapshot.generation,
            .families = goal.input.families,
            .diff = ComputeDiff(goal.input, snapshot, observed->native, proven),
            .claimed_by_kube_proxy = {},
            .foreign_jumps = ForeignJumps(snapshot),
            .martians = FindMartianProtection(snapshot, observed->native),
            .support_disproved = proven.xt != goal.support.xt};
  for (const Family family : netlink::kFamilies) {
    if (IsClaimedByKubeProxy(snapshot, family)) plan.claimed_by_kube_proxy.push_back(family);
  }
  return plan;
}

absl::StatusOr<Plan> Reconciler::LookAt(const Goal& goal) {
  absl::StatusOr<Plan> plan;
  const std::vector<netlink::ChainQuery> queries =
      ChainsToRead(DesiredRuleset(goal.input, goal.support));
  const absl::Status status = RetryAborted(clock_, [&] {
    plan = LookOnce(goal, queries);
    return plan.status();
  });
  if (!status.ok()) return status;
  return plan;
}

absl::StatusOr<Plan> Reconciler::Look(const PolicyInput& input) {
  absl::StatusOr<Plan> plan = LookAt(GoalOf(input));
  if (!plan.ok() || !AskSupport(input, *plan)) return plan;
  return LookAt(GoalOf(input));
}

absl::Status Reconciler::SyncFamilies(const Goal& goal,
                                      absl::Span<const netlink::ChainQuery> queries,
                                      absl::Span<const Family> families, const Restraint& restraint,
                                      SyncReport& report) {
  return RetryAborted(clock_, [&] {
    ++report.looks;
    absl::StatusOr<Plan> plan = LookOnce(goal, queries);
    if (!plan.ok()) {
      // A failed look says nothing about either family.
      if (!absl::IsAborted(plan.status())) report.status = plan.status();
      return plan.status();
    }
    report.plan = *std::move(plan);
    const Diff allowed = restraint ? restraint(report.plan) : report.plan.diff;
    const netlink::Transaction transaction =
        ToTransaction(allowed, report.plan.generation, families);
    if (transaction.empty()) return absl::OkStatus();
    const SteadyTime start = clock_.now();
    absl::Status applied = backend_->Apply(transaction);
    report.applying += clock_.now() - start;
    if (!applied.ok()) return applied;
    report.NoteApplied(allowed, families);
    return absl::OkStatus();
  });
}

SyncReport Reconciler::Sync(const PolicyInput& input, const Restraint& restraint) {
  bool less = false;
  const Restraint asking = [&](const Plan& plan) {
    less = less || AskSupport(input, plan);
    if (less) return Diff();
    return restraint ? restraint(plan) : plan.diff;
  };
  SyncReport report = SyncLabels(GoalOf(input), asking);
  if (less) report = SyncLabels(GoalOf(input), restraint);
  if (support_ == nullptr) return report;
  const bool labels = input.labels.has_value();
  if (report.plan.support_disproved) support_->NoteDisproof(backend_->kind(), labels);
  if (report.LacksExtension() && !support_->known().refused &&
      support_->NoteRefusal(backend_->kind(), labels)) {
    const SyncReport earlier = std::exchange(report, SyncLabels(GoalOf(input), restraint));
    AddEarlier(earlier, report);
  }
  if (!report.labels_refused.ok()) {
    support_->NoteConnLabelRefusal(backend_->kind(), report.labels_refused.message());
  }
  return report;
}

SyncReport Reconciler::SyncLabels(const Goal& goal, const Restraint& restraint) {
  SyncReport report = SyncGoal(goal, restraint);
  if (LabelsRefused(report) == nullptr || !goal.input.labels || !goal.support.conn_labels) {
    return report;
  }
  const FamilyResult refused = *LabelsRefused(report);
  const Goal without = {goal.input, WithoutConnLabels(goal.support, refused.status.message())};
  const SyncReport earlier = std::exchange(report, SyncGoal(without, restraint));
  // Where it fails without labels too, they were not the reason: the next round tries them again.
  if (report.StatusOf(refused.family).ok()) report.labels_refused = refused.status;
  AddEarlier(earlier, report);
  return report;
}

SyncReport Reconciler::SyncGoal(const Goal& goal, const Restraint& restraint) {
  SyncReport report;
  const std::vector<Family>& families = goal.input.families;
  const absl::Status both = SyncFamilies(
      goal, ChainsToRead(DesiredRuleset(goal.input, goal.support)), families, restraint, report);
  if (!report.status.ok()) {
    if (families.size() > 1) LookAtEachFamily(goal, restraint, report);
    return report;
  }
  if (IsRefusal(both)) {
    SyncEachFamily(goal, both, restraint, report);
  } else {
    report.families = Results(families, report.plan.diff, both);
  }
  return report;
}

RetireReport Reconciler::Retire(const PolicyInput& input, const RetirementSources& sources,
                                const RetirementOptions& options, bool apply) {
  RetireReport report;
  report.status = RetryAborted(clock_, [&] {
    report = RetireReport();
    return RetireOnce(input, sources, options, apply, report);
  });
  return report;
}

RetireReport Reconciler::TryRetire(const PolicyInput& input, const RetirementSources& sources,
                                   const RetirementOptions& options, bool apply) {
  RetireReport report;
  report.status = RetireOnce(input, sources, options, apply, report);
  return report;
}

absl::Status Reconciler::RetireOnce(const PolicyInput& input, const RetirementSources& sources,
                                    const RetirementOptions& options, bool apply,
                                    RetireReport& report) {
  const absl::StatusOr<Observation> observed = Observe(ChainsToRead());
  if (!observed.ok()) return observed.status();
  const netlink::Snapshot& snapshot = observed->snapshot;
  report.generation = snapshot.generation;
  const RuleSupport support = Proven(GoalOf(input).support, snapshot);
  const Diff diff = ComputeDiff(input, snapshot, observed->native, support);
  if (MayRetire(input, snapshot, diff, options)) {
    DependentsCollector collector;
    const absl::StatusOr<netlink::Survey> survey = backend_->TakeSurvey(collector.ManagedMode());
    if (!survey.ok()) return survey.status();
    if (survey->generation != snapshot.generation) {
      return absl::AbortedError("the ruleset changed while it was surveyed");
    }
    sources.other_mode(collector);
    report.dependents = collector.Finish(sources.cni(), sources.route_localnet());
    report.surveyed = true;
  }
  return RetireUnused(input, snapshot, diff, options, apply, report);
}

absl::Status Reconciler::RetireUnused(const PolicyInput& input, const netlink::Snapshot& snapshot,
                                      const Diff& diff, const RetirementOptions& options,
                                      bool apply, RetireReport& report) {
  // Each refusal keeps one chain more.
  for (size_t i = 0; i <= EveryKubeletChain(Family::kIPv4).size() * netlink::kFamilies.size();
       ++i) {
    report.plan = PlanRetirement(input, snapshot, diff, report.dependents, options);
    if (!apply || report.plan.empty()) return absl::OkStatus();
    absl::Status status = backend_->Apply(ToTransaction(report.plan, snapshot.generation));
    const std::optional<std::string> used = netlink::ChainInUse(status);
    if (!used) {
      report.applied = status.ok();
      return status;
    }
    for (const Change& change : report.plan.changes) {
      const netlink::ChainId& chain = netlink::ChainOf(change.operation);
      if (netlink::ToString(chain) != *used) continue;
      report.dependents.references.push_back(
          {chain, "something that no rule shows", "the kernel says that it is in use"});
      break;
    }
  }
  return absl::InternalError("the kernel refused to remove more chains than there are");
}

}  // namespace kipt::agent
