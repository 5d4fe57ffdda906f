// SPDX-License-Identifier: Apache-2.0
#include "agent/commands.h"

#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agent/loop/plan.h"
#include "agent/loop/retirer.h"
#include "agent/loop/round.h"
#include "agent/policy/known_owners.h"
#include "agent/policy/nft_copies.h"
#include "agent/report/colors.h"
#include "agent/report/report.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

bool AnyNeedsAttention(const Diff& diff) { return absl::c_any_of(diff.findings, NeedsAttention); }

Reconciler ReconcilerFor(const CommandInput& input) {
  return Reconciler(&input.backend, input.clock, input.node.support.get());
}

// What retirement does, or without `apply` would do: in the managed iptables mode, then in the
// other. Where the managed mode fails, only with `despite_failure` in the other.
std::vector<RetireReport> RetireBoth(const CommandInput& input, const RetirementOptions& options,
                                     bool martians_dropped, bool apply,
                                     bool despite_failure = false) {
  std::vector<RetireReport> modes;
  modes.push_back(Retire(input.backend, input.clock,
                         {.input = input.subject.input,
                          .support = KnownSupport(input.node.support.get()),
                          .sources = *input.node.retire,
                          .options = options,
                          .apply = apply}));
  if (!input.node.retire_other || (!modes[0].status.ok() && !despite_failure)) return modes;
  std::optional<RetireReport> other = input.node.retire_other(martians_dropped, apply);
  if (other) modes.push_back(*std::move(other));
  return modes;
}

absl::StatusOr<Plan> Check(const CommandInput& input) {
  absl::StatusOr<Plan> plan = ReconcilerFor(input).Check(input.subject.input);
  if (!plan.ok() || !input.node.retire) return plan;
  std::vector<RetireReport> modes = RetireBoth(input, {}, plan->martians.in_place, /*apply=*/false);
  for (const RetireReport& mode : modes) {
    if (!mode.status.ok()) return mode.status;
  }
  plan->retirement = std::move(modes[0].plan);
  if (modes.size() > 1) plan->other_retirement = std::move(modes[1].plan);
  return plan;
}

// `code`, or kExitFailed with the errors of all `parts` printed.
ExitCode FailedOr(ExitCode code, std::ostream& err, const auto&... parts) {
  const auto print = [&](const absl::Status& status) {
    if (!status.ok()) code = Fail(status, kExitFailed, err);
  };
  (absl::c_for_each(parts, [&](const auto& part) { print(part.status); }), ...);
  return code;
}

// A survey, which a protected node does without.
void NoteWhoElseDropsMartians(const CommandInput& input, MartianProtection& martians) {
  const bool asks = !martians.in_place && !input.subject.route_localnet.empty();
  if (asks && input.node.who_drops_martians) martians.elsewhere = input.node.who_drops_martians();
}

using Report = std::string (*)(const Subject&, const Plan&);

// A diff reads few chains; any rule of a table can make iptables refuse it.
absl::Status FindIncompatibleTables(const CommandInput& input, Diff& diff) {
  if (input.backend.kind() != netlink::BackendKind::kNft) return absl::OkStatus();
  std::vector<Finding> found;
  const absl::StatusOr<netlink::Survey> read = TakeSettled([&] {
    UnlistableRules rules(diff.changes);
    absl::StatusOr<netlink::Survey> survey = input.backend.TakeSurvey(
        [&](const auto& table, const auto& chain, const netlink::SurveyRule& rule) {
          if (!rule.unlistable) return false;
          const std::optional<netlink::ChainId> id = KnownChainId(table, chain);
          if (id && absl::c_linear_search(input.subject.input.families, id->family)) {
            rules.Add(*id, rule);
          }
          return false;
        });
    if (survey.ok()) found = rules.Findings();
    return survey;
  });
  // Other programs write all the time: what the diff has found stays.
  if (absl::IsAborted(read.status())) return absl::OkStatus();
  if (!read.ok()) return read.status();
  std::erase_if(diff.findings, [](const Finding& finding) {
    return finding.condition == Condition::kTableIncompatible;
  });
  absl::c_move(found, std::back_inserter(diff.findings));
  return absl::OkStatus();
}

ExitOrError ReportLook(const CommandInput& input, Report text, Report json, bool whole = false) {
  absl::StatusOr<Plan> plan = Check(input);
  if (!plan.ok()) return plan.status();
  if (whole) {
    if (absl::Status read = FindIncompatibleTables(input, plan->diff); !read.ok()) return read;
  }
  NoteWhoElseDropsMartians(input, plan->martians);
  input.out << Colored(input.color, ColoredText::kPlanOrStatus,
                       (input.format == OutputFormat::kJson ? json : text)(input.subject, *plan));
  const auto retires = [](const std::optional<Retirement>& one) { return one && !one->empty(); };
  const bool nothing = plan->diff.empty() && !retires(plan->retirement) &&
                       !retires(plan->other_retirement) && !AnyNeedsAttention(plan->diff);
  return nothing ? kExitOk : kExitDifferences;
}

}  // namespace

ExitCode Fail(const absl::Status& status, ExitCode code, std::ostream& err) {
  err << "Error: " << Printable(status.message()) << "\n";
  return code;
}

Subject SubjectOf(const Node& node) {
  return {.emulated_version = node.config().emulated_version,
          .iptables_mode = node.mode() ? std::string(IptablesModeName(*node.mode())) : "",
          .input = node.Input()};
}

absl::StatusOr<std::string> PlanReport(Node& node) {
  const BackendOrError backend = node.Open(/*read_only=*/true);
  if (!backend.ok()) return backend.status();
  Subject subject = SubjectOf(node);
  subject.other_mode = node.ReadOther();
  std::ostringstream unused;
  const absl::StatusOr<Plan> plan = Check({.subject = subject,
                                           .backend = **backend,
                                           .clock = node.clock(),
                                           .node = node.Questions(Node::Purpose::kCheck),
                                           .out = unused,
                                           .err = unused});
  if (!plan.ok()) return plan.status();
  return PlanJson(subject, *plan);
}

ExitOrError RunPlan(const CommandInput& input) {
  return ReportLook(input, PlanText, PlanJson, /*whole=*/true);
}
ExitOrError RunStatus(const CommandInput& input) {
  return ReportLook(input, StatusText, StatusJson);
}

ExitOrError RunSync(const CommandInput& input) {
  SyncReport report = ReconcilerFor(input).Sync(input.subject.input);
  if (!report.status.ok()) return report.status;
  if (input.node.retire && report.FirstError().ok()) {
    report.retired =
        RetireBoth(input, {}, MartianProtectionExists(report.plan.martians, report.applied),
                   /*apply=*/true, /*despite_failure=*/true);
  }
  input.out << (input.format == OutputFormat::kJson ? SyncJson : SyncText)(input.subject, report);
  const ExitCode code = AnyNeedsAttention(report.plan.diff) ? kExitDifferences : kExitOk;
  return FailedOr(code, input.err, report.families, report.retired);
}

ExitOrError RunCheck(const CommandInput& input) {
  constexpr absl::Duration kPause = absl::Milliseconds(500);
  constexpr int kMostChecks = 3;
  AgentState state;
  for (int checks = 1; checks == 1 || (checks <= kMostChecks && !IsReady(state)); ++checks) {
    if (checks > 1) input.clock.sleep(kPause);
    absl::StatusOr<Plan> plan = ReconcilerFor(input).Check(input.subject.input);
    if (!plan.ok()) return plan.status();
    // This command repairs nothing.
    for (Finding& finding : plan->diff.findings) finding.repaired = false;
    state = AgentState();
    state.observing = input.observe;
    state.findings = plan->diff.findings;
    state.route_localnet = input.subject.route_localnet;
    NoteWhoElseDropsMartians(input, plan->martians);
    state.martian_protection = plan->martians.in_place;
    state.martians_dropped_elsewhere = plan->martians.elsewhere;
    SyncReport report;
    report.plan = *std::move(plan);
    for (const netlink::Family family : input.subject.input.families) {
      state.families.push_back(JudgeFamily(family, report, {}, input.observe));
    }
  }
  const bool ready = IsReady(state);
  input.out << (input.format == OutputFormat::kJson  ? CheckJson(state)
                : input.format == OutputFormat::kNpd ? NpdLine(StatusLine(state)) + "\n"
                                                     : StatusLine(state) + "\n");
  return ready ? kExitOk : kExitDifferences;
}

int NpdExitStatus(const ExitOrError& checked, std::ostream& out) {
  if (checked.ok()) return *checked == kExitOk ? 0 : 1;
  absl::string_view reason = checked.status().message();
  // The line is short.
  absl::ConsumePrefix(&reason, kIptablesModeUnknown);
  out << NpdLine(absl::StrCat("unknown: ", reason)) << "\n";
  return 2;
}

ExitOrError RunRetire(const CommandInput& input) {
  const absl::StatusOr<Plan> plan = ReconcilerFor(input).Check(input.subject.input);
  if (!plan.ok()) return plan.status();
  const std::vector<RetireReport> modes =
      RetireBoth(input, {.canaries = true, .when_off = true}, plan->martians.in_place, input.yes);
  const bool left = absl::c_any_of(modes, [&](const RetireReport& mode) {
    return !mode.plan.unsettled.empty() || (!input.yes && !mode.plan.empty());
  });
  const ExitCode code = FailedOr(left ? kExitDifferences : kExitOk, input.err, modes);
  if (input.format == OutputFormat::kJson) {
    input.out << RetireJson(modes, /*dry_run=*/!input.yes);
    return code;
  }
  for (const RetireReport& mode : modes) input.out << RetireText(mode, /*dry_run=*/!input.yes);
  return code;
}

ExitCode RunDetect(absl::Span<const FamilyMode> modes, OutputFormat format, std::ostream& out) {
  out << (format == OutputFormat::kJson ? DetectJson : DetectText)(modes);
  if (absl::c_any_of(modes, [](const FamilyMode& mode) { return mode.contradiction; })) {
    return kExitDifferences;
  }
  const auto unknown = [](const FamilyMode& mode) { return mode.mode == IptablesMode::kUnknown; };
  return absl::c_any_of(modes, unknown) ? kExitFailed : kExitOk;
}

ExitCode RunCapabilities(const CapabilityReport& report, OutputFormat format, std::ostream& out) {
  out << (format == OutputFormat::kJson ? CapabilitiesJson : CapabilitiesText)(report);
  const auto any = [&](ModuleState state) {
    return absl::c_any_of(report.software, [&](const auto& one) { return one.state == state; });
  };
  if (any(ModuleState::kMissing)) return kExitDifferences;
  return any(ModuleState::kUnknown) ? kExitFailed : kExitOk;
}

}  // namespace kipt::agent
