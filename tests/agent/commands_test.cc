// SPDX-License-Identifier: Apache-2.0
#include "agent/commands.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "agent/policy/rule_forms.h"
#include "agent/report/colors.h"
#include "tests/support/fake_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

using Json = nlohmann::json;

Subject SubjectOf(Mode mode) {
  return {.emulated_version = {1, 27},
          .iptables_mode = "nft",
          .input = Wanting(mode, netlink::kFamilies, {})};
}

struct Outcome {
  ExitCode code = kExitOk;
  std::string out;
  std::string err;
};

using CommandFunction = ExitOrError (*)(const CommandInput&);

Outcome Invoke(CommandFunction command, Mode mode, FakeBackend& backend,
               OutputFormat format = OutputFormat::kText, const NodeQuestions& node = {},
               HintPolicy hint = HintPolicy::kUsable) {
  std::ostringstream out;
  std::ostringstream err;
  const Clock clock{.now = [] { return SteadyTime(); }, .sleep = [](absl::Duration) {}};
  Subject subject = SubjectOf(mode);
  subject.input.hint = hint;
  subject.show_all = true;
  const ExitOrError ended = command({.subject = subject,
                                     .backend = backend,
                                     .clock = clock,
                                     .node = node,
                                     .format = format,
                                     .out = out,
                                     .err = err});
  const ExitCode code = ended.ok() ? *ended : Fail(ended.status(), kExitFailed, err);
  return {code, out.str(), err.str()};
}

TEST(NpdExitStatusTest, TheShortLineHasTheReason) {
  std::ostringstream out;
  EXPECT_EQ(NpdExitStatus(absl::UnknownError(WhyUnknown({.findings = {"two hints"}})), out), 2);
  EXPECT_THAT(out.str(), StartsWith("unknown: ip: two hints; give"));
}

TEST(ColoredTest, ColoursWhatTheTableNames) {
  const struct {
    ColoredText kind;
    std::string text;
    std::string colored;
  } rows[] = {
      {ColoredText::kPlanOrStatus, "\nip nat\n  + -A X  # why\n",
       "\nip nat\n\x1b[32m  + -A X  # why\x1b[0m\n"},
      {ColoredText::kPlanOrStatus, "  - :X  # why\n  = :Y  # why\n",
       "\x1b[31m  - :X  # why\x1b[0m\n  = :Y  # why\n"},
      {ColoredText::kPlanOrStatus,
       "  ! A (critical) ip nat X: (warning)\n  ! B (warning) ip nat X: y\n  ! C (info) z\n",
       "\x1b[31m  ! A (critical)\x1b[0m ip nat X: (warning)\n"
       "\x1b[33m  ! B (warning)\x1b[0m ip nat X: y\n  ! C (info) z\n"},
      {ColoredText::kPlanOrStatus,
       "ip: in place\nip6: 1 finding\nip: 2 changes needed (see plan)\n",
       "\x1b[32mip: in place\x1b[0m\n\x1b[33mip6: 1 finding\x1b[0m\n"
       "\x1b[33mip: 2 changes needed (see plan)\x1b[0m\n"},
      {ColoredText::kPlanOrStatus,
       "martian packets: EXPOSED: no rule\nmartian packets: no rule, and\n",
       "\x1b[31mmartian packets: EXPOSED: no rule\x1b[0m\nmartian packets: no rule, and\n"},
      {ColoredText::kAudit,
       "error   A  nft\n    warning \nwarning B\ninfo    C\nallowed D\n\n1 error, 1 warning\n",
       "\x1b[31merror\x1b[0m   A  nft\n    warning \n\x1b[33mwarning\x1b[0m B\ninfo    C\n"
       "allowed D\n\n1 error, 1 warning\n"},
      {ColoredText::kExplain, "nat/X  (nft ip)\n  what\n\nin short\n  - a point\n",
       "\x1b[1mnat/X  (nft ip)\x1b[0m\n  what\n\n\x1b[1min short\x1b[0m\n  - a point\n"},
      {ColoredText::kExplain, "", ""},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(Colored(true, row.kind, row.text), row.colored);
    EXPECT_EQ(Colored(false, row.kind, row.text), row.text);
  }
}

struct ExitCase {
  std::string name;
  std::function<void(FakeBackend&)> state;
  ExitCode sync = kExitOk;
  ExitCode plan = kExitDifferences;
  ExitCode status = kExitDifferences;
  ExitCode check = kExitDifferences;
};

void InPlace(FakeBackend& backend) { Invoke(RunSync, Mode::kCleanup, backend); }
// In place, and then this rule of another program's.
std::function<void(FakeBackend&)> AndThen(const netlink::ChainId& chain,
                                          const FakeBackend::Content& rule, bool first = false) {
  return [=](FakeBackend& backend) {
    InPlace(backend);
    backend.AppendRule(chain, rule, first);
  };
}

TEST(ExitCodeTest, ReportsTheStateToAScript) {
  const netlink::ChainId firewall = Filter("KUBE-FIREWALL");
  const ExitCase rows[] = {
      {"NothingExists", [](FakeBackend&) {}},
      {"EverythingIsInPlace", InPlace, kExitOk, kExitOk, kExitOk, kExitOk},
      {"StaleChainsAreNoFinding", AndThen(Nat("KUBE-MARK-DROP"), SetBit(15)), kExitOk, kExitOk,
       kExitOk, kExitOk},
      {"AnAdminsDropAll", AndThen(firewall, BareDrop()), kExitDifferences},
      {"DamageThatIsRepaired", AndThen(firewall, BareDrop("block incoming localnet connections"))},
      {"AnAcceptAboveOurJump", AndThen(Filter("INPUT"), ForeignAcceptAll(), /*first=*/true),
       kExitDifferences},
      {"AnUnhookedBaseChain",
       [](FakeBackend& backend) { backend.AddChain(Filter("INPUT"), false); }, kExitDifferences},
      {"TheKernelRefusesToBeRead",
       [](FakeBackend& backend) {
         for (int i = 0; i < 3; ++i) backend.FailNextRead(absl::PermissionDeniedError("no"));
       },
       kExitFailed, kExitFailed, kExitFailed, kExitFailed},
  };
  for (const ExitCase& row : rows) {
    SCOPED_TRACE(row.name);
    const std::pair<CommandFunction, ExitCode> commands[] = {
        {RunPlan, row.plan}, {RunStatus, row.status}, {RunSync, row.sync}, {RunCheck, row.check}};
    for (const auto& [command, code] : commands) {
      FakeBackend backend;
      row.state(backend);
      EXPECT_EQ(Invoke(command, Mode::kCleanup, backend).code, code);
    }
  }
}

class CommandsTest : public ::testing::Test {
 protected:
  Outcome Run(CommandFunction command, Mode mode = Mode::kCleanup, const NodeQuestions& node = {},
              OutputFormat format = OutputFormat::kText) {
    return Invoke(command, mode, backend_, format, node);
  }
  Json RunJson(CommandFunction command) {
    return Json::parse(Run(command, Mode::kCleanup, {}, OutputFormat::kJson).out);
  }
  void PutInPlace() { Run(RunSync); }
  // What legacy mode leaves where cleanup mode follows it.
  void LeaveResidue() {
    Run(RunSync, Mode::kLegacy);
    Run(RunSync);
  }

  FakeBackend backend_;
};
using NativeTest = CommandsTest;
using RetireTest = CommandsTest;

TEST_F(CommandsTest, SyncEndsWithOneWhenTheKernelRefusesAndAFailedReadPrintsNoReport) {
  for (int i = 0; i < 3; ++i) backend_.FailNextApply(absl::NotFoundError("ip nat X: no module"));
  const Outcome outcome = Run(RunSync, Mode::kLegacy);
  EXPECT_EQ(outcome.code, kExitFailed);
  EXPECT_THAT(outcome.err, HasSubstr("Error: ip nat X: no module"));
  EXPECT_THAT(outcome.out, HasSubstr("ip: FAILED"));
  backend_.FailNextRead(absl::PermissionDeniedError("CAP_NET_ADMIN is missing"));
  const Outcome plan = Run(RunPlan);
  EXPECT_EQ(plan.out, "");
  EXPECT_EQ(plan.err, "Error: CAP_NET_ADMIN is missing\n");
}

TEST_F(CommandsTest, APlanBeginsWithItsChangesAndListsTheRestOnRequest) {
  PutInPlace();
  backend_.RemoveChain(Mangle("KUBE-IPTABLES-HINT", netlink::Family::kIPv6));
  backend_.AddChain(Nat("KUBE-MARK-DROP"));
  Subject subject = SubjectOf(Mode::kCleanup);
  const absl::StatusOr<Plan> plan = Reconciler(&backend_, SteadyClock()).Check(subject.input);
  ASSERT_TRUE(plan.ok());
  constexpr char kChange[] = ", generation 4\n\nip6 mangle\n  + :KUBE-IPTABLES-HINT";
  constexpr char kCount[] = "\n\n1 to add, 0 to remove, 5 in place, 1 stale, 0 findings";
  EXPECT_THAT(PlanText(subject, *plan),
              AllOf(HasSubstr(kChange), Not(HasSubstr("  = ")),
                    EndsWith(std::string(kCount) + " (--all lists what is unchanged)\n")));
  subject.show_all = true;
  EXPECT_THAT(PlanText(subject, *plan),
              AllOf(HasSubstr(kChange), HasSubstr("  = :KUBE-MARK-DROP"),
                    HasSubstr("\n\nunchanged\n\nip mangle\n  = :KUBE-IPTABLES-HINT"),
                    EndsWith(std::string(kCount) + "\n")));
}

TEST_F(CommandsTest, FindingsSayWhatToDo) {
  PutInPlace();
  backend_.AppendRule(Filter("KUBE-FIREWALL"), BareDrop());
  EXPECT_THAT(
      Run(RunStatus).out,
      HasSubstr(
          "! ForeignDropsEverything (critical) ip filter KUBE-FIREWALL: \"-A KUBE-FIREWALL -j "
          "DROP\" drops every packet and is not kubelet's: delete it if it is not intended\n"));
  // Quotes inside the quotes are escaped.
  backend_.AppendRule(Filter("KUBE-FIREWALL"), BareDrop("not ours"));
  EXPECT_THAT(Run(RunPlan).out,
              HasSubstr(R"("-A KUBE-FIREWALL -m comment --comment \"not ours\" -j DROP" drops)"));
}

TEST_F(CommandsTest, TheSyncReportInJsonNamesTheFamilyThatFailed) {
  // Both families together, each alone, and each table.
  for (int i = 0; i < 5; ++i) backend_.FailNextApply(absl::NotFoundError("no module"));
  const Json report = RunJson(RunSync);
  ASSERT_EQ(report["families"].size(), 2U);
  EXPECT_EQ(report["families"][0]["family"], "ip");
  EXPECT_EQ(report["families"][0]["ok"], false);
  EXPECT_EQ(report["families"][0]["error"], "no module");
  EXPECT_TRUE(report["applied"].empty());
}

NodeQuestions WithoutXt(int* asked = nullptr) {
  return {.support = std::make_shared<SupportSource>([asked]() -> XtCompatReading {
            if (asked != nullptr) ++*asked;
            return {.compat = XtCompat::kAbsent, .reason = "nft_compat is missing"};
          })};
}

bool HasNativeTable(FakeBackend& backend) {
  const auto snapshot = backend.Read({}, &NativeMartians());
  return snapshot.ok() && snapshot->native && !snapshot->native->altered;
}

const netlink::ChainId kHint = {netlink::Family::kIPv4, netlink::Table::kMangle,
                                "KUBE-IPTABLES-HINT"};

TEST_F(NativeTest, SyncMakesTheNativeTableAndNothingElse) {
  EXPECT_EQ(Run(RunPlan, Mode::kCleanup, WithoutXt()).code, kExitDifferences);
  EXPECT_FALSE(HasNativeTable(backend_));
  const Outcome sync = Run(RunSync, Mode::kCleanup, WithoutXt());
  EXPECT_EQ(sync.code, kExitOk) << sync.err;
  EXPECT_THAT(sync.out, HasSubstr("+ table ip kube-iptables-agent"));
  EXPECT_THAT(sync.out, HasSubstr("NativeProtection (info)"));
  EXPECT_TRUE(HasNativeTable(backend_));
  EXPECT_TRUE(backend_.state().chains.empty());
  const Outcome status = Run(RunStatus, Mode::kCleanup, WithoutXt());
  EXPECT_EQ(status.code, kExitOk);
  EXPECT_THAT(status.out, HasSubstr("martian packets: dropped by a rule"));
}

TEST_F(NativeTest, TheKernelIsNotAskedWhereNoRuleIsMissing) {
  PutInPlace();
  int asked = 0;
  for (const CommandFunction command : {RunPlan, RunStatus, RunSync}) {
    Run(command, Mode::kCleanup, WithoutXt(&asked));
  }
  EXPECT_EQ(asked, 0);
}

NodeQuestions Retiring(CniConfigs cni = {}) {
  return {.retire = RetirementSources{.cni = [cni] { return cni; },
                                      .route_localnet = [] { return agent::RouteLocalnet(); },
                                      .other_mode = [](DependentsCollector&) {}}};
}

ExitOrError RetireNow(const CommandInput& input) {
  CommandInput confirmed = input;
  confirmed.yes = true;
  return RunRetire(confirmed);
}

TEST_F(RetireTest, ReportsAFamilyThatIsNotInPlace) {
  Run(RunSync, Mode::kLegacy);
  backend_.RemoveChain(kHint);
  const Outcome outcome = Run(RetireNow, Mode::kCleanup, Retiring());
  EXPECT_EQ(outcome.code, kExitDifferences);
  EXPECT_THAT(outcome.out, HasSubstr("ip: the desired rules are not all in place"));
}

TEST_F(RetireTest, PlanShowsItAmongTheChangesAndWhyTheRestStays) {
  LeaveResidue();
  const Outcome plan = Invoke(
      RunPlan, Mode::kCleanup, backend_, OutputFormat::kText,
      Retiring({.references = {{"/etc/cni/net.d/a.conflist", "portmap", "KUBE-MARK-MASQ"}}}));
  EXPECT_EQ(plan.code, kExitDifferences);
  EXPECT_THAT(plan.out, HasSubstr("- -X KUBE-MARK-DROP"));
  EXPECT_THAT(plan.out,
              HasSubstr("= :KUBE-MARK-MASQ - [0:0]  # stale, kept: named by the CNI configuration "
                        "/etc/cni/net.d/a.conflist (plugin portmap)"));
}

TEST_F(RetireTest, WhatKubeProxyUsesAsItsOwnIsListedAsSuchAndNotAsStale) {
  LeaveResidue();
  for (const netlink::Family family : netlink::kFamilies) {
    backend_.AddChain(Nat("KUBE-SERVICES", family));
    backend_.AppendRule(Nat("OUTPUT", family), JumpTo("KUBE-SERVICES"));
  }
  const std::string plan = Run(RunPlan).out;
  EXPECT_THAT(plan, HasSubstr(" stale, 14 kube-proxy's, 0 findings\n"));
  EXPECT_THAT(plan,
              HasSubstr("= :KUBE-MARK-MASQ - [0:0]  # kube-proxy's: it uses this chain too; "));
  const Json json = RunJson(RunPlan);
  EXPECT_EQ(json["ofKubeProxy"].size(), 14U);
  EXPECT_THAT(json["stale"].dump(), Not(HasSubstr("KUBE-MARK-MASQ")));
  const std::string retired = Run(RunRetire, Mode::kCleanup, Retiring()).out;
  EXPECT_THAT(retired, HasSubstr("\nkube-proxy's, and not stale\n  = ip nat KUBE-MARK-MASQ: "
                                 ":KUBE-MARK-MASQ - [0:0]  # kube-proxy uses it: "));
  EXPECT_THAT(retired, HasSubstr(" kept, 4 kube-proxy's\n"));
}

}  // namespace
}  // namespace kipt::agent
