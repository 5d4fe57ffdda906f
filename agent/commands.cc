// SPDX-License-Identifier: Apache-2.0
#include "agent/commands.h"

#include <algorithm>
#include <string>
#include <utility>

#include "agent/loop/martians.h"
#include "agent/report/report.h"
#include "featuregates/printable.h"

namespace kipt::agent {
namespace {

bool AnyNeedsAttention(const Diff& diff) {
  return std::any_of(diff.findings.begin(), diff.findings.end(), NeedsAttention);
}

absl::StatusOr<Plan> Look(const CommandInput& input) {
  const NodeQuestions& node = input.node;
  Reconciler reconciler(&input.backend, input.clock, node.support.get());
  absl::StatusOr<Plan> plan = reconciler.Look(input.subject.input);
  if (!plan.ok() || !node.retire) return plan;
  RetireReport report = reconciler.Retire(input.subject.input, *node.retire, {}, /*apply=*/false);
  if (!report.status.ok()) return report.status;
  plan->retirement = std::move(report.plan);
  if (!node.retire_other) return plan;
  std::optional<RetiredMode> other = node.retire_other(plan->martians.stands, /*apply=*/false);
  if (other && !other->report.status.ok()) return other->report.status;
  if (other) plan->other_retirement = std::move(other->report.plan);
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
  Reconciler reconciler(&input.backend, input.clock, node.support.get());
  SyncReport report = reconciler.Sync(subject.input);
  if (!report.status.ok()) return Fail(report.status, kExitFailed, input.err);
  if (node.retire && report.FirstError().ok()) {
    report.retired.push_back({subject.iptables_mode,
                              reconciler.Retire(subject.input, *node.retire, {}, /*apply=*/true)});
    std::optional<RetiredMode> other;
    if (node.retire_other)
      other = node.retire_other(MartianProtectionStands(report), /*apply=*/true);
    if (other) report.retired.push_back(*std::move(other));
  }
  input.out << (input.format == OutputFormat::kJson ? SyncJson : SyncText)(subject, report);
  ExitCode code = AnyNeedsAttention(report.plan.diff) ? kExitDifferences : kExitOk;
  for (const FamilyResult& result : report.families) {
    if (!result.status.ok()) code = Fail(result.status, kExitFailed, input.err);
  }
  for (const RetiredMode& mode : report.retired) {
    if (!mode.report.status.ok()) code = Fail(mode.report.status, kExitFailed, input.err);
  }
  return code;
}

ExitCode RunRetire(const CommandInput& input) {
  const NodeQuestions& node = input.node;
  Reconciler reconciler(&input.backend, input.clock, node.support.get());
  const absl::StatusOr<Plan> plan = reconciler.Look(input.subject.input);
  if (!plan.ok()) return Fail(plan.status(), kExitFailed, input.err);
  const RetirementOptions options = {.canaries = true, .when_off = true};
  std::vector<RetiredMode> done;
  done.push_back({input.subject.iptables_mode,
                  reconciler.Retire(input.subject.input, *node.retire, options, input.yes)});
  std::optional<RetiredMode> other;
  if (node.retire_other && done[0].report.status.ok())
    other = node.retire_other(plan->martians.stands, input.yes);
  if (other) done.push_back(*std::move(other));
  ExitCode code = kExitOk;
  for (const RetiredMode& mode : done) {
    const Retirement& planned = mode.report.plan;
    const bool left = !planned.unsettled.empty() || (!input.yes && !planned.empty());
    if (left && code == kExitOk) code = kExitDifferences;
    if (!mode.report.status.ok()) code = Fail(mode.report.status, kExitFailed, input.err);
  }
  if (input.format == OutputFormat::kJson) {
    input.out << RetireJson(done, /*dry_run=*/!input.yes);
    return code;
  }
  for (const RetiredMode& mode : done) {
    input.out << RetireText(mode.iptables_mode, mode.report, /*dry_run=*/!input.yes);
  }
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
