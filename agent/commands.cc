// SPDX-License-Identifier: Apache-2.0
#include "agent/commands.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "agent/loop/martians.h"
#include "agent/report/report.h"
#include "featuregates/printable.h"

namespace kipt::agent {
namespace {

bool AnyNeedsAttention(const Diff& diff) {
  return std::any_of(diff.findings.begin(), diff.findings.end(), NeedsAttention);
}

bool AddsRules(const Diff& diff) {
  return std::any_of(diff.changes.begin(), diff.changes.end(), [](const Change& change) {
    return std::holds_alternative<netlink::AddRule>(change.operation);
  });
}

void WantWith(const RuleSupport& support, Subject& subject) {
  subject.desired = DesiredRuleset(subject.desired.mode, subject.desired.families,
                                   subject.desired.bits, support, subject.desired.labels);
}

bool HoldsAll(const RuleSupport& support) { return support.xt && support.conn_labels; }

// Looks once; again where iptables turns out to hold no rules, or none about labels.
absl::StatusOr<Plan> LookAtRules(Subject& subject, Reconciler& reconciler,
                                 const NodeQuestions& node) {
  absl::StatusOr<Plan> plan = reconciler.Look(subject.desired);
  if (!plan.ok() || !node.support || !AddsRules(plan->diff)) return plan;
  const RuleSupport support = node.support();
  if (HoldsAll(support)) return plan;
  WantWith(support, subject);
  return reconciler.Look(subject.desired);
}

absl::StatusOr<Plan> Look(Subject& subject, Reconciler& reconciler, const NodeQuestions& node) {
  absl::StatusOr<Plan> plan = LookAtRules(subject, reconciler, node);
  if (!plan.ok() || !node.retire) return plan;
  RetireReport retire = reconciler.Retire(subject.desired, *node.retire, {}, /*apply=*/false);
  if (!retire.status.ok()) return retire.status;
  plan->retirement = std::move(retire.plan);
  if (!node.retire_other) return plan;
  std::optional<RetiredMode> other = node.retire_other(plan->martians.stands, /*apply=*/false);
  if (other && !other->report.status.ok()) return other->report.status;
  if (other) plan->other_retirement = std::move(other->report.plan);
  return plan;
}

// Looks and prints what `report` makes of it.
ExitCode ReportLook(Subject subject, netlink::Backend& backend, const Clock& clock,
                    std::string (*report)(const Subject&, const Plan&), CommandStreams streams,
                    const NodeQuestions& node) {
  Reconciler reconciler(&backend, clock);
  const absl::StatusOr<Plan> plan = Look(subject, reconciler, node);
  if (!plan.ok()) return Fail(plan.status(), kExitFailed, streams.err);
  streams.out << report(subject, *plan);
  const auto goes = [](const std::optional<Retirement>& retirement) {
    return retirement && !retirement->empty();
  };
  const bool nothing = plan->diff.empty() && !goes(plan->retirement) &&
                       !goes(plan->other_retirement) && !AnyNeedsAttention(plan->diff);
  return nothing ? kExitOk : kExitDifferences;
}

// Syncs; where iptables turns out to hold no rules, or none about labels, what is wanted then.
SyncReport Sync(Subject& subject, Reconciler& reconciler, const NodeQuestions& node) {
  std::optional<RuleSupport> support;
  const auto held_back = [&](const Plan& plan) {
    if (!support && node.support && AddsRules(plan.diff)) support = node.support();
    return support && !HoldsAll(*support) ? Diff() : plan.diff;
  };
  SyncReport report = reconciler.Sync(subject.desired, held_back);
  if (support && report.LacksExtension()) {
    support->xt = false;
    support->refused = true;
    support->reason = "the kernel refused a rule of iptables-nft for want of a match";
  }
  const bool wants_less = support && !HoldsAll(*support);
  // As the reconciler did by itself.
  if (!report.labels_refused.ok()) {
    support = WithoutConnLabels(support.value_or(subject.desired.support),
                                report.labels_refused.message());
  }
  if (support) WantWith(*support, subject);
  if (!wants_less) return report;
  return reconciler.Sync(subject.desired);
}

}  // namespace

ExitCode Fail(const absl::Status& status, ExitCode code, std::ostream& err) {
  err << "Error: " << featuregates::Printable(status.message()) << "\n";
  return code;
}

ExitCode RunPlan(Subject subject, netlink::Backend& backend, const Clock& clock,
                 OutputFormat format, CommandStreams streams, const NodeQuestions& node) {
  return ReportLook(std::move(subject), backend, clock,
                    format == OutputFormat::kJson ? PlanJson : PlanText, streams, node);
}

ExitCode RunStatus(Subject subject, netlink::Backend& backend, const Clock& clock,
                   OutputFormat format, CommandStreams streams, const NodeQuestions& node) {
  return ReportLook(std::move(subject), backend, clock,
                    format == OutputFormat::kJson ? StatusJson : StatusText, streams, node);
}

ExitCode RunSync(Subject subject, netlink::Backend& backend, const Clock& clock,
                 OutputFormat format, CommandStreams streams, const NodeQuestions& node) {
  Reconciler reconciler(&backend, clock);
  SyncReport report = Sync(subject, reconciler, node);
  if (!report.status.ok()) return Fail(report.status, kExitFailed, streams.err);
  if (node.retire && report.FirstError().ok()) {
    report.retired.push_back(
        {subject.iptables_mode,
         reconciler.Retire(subject.desired, *node.retire, {}, /*apply=*/true)});
    std::optional<RetiredMode> other;
    if (node.retire_other)
      other = node.retire_other(MartianProtectionStands(report), /*apply=*/true);
    if (other) report.retired.push_back(*std::move(other));
  }
  streams.out << (format == OutputFormat::kJson ? SyncJson(subject, report)
                                                : SyncText(subject, report));
  ExitCode code = AnyNeedsAttention(report.plan.diff) ? kExitDifferences : kExitOk;
  for (const FamilyResult& result : report.families) {
    if (result.status.ok()) continue;
    code = Fail(result.status, kExitFailed, streams.err);
  }
  for (const RetiredMode& mode : report.retired) {
    if (!mode.report.status.ok()) code = Fail(mode.report.status, kExitFailed, streams.err);
  }
  return code;
}

ExitCode RunRetire(Subject subject, netlink::Backend& backend, bool yes, const Clock& clock,
                   OutputFormat format, CommandStreams streams, const NodeQuestions& node) {
  Reconciler reconciler(&backend, clock);
  const absl::StatusOr<Plan> plan = LookAtRules(subject, reconciler, node);
  if (!plan.ok()) return Fail(plan.status(), kExitFailed, streams.err);
  const RetirementOptions options = {.canaries = true, .when_off = true};
  std::vector<RetiredMode> done;
  done.push_back(
      {subject.iptables_mode, reconciler.Retire(subject.desired, *node.retire, options, yes)});
  std::optional<RetiredMode> other;
  if (node.retire_other && done[0].report.status.ok())
    other = node.retire_other(plan->martians.stands, yes);
  if (other) done.push_back(*std::move(other));
  ExitCode code = kExitOk;
  for (const RetiredMode& mode : done) {
    const Retirement& planned = mode.report.plan;
    const bool left = !planned.unsettled.empty() || (!yes && !planned.empty());
    if (left && code == kExitOk) code = kExitDifferences;
    if (!mode.report.status.ok()) code = Fail(mode.report.status, kExitFailed, streams.err);
  }
  if (format == OutputFormat::kJson) {
    streams.out << RetireJson(done, /*dry_run=*/!yes);
    return code;
  }
  for (const RetiredMode& mode : done) {
    streams.out << RetireText(mode.iptables_mode, mode.report, /*dry_run=*/!yes);
  }
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
