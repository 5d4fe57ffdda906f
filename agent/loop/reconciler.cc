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

bool Changes(const Diff& diff, Family family) {
  if (family == Family::kIPv4 && diff.native.changes()) return true;
  return std::any_of(diff.changes.begin(), diff.changes.end(), [&](const Change& change) {
    return netlink::ChainOf(change.operation).family == family;
  });
}

// Notes as applied what `diff` changes in `families`.
void AppendChanges(const Diff& diff, absl::Span<const Family> families, SyncReport& report) {
  for (const Change& change : diff.changes) {
    const Family family = netlink::ChainOf(change.operation).family;
    if (std::find(families.begin(), families.end(), family) != families.end()) {
      report.applied.push_back(change);
    }
  }
  if (std::find(families.begin(), families.end(), Family::kIPv4) == families.end()) return;
  report.native_put |= diff.native.put.has_value();
  report.native_removed |= diff.native.remove.has_value();
}

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

Ruleset OfFamily(const Ruleset& desired, Family family) {
  Ruleset result = desired;
  const auto other = [family](const netlink::ChainId& chain) { return chain.family != family; };
  result.families = {family};
  if (family != Family::kIPv4) result.native.reset();
  std::erase_if(result.chains, [&](const DesiredChain& chain) { return other(chain.id); });
  std::erase_if(result.jumps, [&](const DesiredJump& jump) { return other(jump.base_chain); });
  return result;
}

template <typename T>
void Append(const std::vector<T>& more, std::vector<T>& all) {
  all.insert(all.end(), more.begin(), more.end());
}

// What was seen of one family joins what was seen of another.
void Merge(Family family_read, const Plan& family, Plan& all) {
  all.generation = family.generation;
  if (family_read == Family::kIPv4) {
    all.diff.native = family.diff.native;
    all.martians = family.martians;
  }
  Append(family.diff.changes, all.diff.changes);
  Append(family.diff.in_place, all.diff.in_place);
  Append(family.diff.stale, all.diff.stale);
  Append(family.diff.findings, all.diff.findings);
  Append(family.claimed_by_kube_proxy, all.claimed_by_kube_proxy);
  Append(family.foreign_jumps, all.foreign_jumps);
}

// That of a rule about connection labels for which the match is missing; null: there is none.
const FamilyResult* LabelsRefused(const SyncReport& report) {
  for (const FamilyResult& result : report.families) {
    if (netlink::MissingExtension(result.status) == netlink::kConnLabelExtension) return &result;
  }
  return nullptr;
}

}  // namespace

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
  Plan plan{.generation = snapshot.generation,
            .diff = ComputeDiff(desired, snapshot, observed->native),
            .claimed_by_kube_proxy = {},
            .foreign_jumps = ForeignJumps(snapshot),
            .martians = FindMartianProtection(snapshot, observed->native)};
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
    AppendChanges(allowed, families, report);
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
  report.native_put |= before.native_put;
  report.native_removed |= before.native_removed;
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
  const Diff& tried = report.plan.diff;
  const bool one_family = !Changes(tried, Family::kIPv4) || !Changes(tried, Family::kIPv6);
  // A match that the kernel lacks it lacks for both: a bare chain of the other family, the hint,
  // would say that iptables can be used.
  const bool lacks_match = netlink::MissingExtension(both).has_value();
  if (both.ok() || absl::IsDeadlineExceeded(both) || one_family || lacks_match) {
    report.families = Results(desired, tried, both);
  } else {
    SyncEachFamily(desired, restraint, report);
  }
  return report;
}

void Reconciler::SyncEachFamily(const Ruleset& desired, const Restraint& restraint,
                                SyncReport& report) {
  const Diff tried = report.plan.diff;
  for (const Family family : desired.families) {
    const size_t applied_before = report.applied.size();
    absl::Status alone;
    if (Changes(tried, family)) {
      alone = SyncFamilies(desired, ChainsToRead(desired), {&family, 1}, restraint, report);
    }
    if (!report.status.ok()) return;
    const bool nothing_left = alone.ok() && report.applied.size() == applied_before;
    // What is no longer to be done was done by the attempt that was refused for the other.
    if (nothing_left && !backend_->spans_families()) AppendChanges(tried, {&family, 1}, report);
    report.families.push_back({family, std::move(alone)});
  }
}

void Reconciler::LookAtEachFamily(const Ruleset& desired, const Restraint& restraint,
                                  SyncReport& report) {
  const absl::Status together = report.status;
  std::vector<FamilyResult> results;
  bool any_was_read = false;
  Plan plan;
  for (const Family family : desired.families) {
    report.status = absl::OkStatus();
    absl::Status alone = SyncFamilies(OfFamily(desired, family), ChainsToRead(family), {&family, 1},
                                      restraint, report);
    if (report.status.ok()) {
      any_was_read = true;
      Merge(family, report.plan, plan);
    }
    results.push_back({family, std::move(alone)});
  }
  report.status = any_was_read ? absl::OkStatus() : together;
  if (!any_was_read) return;
  report.plan = std::move(plan);
  report.families = std::move(results);
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
  const Diff diff = ComputeDiff(desired, snapshot, observed->native);
  if (MayRetire(desired, snapshot, diff, options)) {
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
  return RetireUnused(desired, snapshot, diff, options, apply, report);
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
