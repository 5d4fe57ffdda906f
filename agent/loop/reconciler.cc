// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/reconciler.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/loop/martians.h"
#include "agent/policy/native_martians.h"
#include "agent/policy/ownership.h"
#include "netlink/base_chains.h"
#include "netlink/kernel_error.h"

namespace kipt::agent {
namespace {

using netlink::Family;

constexpr int kRetriesAtOnce = 10;
constexpr absl::Duration kRetryPause = absl::Milliseconds(100);
constexpr absl::Duration kRetryLimit = absl::Seconds(5);

// What each family is told after one attempt for both: only those that had something to change can
// have failed, but where nothing could be planned all have.
std::vector<FamilyResult> Results(const Ruleset& desired, const Diff& diff,
                                  const absl::Status& both) {
  std::vector<FamilyResult> results;
  for (const Family family : desired.families) {
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

// `desired`, or what is wanted where iptables can hold rules, if a rule in `snapshot` proves that.
Ruleset Proven(const Ruleset& desired, const netlink::Snapshot& snapshot) {
  if (desired.support.xt || desired.support.refused) return desired;
  for (const auto& [id, chain] : snapshot.chains) {
    if (std::none_of(chain.rules.begin(), chain.rules.end(), [](const auto& r) { return r.xt; })) {
      continue;
    }
    RuleSupport support = desired.support;
    support.xt = true;
    support.reason = "";
    return DesiredRuleset(desired.mode, desired.families, desired.bits, support, desired.labels);
  }
  return desired;
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

Reconciler::Reconciler(netlink::Backend* backend, Clock clock)
    : backend_(backend), clock_(std::move(clock)) {}

absl::Status Reconciler::RetryAborted(const std::function<absl::Status()>& attempt) {
  const absl::Time deadline = clock_.now() + kRetryLimit;
  for (int tries = 1;; ++tries) {
    absl::Status status = attempt();
    if (!absl::IsAborted(status)) return status;
    if (clock_.now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "others kept changing the ruleset for ", absl::FormatDuration(kRetryLimit), " (", tries,
          " attempts); nothing was changed; the last attempt: ", status.message()));
    }
    if (tries % kRetriesAtOnce == 0) clock_.sleep(kRetryPause);
  }
}

absl::StatusOr<Reconciler::Observation> Reconciler::Observe(
    absl::Span<const netlink::ChainQuery> queries) {
  // First, so that a node without one is known for that before anything dearer is read.
  absl::StatusOr<netlink::NativeReading> native =
      backend_->ReadNativeTable(Family::kIPv4, std::string(kNativeTable));
  if (!native.ok()) return native.status();
  absl::StatusOr<netlink::Snapshot> snapshot = backend_->Read(queries);
  if (!snapshot.ok()) return snapshot.status();
  if (native->table && native->generation != snapshot->generation) {
    return absl::AbortedError("the ruleset changed while it was read");
  }
  return Observation{*std::move(snapshot), std::move(native->table)};
}

absl::StatusOr<Plan> Reconciler::LookOnce(const Ruleset& desired,
                                          absl::Span<const netlink::ChainQuery> queries) {
  const absl::StatusOr<Observation> observed = Observe(queries);
  if (!observed.ok()) return observed.status();
  const netlink::Snapshot& snapshot = observed->snapshot;
  const Ruleset proven = Proven(desired, snapshot);
  Plan plan{.generation = snapshot.generation,
            .families = desired.families,
            .diff = ComputeDiff(proven, snapshot, observed->native),
            .claimed_by_kube_proxy = {},
            .foreign_jumps = ForeignJumps(snapshot),
            .martians = FindMartianProtection(snapshot, observed->native),
            .support_disproved = proven.support.xt != desired.support.xt};
  for (const Family family : netlink::kFamilies) {
    if (IsClaimedByKubeProxy(snapshot, family)) plan.claimed_by_kube_proxy.push_back(family);
  }
  return plan;
}

absl::StatusOr<Plan> Reconciler::Look(const Ruleset& desired) {
  absl::StatusOr<Plan> plan;
  const std::vector<netlink::ChainQuery> queries = ChainsToRead(desired);
  const absl::Status status = RetryAborted([&] {
    plan = LookOnce(desired, queries);
    return plan.status();
  });
  if (!status.ok()) return status;
  return plan;
}

absl::Status Reconciler::SyncFamilies(const Ruleset& desired,
                                      absl::Span<const netlink::ChainQuery> queries,
                                      absl::Span<const Family> families, const Restraint& restraint,
                                      SyncReport& report) {
  return RetryAborted([&] {
    ++report.looks;
    absl::StatusOr<Plan> plan = LookOnce(desired, queries);
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
    const absl::Time start = clock_.now();
    absl::Status applied = backend_->Apply(transaction);
    report.applying += clock_.now() - start;
    if (!applied.ok()) return applied;
    report.NoteApplied(allowed, families);
    return absl::OkStatus();
  });
}

SyncReport Reconciler::Sync(const Ruleset& desired, const Restraint& restraint) {
  SyncReport report = SyncWanted(desired, restraint);
  if (LabelsRefused(report) == nullptr || !desired.labels || !desired.support.conn_labels) {
    return report;
  }
  const FamilyResult refused = *LabelsRefused(report);
  const RuleSupport support = WithoutConnLabels(desired.support, refused.status.message());
  const SyncReport before =
      std::exchange(report, SyncWanted(DesiredRuleset(desired.mode, desired.families, desired.bits,
                                                      support, desired.labels),
                                       restraint));
  // Where it fails without labels too, they were not the reason: the next round tries them again.
  if (report.StatusOf(refused.family).ok()) report.labels_refused = refused.status;
  report.applied.insert(report.applied.begin(), before.applied.begin(), before.applied.end());
  report.looks += before.looks;
  report.applying += before.applying;
  return report;
}

SyncReport Reconciler::SyncWanted(const Ruleset& desired, const Restraint& restraint) {
  SyncReport report;
  const absl::Status both =
      SyncFamilies(desired, ChainsToRead(desired), desired.families, restraint, report);
  if (!report.status.ok()) {
    if (desired.families.size() > 1) LookAtEachFamily(desired, restraint, report);
    return report;
  }
  if (IsRefusal(both)) {
    SyncEachFamily(desired, both, restraint, report);
  } else {
    report.families = Results(desired, report.plan.diff, both);
  }
  return report;
}

RetireReport Reconciler::Retire(const Ruleset& desired, const RetirementSources& sources,
                                const RetirementOptions& options, bool apply) {
  RetireReport report;
  report.status = RetryAborted([&] {
    report = RetireReport();
    return RetireOnce(desired, sources, options, apply, report);
  });
  return report;
}

RetireReport Reconciler::TryRetire(const Ruleset& desired, const RetirementSources& sources,
                                   const RetirementOptions& options, bool apply) {
  RetireReport report;
  report.status = RetireOnce(desired, sources, options, apply, report);
  return report;
}

absl::Status Reconciler::RetireOnce(const Ruleset& desired, const RetirementSources& sources,
                                    const RetirementOptions& options, bool apply,
                                    RetireReport& report) {
  const absl::StatusOr<Observation> observed = Observe(ChainsToRead());
  if (!observed.ok()) return observed.status();
  const netlink::Snapshot& snapshot = observed->snapshot;
  report.generation = snapshot.generation;
  const Ruleset proven = Proven(desired, snapshot);
  const Diff diff = ComputeDiff(proven, snapshot, observed->native);
  if (MayRetire(proven, snapshot, diff, options)) {
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
  return RetireUnused(proven, snapshot, diff, options, apply, report);
}

absl::Status Reconciler::RetireUnused(const Ruleset& desired, const netlink::Snapshot& snapshot,
                                      const Diff& diff, const RetirementOptions& options,
                                      bool apply, RetireReport& report) {
  // Each refusal keeps one chain more.
  for (size_t i = 0; i <= EveryKubeletChain(Family::kIPv4).size() * netlink::kFamilies.size();
       ++i) {
    report.plan = PlanRetirement(desired, snapshot, diff, report.dependents, options);
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
