// SPDX-License-Identifier: Apache-2.0
#include "agent/reconciler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace kipt::agent {
namespace {

using netlink::Family;

constexpr int kRetriesAtOnce = 10;
constexpr absl::Duration kRetryPause = absl::Milliseconds(100);
constexpr absl::Duration kRetryLimit = absl::Seconds(5);

bool Changes(const Diff& diff, Family family) {
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
}

// What each family is told after one attempt for both: only those that had something to change can
// have failed, but where nothing could be planned all have.
std::vector<FamilyResult> Results(const Ruleset& desired, const Diff& diff,
                                  const absl::Status& both) {
  std::vector<FamilyResult> results;
  for (const Family family : desired.families) {
    const bool failed = !both.ok() && (diff.changes.empty() || Changes(diff, family));
    results.push_back({family, failed ? both : absl::OkStatus()});
  }
  return results;
}

}  // namespace

absl::Status SyncReport::FirstError() const {
  if (!status.ok()) return status;
  for (const FamilyResult& result : families) {
    if (!result.status.ok()) return result.status;
  }
  return absl::OkStatus();
}

Clock SystemClock() {
  return {.now = [] { return absl::Now(); },
          .sleep = [](absl::Duration duration) { absl::SleepFor(duration); }};
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

absl::StatusOr<Plan> Reconciler::LookOnce(const Ruleset& desired) {
  const absl::StatusOr<netlink::Snapshot> snapshot = backend_->Read(ChainsToRead());
  if (!snapshot.ok()) return snapshot.status();
  return Plan{.generation = snapshot->generation, .diff = ComputeDiff(desired, *snapshot)};
}

absl::StatusOr<Plan> Reconciler::Look(const Ruleset& desired) {
  absl::StatusOr<Plan> plan;
  const absl::Status status = RetryAborted([&] {
    plan = LookOnce(desired);
    return plan.status();
  });
  if (!status.ok()) return status;
  return plan;
}

absl::Status Reconciler::SyncFamilies(const Ruleset& desired, absl::Span<const Family> families,
                                      SyncReport& report) {
  return RetryAborted([&] {
    ++report.looks;
    absl::StatusOr<Plan> plan = LookOnce(desired);
    if (!plan.ok()) {
      // A failed look says nothing about either family.
      if (!absl::IsAborted(plan.status())) report.status = plan.status();
      return plan.status();
    }
    report.plan = *std::move(plan);
    absl::Status applied =
        backend_->Apply(ToTransaction(report.plan.diff, report.plan.generation, families));
    if (!applied.ok()) return applied;
    AppendChanges(report.plan.diff, families, report);
    return absl::OkStatus();
  });
}

SyncReport Reconciler::Sync(const Ruleset& desired) {
  SyncReport report;
  const absl::Status both = SyncFamilies(desired, desired.families, report);
  if (!report.status.ok()) return report;
  const Diff tried = report.plan.diff;
  const bool one_family = !Changes(tried, Family::kIPv4) || !Changes(tried, Family::kIPv6);
  if (both.ok() || absl::IsDeadlineExceeded(both) || one_family) {
    report.families = Results(desired, tried, both);
    return report;
  }
  // One family's refusal must not keep the other from its rules.
  for (const Family family : desired.families) {
    const size_t applied_before = report.applied.size();
    absl::Status alone;
    if (Changes(tried, family)) alone = SyncFamilies(desired, {&family, 1}, report);
    if (!report.status.ok()) return report;
    const bool nothing_left = alone.ok() && report.applied.size() == applied_before;
    // What is no longer to be done was done by the attempt that was refused for the other.
    if (nothing_left && !backend_->spans_families()) AppendChanges(tried, {&family, 1}, report);
    report.families.push_back({family, std::move(alone)});
  }
  return report;
}

}  // namespace kipt::agent
