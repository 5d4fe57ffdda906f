// SPDX-License-Identifier: Apache-2.0
#include "agent/commands.h"

#include <algorithm>
#include <string>
#include <utility>

#include "agent/loop/plan.h"
#include "agent/loop/retirer.h"
#include "agent/report/report.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

bool AnyNeedsAttention(const Diff& diff) {
  return std::any_of(diff.findings.begin(), diff.findings.end(), NeedsAttention);
}

// What the managed mode's retirement would do, or does.
RetireReport RetireManaged(const Subject& subject, netlink::Backend& backend, const Clock& clock,
                           const NodeQuestions& node, const RetirementOptions& options,
                           bool apply) {
  return Retire(backend, clock,
                {.input = subject.input,
                 .support = KnownSupport(node.support.get()),
                 .sources = *node.retire,
                 .options = options,
                 .apply = apply});
}

absl::StatusOr<Plan> Look(const Subject& subject, netlink::Backend& backend, const Clock& clock,
                          const NodeQuestions& node) {
  absl::StatusOr<Plan> plan = Reconciler(&backend, clock, node.support.get()).Look(subject.input);
  if (!plan.ok() || !node.retire) return plan;
  RetireReport retire = RetireManaged(subject, backend, clock, node, {}, /*apply=*/false);
  if (!retire.status.ok()) return retire.status;
  plan->retirement = std::move(retire.plan);
  if (!node.retire_other) return plan;
  std::optional<RetireReport> other = node.retire_other(plan->martians.stands, /*apply=*/false);
  if (other && !other->status.ok()) return other->status;
  if (other) plan->other_retirement = std::move(other->plan);
  return plan;
}

// Looks and prints what `report` makes of it.
ExitCode ReportLook(const Subject& subject, netlink::Backend& backend, const Clock& clock,
                    std::string (*report)(const Subject&, const Plan&), CommandStreams streams,
                    const NodeQuestions& node) {
  const absl::StatusOr<Plan> plan = Look(subject, backend, clock, node);
  if (!plan.ok()) return Fail(plan.status(), kExitFailed, streams.err);
  streams.out << report(subject, *plan);
  const auto goes = [](const std::optional<Retirement>& retirement) {
    return retirement && !retirement->empty();
  };
  const bool nothing = plan->diff.empty() && !goes(plan->retirement) &&
                       !goes(plan->other_retirement) && !AnyNeedsAttention(plan->diff);
  return nothing ? kExitOk : kExitDifferences;
}

}  // namespace

ExitCode Fail(const absl::Status& status, ExitCode code, std::ostream& err) {
  err << "Error: " << featuregates::Printable(status.message()) << "\n";
  return code;
}

ExitCode RunPlan(const Subject& subject, netlink::Backend& backend, const Clock& clock,
                 OutputFormat format, CommandStreams streams, const NodeQuestions& node) {
  return ReportLook(subject, backend, clock, format == OutputFormat::kJson ? PlanJson : PlanText,
                    streams, node);
}

ExitCode RunStatus(const Subject& subject, netlink::Backend& backend, const Clock& clock,
                   OutputFormat format, CommandStreams streams, const NodeQuestions& node) {
  return ReportLook(subject, backend, clock,
                    format == OutputFormat::kJson ? StatusJson : StatusText, streams, node);
}

ExitCode RunSync(const Subject& subject, netlink::Backend& backend, const Clock& clock,
                 OutputFormat format, CommandStreams streams, const NodeQuestions& node) {
  SyncReport report = Reconciler(&backend, clock, node.support.get()).Sync(subject.input);
  if (!report.status.ok()) return Fail(report.status, kExitFailed, streams.err);
  if (node.retire && report.FirstError().ok()) {
    report.retired.push_back(RetireManaged(subject, backend, clock, node, {}, /*apply=*/true));
    std::optional<RetireReport> other;
    if (node.retire_other) {
      other = node.retire_other(MartianProtectionStands(report.plan.martians, report.applied),
                                /*apply=*/true);
    }
    if (other) report.retired.push_back(*std::move(other));
  }
  streams.out << (format == OutputFormat::kJson ? SyncJson(subject, report)
                                                : SyncText(subject, report));
  ExitCode code = AnyNeedsAttention(report.plan.diff) ? kExitDifferences : kExitOk;
  for (const FamilyResult& result : report.families) {
    if (result.status.ok()) continue;
    code = Fail(result.status, kExitFailed, streams.err);
  }
  for (const RetireReport& mode : report.retired) {
    if (!mode.status.ok()) code = Fail(mode.status, kExitFailed, streams.err);
  }
  return code;
}

ExitCode RunRetire(const Subject& subject, netlink::Backend& backend, bool yes, const Clock& clock,
                   OutputFormat format, CommandStreams streams, const NodeQuestions& node) {
  const absl::StatusOr<Plan> plan =
      Reconciler(&backend, clock, node.support.get()).Look(subject.input);
  if (!plan.ok()) return Fail(plan.status(), kExitFailed, streams.err);
  std::vector<RetireReport> done;
  done.push_back(RetireManaged(subject, backend, clock, node, {.canaries = true, .when_off = true},
                               /*apply=*/yes));
  std::optional<RetireReport> other;
  if (node.retire_other && done[0].status.ok()) {
    other = node.retire_other(plan->martians.stands, yes);
  }
  if (other) done.push_back(*std::move(other));
  ExitCode code = kExitOk;
  for (const RetireReport& mode : done) {
    const bool left = !mode.plan.unsettled.empty() || (!yes && !mode.plan.empty());
    if (left && code == kExitOk) code = kExitDifferences;
    if (!mode.status.ok()) code = Fail(mode.status, kExitFailed, streams.err);
  }
  if (format == OutputFormat::kJson) {
    streams.out << RetireJson(done, /*dry_run=*/!yes);
    return code;
  }
  for (const RetireReport& mode : done) streams.out << RetireText(mode, /*dry_run=*/!yes);
  return code;
}

ExitCode RunDetect(absl::Span<const FamilyMode> modes, OutputFormat format,
                   CommandStreams streams) {
  streams.out << (format == OutputFormat::kJson ? DetectJson(modes) : DetectText(modes));
  const auto any = [&](auto holds) { return std::any_of(modes.begin(), modes.end(), holds); };
  if (any([](const FamilyMode& mode) { return mode.contradiction; })) return kExitDifferences;
  const auto unknown = [](const FamilyMode& mode) { return mode.mode == IptablesMode::kUnknown; };
  return any(unknown) ? kExitFailed : kExitOk;
}

}  // namespace kipt::agent
