// SPDX-License-Identifier: Apache-2.0
//
// Everything that is printed, logged, served or drawn, where every name, comment and message is a
// stranger's: no byte of it gets out unescaped (tests/support/unescaped.h), and JSON is JSON.
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/commands.h"
#include "agent/config/config.h"
#include "agent/endpoints/endpoints.h"
#include "agent/endpoints/metrics.h"
#include "agent/loop/agent_state.h"
#include "agent/policy/rule_forms.h"
#include "agent/report/report.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/config_text.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"
#include "tests/support/observed.h"
#include "tests/support/unescaped.h"

namespace kipt::testing {
namespace {

using agent::Mode;
using netlink::Family;
using netlink::Table;

// What strangers wrote.
struct Hostile {
  std::string name;     // of a chain, an interface, a file, a process
  std::string comment;  // of a rule
  std::string message;  // of a program or the kernel
};

void RequireText(absl::string_view text) {
  const std::string unescaped = FindUnescaped(text);
  if (!unescaped.empty()) EndHere(__FILE__, __LINE__, unescaped.c_str());
}

void RequireLine(absl::string_view line) {
  RequireText(line);
  KIPT_REQUIRE(line.find('\n') == absl::string_view::npos);
}

// Also fit for a terminal.
void RequireJson(const std::string& json) {
  KIPT_REQUIRE(nlohmann::json::accept(json));
  for (const char c : json) KIPT_REQUIRE(c == '\n' || (c >= 0x20 && c < 0x7f));
}

netlink::ObservedRule Foreign(const std::string& text, const std::string& jump, uint64_t handle) {
  netlink::OpaqueRule rule{.text = text};
  if (!jump.empty()) rule.jump = jump;
  rule.unconditional = rule.terminal = jump.empty();
  rule.marks.set = 0x4000;
  return {.handle = handle, .content = rule};
}

// kubelet's chains and jumps of legacy mode, with foreign rules before and after them.
netlink::Snapshot NodeWith(const Hostile& hostile, bool hooked) {
  netlink::Snapshot snapshot;
  uint64_t handle = 0;
  const std::string text = absl::StrCat("-m comment --comment ", hostile.comment, " -j ");
  const auto chain = [&](Table table, absl::string_view name) -> netlink::ObservedChain& {
    netlink::ObservedChain& made =
        snapshot.chains[netlink::ChainId{Family::kIPv4, table, std::string(name)}];
    made.hooked = hooked;
    return made;
  };
  for (const absl::string_view name : {agent::kMarkMasqChain, agent::kMarkDropChain,
                                       agent::kPostroutingChain, agent::kLabelMasqChain}) {
    chain(Table::kNat, name).rules = {Foreign(text + "ACCEPT", "", ++handle)};
  }
  netlink::Rule drop;
  drop.comment = hostile.comment;
  drop.target = netlink::Drop{};
  chain(Table::kFilter, agent::kFirewallChain).rules = {
      {.handle = ++handle, .content = drop}, Foreign(text + hostile.name, hostile.name, ++handle)};
  netlink::Rule jump;
  jump.target = netlink::Jump{std::string(agent::kFirewallChain)};
  chain(Table::kFilter, "INPUT").rules = {Foreign(text + hostile.name, hostile.name, ++handle),
                                          Foreign(text + "DROP", "", ++handle),
                                          {.handle = ++handle, .content = jump}};
  chain(Table::kNat, "POSTROUTING");
  return snapshot;
}

agent::Dependents DependentsOf(const Hostile& hostile) {
  const netlink::ChainId masq = {Family::kIPv4, Table::kNat, std::string(agent::kMarkMasqChain)};
  return {.references = {{masq, absl::StrCat("ip nat ", hostile.name), hostile.comment, false}},
          .reference_counts = {{masq, 1}},
          .mark_setters = {{.from = hostile.name, .rule = hostile.comment, .bits = 0x8000}},
          .label_setters = {{.from = hostile.name,
                             .rule = hostile.comment,
                             .labels = netlink::AllConnLabels()}},
          .cni = {.directories = {hostile.name},
                  .references = {{hostile.name, hostile.comment, "KUBE-MARK-DROP"}},
                  .problems = {hostile.message}},
          .route_localnet = {.interfaces = {hostile.name}}};
}

agent::Writer WriterOf(const Hostile& hostile) {
  // Escaped by IdentifyWriter, which FuzzNodeFiles has; here as if it were not.
  return {.pid = 1,
          .command = hostile.name,
          .command_line = hostile.comment,
          .unit = hostile.message,
          .parent_pid = 2,
          .parent_command = hostile.name};
}

void CheckReports(const agent::Subject& subject, const agent::Plan& plan, const Hostile& hostile) {
  RequireText(agent::PlanText(subject, plan));
  RequireJson(agent::PlanJson(subject, plan));
  RequireText(agent::StatusText(subject, plan));
  RequireJson(agent::StatusJson(subject, plan));
  const absl::Status failure = absl::InternalError(absl::StrCat("x ", hostile.message));
  agent::SyncReport report;
  report.plan = plan;
  report.applied = plan.diff.changes;
  report.families = {{Family::kIPv4, failure}, {Family::kIPv6, absl::OkStatus()}};
  agent::RetireReport retired;
  retired.status = failure;
  retired.plan = plan.retirement.value_or(agent::Retirement());
  retired.iptables_mode = "nft";
  report.retired = {retired};
  RequireText(agent::SyncText(subject, report));
  RequireJson(agent::SyncJson(subject, report));
  for (const bool dry_run : {false, true}) {
    RequireText(agent::RetireText(retired, dry_run));
    RequireJson(agent::RetireJson(report.retired, dry_run));
  }
  std::ostringstream errors;
  agent::Fail(failure, agent::kExitFailed, errors);
  RequireText(errors.str());
}

void CheckDetection(const Hostile& hostile) {
  const std::vector<agent::FamilyMode> modes = {
      {.evidence = {{.text = hostile.message}}, .findings = {hostile.comment}}};
  RequireText(agent::DetectText(modes));
  RequireJson(agent::DetectJson(modes));
}

void CheckDaemon(const agent::Plan& plan, const Hostile& hostile) {
  agent::DaemonState state;
  state.watching = state.config_problem = state.must_restart = hostile.message;
  state.families = {{.phase = agent::FamilyPhase::kFailed, .reason = hostile.message},
                    {.family = Family::kIPv6, .phase = agent::FamilyPhase::kDegraded}};
  state.findings = plan.diff.findings;
  state.stale = plan.diff.stale;
  state.fights = {{.chain = {Family::kIPv4, Table::kNat, std::string(agent::kMarkMasqChain)},
                   .item = hostile.comment,
                   .by = {.writers = {WriterOf(hostile)}, .others = false}}};
  if (plan.retirement) state.claimed = plan.retirement->kept;
  state.route_localnet.interfaces = {hostile.name};
  state.recent.incidents = {hostile.comment};
  state.recent.foreign_rules = state.recent.blockers = {hostile.comment};
  RequireLine(agent::StatusLine(state));
  agent::Flags flags;
  flags.config = flags.netns = flags.cni_conf_dir = hostile.name;
  flags.feature_gates = {hostile.comment};
  static const agent::Config config = *LoadAndCheck({});
  const agent::Endpoints endpoints({.version = "1", .flags = flags, .config = config}, state);
  RequireText(endpoints.Inspect({.path = "/statusz"}).body);
  RequireText(endpoints.Inspect({.path = "/flagz"}).body);
  RequireText(endpoints.Health({.path = "/readyz", .verbose = true}).body);
  agent::Round round;
  round.report.plan = plan;
  round.fights_begun = state.fights;
  round.incident =
      // The chain is one of ours: metrics have it as a label.
      agent::Incident{.damage = {{{Family::kIPv4, Table::kNat, std::string(agent::kMarkMasqChain)},
                                  agent::DamageKind::kRuleMissing,
                                  hostile.comment}},
                      .by = {.writers = {WriterOf(hostile)}, .others = false},
                      .lost_jumps = {{{Family::kIPv4, Table::kNat, "PREROUTING"}, hostile.name}},
                      .latency = absl::ZeroDuration(),
                      .applying = absl::ZeroDuration()};
  RequireLine(ToString(*round.incident));
  agent::Metrics metrics({.version = "1"});
  metrics.Record(round, state);
  RequireText(metrics.Serialize());
}

}  // namespace

// With a form feed between them: a name, a comment, a message.
void FuzzOutputs(FuzzBytes input) {
  constexpr char kSeparator = '\f';
  absl::string_view rest = AsText(input);
  Hostile hostile;
  hostile.name = std::string(TakePart(rest, kSeparator));
  hostile.comment = std::string(TakePart(rest, kSeparator));
  hostile.message = std::string(rest);
  for (const Mode mode : {Mode::kLegacy, Mode::kCleanup, Mode::kOff}) {
    const bool hooked = mode != Mode::kOff;
    const netlink::Snapshot snapshot = NodeWith(hostile, hooked);
    agent::Subject subject{.emulated_version = {1, 27},
                           .iptables_mode = "nft",
                           .input = ::kipt::testing::Wanting(mode, {Family::kIPv4})};
    subject.route_localnet.interfaces = {hostile.name};
    subject.other_mode = {.iptables_mode = "legacy",
                          .chains = {{Family::kIPv4, Table::kNat, hostile.name}},
                          .problem = hostile.message};
    agent::Plan plan;
    plan.diff = ComputeDiff(subject.input, snapshot);
    // As if all were in place.
    agent::Diff in_place;
    in_place.stale = plan.diff.stale;
    plan.retirement = PlanRetirement(subject.input, snapshot, in_place, DependentsOf(hostile),
                                     {.canaries = true, .when_off = true});
    plan.other_retirement = plan.retirement;
    CheckReports(subject, plan, hostile);
    CheckDaemon(plan, hostile);
  }
  CheckDetection(hostile);
}

}  // namespace kipt::testing
