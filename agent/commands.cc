// SPDX-License-Identifier: Apache-2.0
#include "agent/commands.h"

#include <algorithm>
#include <string>

#include "agent/report/report_mode.h"

namespace kipt::agent {
namespace {

bool AnyNeedsAttention(const Diff& diff) {
  return std::any_of(diff.findings.begin(), diff.findings.end(), NeedsAttention);
}

ExitCode Fail(const absl::Status& status, std::ostream& err) {
  err << "Error: " << status.message() << "\n";
  return kExitFailed;
}

// Looks once and prints what `report` makes of it.
ExitCode ReportLook(const Subject& subject, netlink::Backend& backend, const Clock& clock,
                    std::string (*report)(const Subject&, const Plan&), CommandStreams streams) {
  absl::StatusOr<Plan> plan = Reconciler(&backend, clock).Look(subject.desired);
  if (!plan.ok()) return Fail(plan.status(), streams.err);
  streams.out << report(subject, *plan);
  return plan->diff.changes.empty() && !AnyNeedsAttention(plan->diff) ? kExitOk : kExitDifferences;
}

}  // namespace

ExitCode RunPlan(const Subject& subject, netlink::Backend& backend, const Clock& clock,
                 OutputFormat format, CommandStreams streams) {
  return ReportLook(subject, backend, clock, format == OutputFormat::kJson ? PlanJson : PlanText,
                    streams);
}

ExitCode RunStatus(const Subject& subject, netlink::Backend& backend, const Clock& clock,
                   OutputFormat format, CommandStreams streams) {
  return ReportLook(subject, backend, clock,
                    format == OutputFormat::kJson ? StatusJson : StatusText, streams);
}

ExitCode RunSync(const Subject& subject, netlink::Backend& backend, const Clock& clock,
                 OutputFormat format, CommandStreams streams) {
  const SyncReport report = Reconciler(&backend, clock).Sync(subject.desired);
  if (!report.status.ok()) return Fail(report.status, streams.err);
  streams.out << (format == OutputFormat::kJson ? SyncJson(subject, report)
                                                : SyncText(subject, report));
  ExitCode code = AnyNeedsAttention(report.plan.diff) ? kExitDifferences : kExitOk;
  for (const FamilyResult& result : report.families) {
    if (result.status.ok()) continue;
    code = Fail(result.status, streams.err);
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
