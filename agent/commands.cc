// SPDX-License-Identifier: Apache-2.0
#include "agent/commands.h"

#include <algorithm>
#include <string>
#include <utility>

#include "agent/loop/plan.h"
#include "agent/report/report.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

bool AnyNeedsAttention(const Diff& diff) {
  return std::any_of(diff.findings.begin(), diff.findings.end(), NeedsAttention);
}

// What the managed mode's retirement would do, or does.
RetireReport RetireManaged(const CommandInput& input, const RetirementOptions& options,
                           bool apply) {
  return Retire(input.backend, input.clock,
                {.input = input.subject.input,
                 .support = KnownSupport(input.node.support.get()),
                 .sources = *input.node.retire,
                 .options = options,
                 .apply = apply});
}

absl::StatusOr<Plan> Look(const CommandInput& input) {
  const NodeQuestions& node = input.node;
  absl::StatusOr<Plan> plan =
      Reconciler(&input.backend, input.clock, node.support.get()).Look(input.subject.input);
  if (!plan.ok() || !node.retire) return plan;
  RetireReport retire = RetireManaged(input, {}, /*apply=*/false);
  if (!retire.status.ok()) return retire.status;
  plan->retirement = std::move(retire.plan);
  if (!node.retire_other) return plan;
  std::optional<RetireReport> other = node.retire_other(plan->martians.stands, /*apply=*/false);
  if (other && !other->status.ok()) return other->status;
  if (other) plan->other_retirement = std::move(other->plan);
  return plan;
}

using Report = std::string (*)(const Subject&, const Plan&);

ExitCode ReportLook(const CommandInput& input, Report text, Report json) {
  const absl::StatusOr<Plan> plan = Look(input);
  if (!plan.ok()) return Fail(plan.status(), kExitFailed, input.err);
  input.out << (input.format == OutputFormat::kJson ? json : text)(input.subject, *plan);
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

ExitCode RunPlan(const CommandInput& input) { return ReportLook(input, PlanText, PlanJson); }
ExitCode RunStatus(const CommandInput& input) { return ReportLook(input, StatusText, StatusJson); }

ExitCode RunSync(const CommandInput& input) {
  const Subject& subject = input.subject;
  const NodeQuestions& node = input.node;
  SyncReport report =
      Reconciler(&input.backend, input.clock, node.support.get()).Sync(subject.input);
  if (!report.status.ok()) return Fail(report.status, kExitFailed, input.err);
  if (node.retire && report.FirstError().ok()) {
    report.retired.push_back(RetireManaged(input, {}, /*apply=*/true));
    std::optional<RetireReport> other;
    if (node.retire_other) {
      other = node.retire_other(MartianProtectionStands(report.plan.martians, report.applied),
                                /*apply=*/true);
    }
    if (other) report.retired.push_back(*std::move(other));
  }
  input.out << (input.format == OutputFormat::kJson ? SyncJson : SyncText)(subject, report);
  ExitCode code = AnyNeedsAttention(report.plan.diff) ? kExitDifferences : kExitOk;
  for (const FamilyResult& result : report.families) {
    if (!result.status.ok()) code = Fail(result.status, kExitFailed, input.err);
  }
  for (const RetireReport& mode : report.retired) {
    if (!mode.status.ok()) code = Fail(mode.status, kExitFailed, input.err);
  }
  return code;
}

ExitCode RunRetire(const CommandInput& input) {
  const NodeQuestions& node = input.node;
  const absl::StatusOr<Plan> plan =
      Reconciler(&input.backend, input.clock, node.support.get()).Look(input.subject.input);
  if (!plan.ok()) return Fail(plan.status(), kExitFailed, input.err);
  std::vector<RetireReport> done;
  done.push_back(RetireManaged(input, {.canaries = true, .when_off = true}, input.yes));
  std::optional<RetireReport> other;
  if (node.retire_other && done[0].status.ok()) {
    other = node.retire_other(plan->martians.stands, input.yes);
  }
  if (other) done.push_back(*std::move(other));
  ExitCode code = kExitOk;
  for (const RetireReport& mode : done) {
    const bool left = !mode.plan.unsettled.empty() || (!input.yes && !mode.plan.empty());
    if (left && code == kExitOk) code = kExitDifferences;
    if (!mode.status.ok()) code = Fail(mode.status, kExitFailed, input.err);
  }
  if (input.format == OutputFormat::kJson) {
    input.out << RetireJson(done, /*dry_run=*/!input.yes);
    return code;
  }
  for (const RetireReport& mode : done) input.out << RetireText(mode, /*dry_run=*/!input.yes);
  return code;
}

ExitCode RunDetect(absl::Span<const FamilyMode> modes, OutputFormat format, std::ostream& out) {
  out << (format == OutputFormat::kJson ? DetectJson : DetectText)(modes);
  const auto any = [&](auto holds) { return std::any_of(modes.begin(), modes.end(), holds); };
  if (any([](const FamilyMode& mode) { return mode.contradiction; })) return kExitDifferences;
  const auto unknown = [](const FamilyMode& mode) { return mode.mode == IptablesMode::kUnknown; };
  return any(unknown) ? kExitFailed : kExitOk;
}

}  // namespace kipt::agent
