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

using ::testing::Eq;
using Json = nlohmann::json;

Subject Wanted(Mode mode) {
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
  Subject subject = Wanted(mode);
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

// ---- colours ----

struct ColoredRow {
  std::string name;
  std::string text;
  std::string colored;
  ColoredText kind = ColoredText::kPlanOrStatus;
};
const ColoredRow kColoredRows[] = {
    {"an added line is green", "\nip nat\n  + -A X  # why\n",
     "\nip nat\n\x1b[32m  + -A X  # why\x1b[0m\n"},
    {"a removed line is red", "  - :X  # why\n  = :Y  # why\n",
     "\x1b[31m  - :X  # why\x1b[0m\n  = :Y  # why\n"},
    {"a finding has the colour of its severity, up to it",
     "  ! A (critical) ip nat X: (warning)\n  ! B (warning) ip nat X: y\n  ! C (info) z\n",
     "\x1b[31m  ! A (critical)\x1b[0m ip nat X: (warning)\n"
     "\x1b[33m  ! B (warning)\x1b[0m ip nat X: y\n  ! C (info) z\n"},
    {"a family in place is green, any other yellow",
     "ip: in place\nip6: 1 finding\nip: 2 changes needed (see plan)\n",
     "\x1b[32mip: in place\x1b[0m\n\x1b[33mip6: 1 finding\x1b[0m\n"
     "\x1b[33mip: 2 changes needed (see plan)\x1b[0m\n"},
    {"exposed nodes are red", "martian packets: EXPOSED: no rule\nmartian packets: no rule, and\n",
     "\x1b[31mmartian packets: EXPOSED: no rule\x1b[0m\nmartian packets: no rule, and\n"},
    {"an audit's severities have colours, and nothing else",
     "error   A  nft\n    warning \nwarning B\ninfo    C\nallowed D\n\n1 error, 1 warning\n",
     "\x1b[31merror\x1b[0m   A  nft\n    warning \n\x1b[33mwarning\x1b[0m B\ninfo    C\n"
     "allowed D\n\n1 error, 1 warning\n",
     ColoredText::kAudit},
    {"an explanation's headings are bold, and its points plain",
     "nat/X  (nft ip)\n  what\n\nin short\n  - a point\n",
     "\x1b[1mnat/X  (nft ip)\x1b[0m\n  what\n\n\x1b[1min short\x1b[0m\n  - a point\n",
     ColoredText::kExplain},
    {"no text", "", "", ColoredText::kExplain},
};

TEST(ColoredTest, ColoursWhatTheTableNames) {
  for (const ColoredRow& row : kColoredRows) {
    EXPECT_EQ(Colored(true, row.kind, row.text), row.colored) << row.name;
    EXPECT_EQ(Colored(false, row.kind, row.text), row.text) << row.name;
  }
}

// ---- exit codes, per command and state ----

struct ExitCase {
  std::string name;
  std::function<void(FakeBackend&)> state;
  ExitCode sync = kExitOk;
  ExitCode plan = kExitDifferences;
  ExitCode status = kExitDifferences;
  ExitCode check = kExitDifferences;
};

void InPlace(FakeBackend& backend) { Invoke(RunSync, Mode::kCleanup, backend); }

TEST(ExitCodeTest, TellsAScriptWhatTheStateIs) {
  const ExitCase rows[] = {
      {"NothingStands", [](FakeBackend&) {}},
      {"EverythingStands", InPlace, kExitOk, kExitOk, kExitOk, kExitOk},
      {"StaleChainsAreNoFinding",
       [](FakeBackend& backend) {
         InPlace(backend);
         backend.AddChain(Nat("KUBE-MARK-DROP"));
       },
       kExitOk, kExitOk, kExitOk, kExitOk},
      {"AnAdminsDropAll",
       [](FakeBackend& backend) {
         InPlace(backend);
         backend.AppendRule(Filter("KUBE-FIREWALL"), BareDrop());
       },
       kExitDifferences},
      {"DamageThatIsMended",
       [](FakeBackend& backend) {
         InPlace(backend);
         backend.AppendRule(Filter("KUBE-FIREWALL"),
                            BareDrop("block incoming localnet connections"));
       }},
      {"AnAcceptAboveOurJump",
       [](FakeBackend& backend) {
         InPlace(backend);
         backend.InsertRule(Filter("INPUT"), ForeignAcceptAll());
       },
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

TEST(CommandsTest, SyncEndsWithOneWhenTheKernelRefuses) {
  FakeBackend backend;
  for (int i = 0; i < 3; ++i) backend.FailNextApply(absl::NotFoundError("ip nat X: no module"));
  const Outcome outcome = Invoke(RunSync, Mode::kLegacy, backend);
  EXPECT_EQ(outcome.code, kExitFailed);
  EXPECT_THAT(outcome.err, HasSubstr("Error: ip nat X: no module"));
  EXPECT_THAT(outcome.out, HasSubstr("ip: FAILED"));
}

TEST(CommandsTest, AFailedLookPrintsNoReport) {
  FakeBackend backend;
  backend.FailNextRead(absl::PermissionDeniedError("CAP_NET_ADMIN is missing"));
  const Outcome outcome = Invoke(RunPlan, Mode::kCleanup, backend);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "Error: CAP_NET_ADMIN is missing\n");
}

// ---- what the reports say ----

TEST(CommandsTest, EveryLineOfAPlanHasAReason) {
  FakeBackend backend;
  Invoke(RunSync, Mode::kLegacy, backend);
  backend.AppendRule(Nat("KUBE-MARK-MASQ"), SetBit(20));
  for (const Mode mode : {Mode::kLegacy, Mode::kCleanup, Mode::kOff}) {
    const absl::StatusOr<Plan> plan = Reconciler(&backend, SteadyClock()).Check(Wanted(mode).input);
    ASSERT_TRUE(plan.ok());
    ASSERT_THAT(plan->diff, Not(Eq(Diff())));
    for (const Change& change : plan->diff.changes) {
      EXPECT_NE(change.reason, "") << netlink::ToString(change.operation);
    }
    for (const ExistingItem& one : plan->diff.in_place) EXPECT_NE(one.reason, "") << one.text;
    for (const ExistingItem& one : plan->diff.stale) EXPECT_NE(one.reason, "") << one.text;
  }
}

TEST(CommandsTest, APlanGroupsByTableAndCountsItsLines) {
  FakeBackend backend;
  const Outcome outcome = Invoke(RunPlan, Mode::kCleanup, backend);
  EXPECT_THAT(outcome.out, HasSubstr("mode cleanup, rules of kubelet 1.27 to 1.37, iptables nft, "
                                     "families ip ip6, generation 1\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\nip mangle\n  + :KUBE-IPTABLES-HINT - [0:0]  # tells"));
  EXPECT_THAT(outcome.out, HasSubstr("\nip filter\n  + :KUBE-FIREWALL - [0:0]  # holds"));
  EXPECT_THAT(outcome.out, HasSubstr("8 to add, 0 to remove, 0 in place, 0 stale, 0 findings\n"));
}

TEST(CommandsTest, APlanBeginsWithItsChangesAndListsTheRestOnRequest) {
  FakeBackend backend;
  InPlace(backend);
  backend.RemoveChain(Mangle("KUBE-IPTABLES-HINT", netlink::Family::kIPv6));
  backend.AddChain(Nat("KUBE-MARK-DROP"));
  Subject subject = Wanted(Mode::kCleanup);
  const absl::StatusOr<Plan> plan = Reconciler(&backend, SteadyClock()).Check(subject.input);
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

TEST(CommandsTest, ASecondSyncSaysThatNothingChanged) {
  FakeBackend backend;
  EXPECT_THAT(Invoke(RunSync, Mode::kCleanup, backend).out, HasSubstr("ip: 7 changes made\n"));
  const Outcome outcome = Invoke(RunSync, Mode::kCleanup, backend);
  EXPECT_THAT(outcome.out, HasSubstr("ip: nothing to change\nip6: nothing to change\n"));
}

TEST(CommandsTest, StatusSaysPerFamilyWhatIsMissing) {
  FakeBackend backend;
  InPlace(backend);
  backend.RemoveChain(Mangle("KUBE-IPTABLES-HINT", netlink::Family::kIPv6));
  EXPECT_THAT(Invoke(RunStatus, Mode::kCleanup, backend).out,
              HasSubstr("ip: in place\nip6: 1 change needed (see plan)\n"));
}

TEST(CommandsTest, FindingsSayWhatToDo) {
  FakeBackend backend;
  InPlace(backend);
  backend.AppendRule(Filter("KUBE-FIREWALL"), BareDrop());
  EXPECT_THAT(
      Invoke(RunStatus, Mode::kCleanup, backend).out,
      HasSubstr(
          "! ForeignDropsEverything (critical) ip filter KUBE-FIREWALL: \"-A KUBE-FIREWALL -j "
          "DROP\" drops every packet and is not kubelet's: delete it if it is not intended\n"));
  // Quotes inside the quotes are escaped.
  backend.AppendRule(Filter("KUBE-FIREWALL"), BareDrop("not ours"));
  EXPECT_THAT(Invoke(RunPlan, Mode::kCleanup, backend).out,
              HasSubstr(R"("-A KUBE-FIREWALL -m comment --comment \"not ours\" -j DROP" drops)"));
}

TEST(CommandsTest, ThePlanInJsonHoldsWhatTheTextHolds) {
  FakeBackend backend;
  Invoke(RunSync, Mode::kLegacy, backend);
  backend.FlushChain(Filter("KUBE-FIREWALL"));
  const Json plan = Json::parse(Invoke(RunPlan, Mode::kCleanup, backend, OutputFormat::kJson).out);
  EXPECT_EQ(plan["mode"], "cleanup");
  EXPECT_EQ(plan["emulatedVersion"], "1.27");
  EXPECT_EQ(plan["ipFamilies"], Json({"ip", "ip6"}));
  ASSERT_EQ(plan["changes"].size(), 1U);
  EXPECT_EQ(plan["changes"][0]["operation"], "addRule");
  EXPECT_EQ(plan["changes"][0]["chain"], "KUBE-FIREWALL");
  EXPECT_EQ(plan["changes"][0]["table"], "filter");
  EXPECT_EQ(plan["changes"][0]["family"], "ip");
  EXPECT_THAT(plan["changes"][0]["reason"].get<std::string>(), HasSubstr("CVE-2020-8558"));
  EXPECT_FALSE(plan["stale"].empty());
  EXPECT_TRUE(plan["findings"].empty());
}

TEST(CommandsTest, TheSyncReportInJsonNamesTheFamilyThatFailed) {
  FakeBackend backend;
  // Both families together, each alone, and each table.
  for (int i = 0; i < 5; ++i) backend.FailNextApply(absl::NotFoundError("no module"));
  const Json report =
      Json::parse(Invoke(RunSync, Mode::kCleanup, backend, OutputFormat::kJson).out);
  ASSERT_EQ(report["families"].size(), 2U);
  EXPECT_EQ(report["families"][0]["family"], "ip");
  EXPECT_EQ(report["families"][0]["ok"], false);
  EXPECT_EQ(report["families"][0]["error"], "no module");
  EXPECT_TRUE(report["applied"].empty());
}

TEST(CommandsTest, StatusInJsonCountsTheChangesNeeded) {
  FakeBackend backend;
  const Json status =
      Json::parse(Invoke(RunStatus, Mode::kLegacy, backend, OutputFormat::kJson).out);
  EXPECT_EQ(status["iptablesMasqueradeBit"], 14);
  EXPECT_GT(status["changesNeeded"].get<int>(), 0);
}

TEST(CommandsTest, BytesThatAreNoTextDoNotBreakJson) {
  FakeBackend backend;
  InPlace(backend);
  backend.AppendRule(Filter("KUBE-FIREWALL"), BareDrop("\xff\xfe"));
  const Json plan = Json::parse(Invoke(RunPlan, Mode::kCleanup, backend, OutputFormat::kJson).out);
  EXPECT_EQ(plan["findings"][0]["condition"], "ForeignDropsEverything");
}

// ---- nodes on which iptables can hold no rules ----

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

TEST(NativeTest, SyncMakesTheNativeTableAndNothingElse) {
  FakeBackend backend;
  EXPECT_EQ(Invoke(RunPlan, Mode::kCleanup, backend, OutputFormat::kText, WithoutXt()).code,
            kExitDifferences);
  EXPECT_FALSE(HasNativeTable(backend));
  const Outcome sync = Invoke(RunSync, Mode::kCleanup, backend, OutputFormat::kText, WithoutXt());
  EXPECT_EQ(sync.code, kExitOk) << sync.err;
  EXPECT_THAT(sync.out, HasSubstr("+ table ip kube-iptables-agent"));
  EXPECT_THAT(sync.out, HasSubstr("NativeProtection (info)"));
  EXPECT_TRUE(HasNativeTable(backend));
  EXPECT_TRUE(backend.state().chains.empty());
  const Outcome status =
      Invoke(RunStatus, Mode::kCleanup, backend, OutputFormat::kText, WithoutXt());
  EXPECT_EQ(status.code, kExitOk);
  EXPECT_THAT(status.out, HasSubstr("martian packets: dropped by a rule"));
}

TEST(NativeTest, TheHintIsMadeWhereItIsAskedFor) {
  FakeBackend backend;
  Invoke(RunSync, Mode::kCleanup, backend, OutputFormat::kText, WithoutXt(), HintPolicy::kAlways);
  EXPECT_NE(backend.state().Find(kHint), nullptr);
}

TEST(NativeTest, LegacyModeIsRefusedAndTheNodeProtectedAllTheSame) {
  FakeBackend backend;
  const Outcome sync = Invoke(RunSync, Mode::kLegacy, backend, OutputFormat::kText, WithoutXt());
  EXPECT_EQ(sync.code, kExitDifferences);
  EXPECT_THAT(sync.out, HasSubstr("LegacyModeImpossible (critical)"));
  EXPECT_TRUE(HasNativeTable(backend));
  EXPECT_TRUE(backend.state().chains.empty());
}

TEST(NativeTest, TheNativeTableGoesInTheTransactionThatPutsTheRuleInPlace) {
  FakeBackend backend;
  Invoke(RunSync, Mode::kCleanup, backend, OutputFormat::kText, WithoutXt());
  const size_t before = backend.applied().size();
  EXPECT_EQ(Invoke(RunSync, Mode::kCleanup, backend).code, kExitOk);
  EXPECT_FALSE(HasNativeTable(backend));
  ASSERT_EQ(backend.applied().size(), before + 1);
  EXPECT_GT(backend.applied().back().operations.size(), 1);
  EXPECT_TRUE(std::holds_alternative<netlink::DeleteNativeTable>(
      backend.applied().back().operations.back()));
}

TEST(NativeTest, TheKernelIsNotAskedWhereNoRuleIsMissing) {
  FakeBackend backend;
  InPlace(backend);
  int asked = 0;
  for (const CommandFunction command : {RunPlan, RunStatus, RunSync}) {
    Invoke(command, Mode::kCleanup, backend, OutputFormat::kText, WithoutXt(&asked));
  }
  EXPECT_EQ(asked, 0);
}

TEST(NativeTest, ARefusedMatchIsAnAnswerWhereNobodyKnew) {
  FakeBackend backend;
  backend.LoseXt();
  const NodeQuestions node = {.support = std::make_shared<SupportSource>()};
  EXPECT_EQ(Invoke(RunSync, Mode::kCleanup, backend, OutputFormat::kText, node).code, kExitOk);
  EXPECT_TRUE(HasNativeTable(backend));
}

// Whatever files say: /proc/kallsyms, say, may be hidden.
TEST(NativeTest, ARuleThatStandsProvesThatOthersCanBeMade) {
  FakeBackend backend;
  InPlace(backend);
  backend.FlushChain({netlink::Family::kIPv4, netlink::Table::kFilter, "INPUT"});
  NodeQuestions node = WithoutXt();
  node.retire = RetirementSources{.cni = [] { return CniConfigs(); },
                                  .route_localnet = [] { return agent::RouteLocalnet(); },
                                  .other_mode = [](DependentsCollector&) {}};
  const Outcome plan = Invoke(RunPlan, Mode::kCleanup, backend, OutputFormat::kText, node);
  EXPECT_EQ(plan.code, kExitDifferences);
  EXPECT_THAT(plan.out, HasSubstr("-A INPUT -j KUBE-FIREWALL"));
  EXPECT_THAT(plan.out, Not(HasSubstr("NativeProtection")));
  EXPECT_EQ(Invoke(RunSync, Mode::kCleanup, backend, OutputFormat::kText, node).code, kExitOk);
  EXPECT_FALSE(HasNativeTable(backend));
  EXPECT_NE(backend.state().Find(kHint), nullptr);
  EXPECT_EQ(Invoke(RunPlan, Mode::kCleanup, backend).code, kExitOk);
}

// ---- retirement ----

NodeQuestions Retiring(CniConfigs cni = {}) {
  return {.retire = RetirementSources{.cni = [cni] { return cni; },
                                      .route_localnet = [] { return agent::RouteLocalnet(); },
                                      .other_mode = [](DependentsCollector&) {}}};
}

void LeaveResidue(FakeBackend& backend) {
  Invoke(RunSync, Mode::kLegacy, backend);
  Invoke(RunSync, Mode::kCleanup, backend);
}

TEST(RetireTest, ShowsWhatWouldGoAndChangesNothing) {
  FakeBackend backend;
  LeaveResidue(backend);
  const netlink::Snapshot before = backend.state();
  const Outcome shown = Invoke(RunRetire, Mode::kCleanup, backend, OutputFormat::kText, Retiring());
  EXPECT_EQ(shown.code, kExitDifferences);
  EXPECT_THAT(shown.out, HasSubstr("- -X KUBE-MARK-MASQ"));
  EXPECT_THAT(shown.out, HasSubstr("- -X KUBE-KUBELET-CANARY"));
  EXPECT_EQ(backend.state(), before);
}

ExitOrError RetireNow(const CommandInput& input) {
  CommandInput confirmed = input;
  confirmed.yes = true;
  return RunRetire(confirmed);
}

TEST(RetireTest, DoesItOnceAndThenHasNothingToDo) {
  FakeBackend backend;
  LeaveResidue(backend);
  EXPECT_EQ(Invoke(RetireNow, Mode::kCleanup, backend, OutputFormat::kText, Retiring()).code,
            kExitOk);
  const netlink::Snapshot after = backend.state();
  EXPECT_EQ(after.Find({netlink::Family::kIPv4, netlink::Table::kNat, "KUBE-MARK-MASQ"}), nullptr);
  EXPECT_NE(after.Find(kHint), nullptr);
  const Outcome again = Invoke(RetireNow, Mode::kCleanup, backend, OutputFormat::kText, Retiring());
  EXPECT_EQ(again.code, kExitOk);
  EXPECT_THAT(again.out, HasSubstr("0 to remove, 0 kept"));
  EXPECT_EQ(backend.state(), after);
}

TEST(RetireTest, OfAFamilyThatIsNotInPlaceSaysSo) {
  FakeBackend backend;
  Invoke(RunSync, Mode::kLegacy, backend);
  backend.RemoveChain(kHint);
  const Outcome outcome =
      Invoke(RetireNow, Mode::kCleanup, backend, OutputFormat::kText, Retiring());
  EXPECT_EQ(outcome.code, kExitDifferences);
  EXPECT_THAT(outcome.out, HasSubstr("ip: the desired rules are not all in place"));
}

TEST(RetireTest, SyncPutsInPlaceAndThenRetires) {
  FakeBackend backend;
  Invoke(RunSync, Mode::kLegacy, backend);
  const Outcome sync = Invoke(RunSync, Mode::kCleanup, backend, OutputFormat::kJson, Retiring());
  EXPECT_EQ(sync.code, kExitOk) << sync.err;
  const nlohmann::json json = nlohmann::json::parse(sync.out);
  EXPECT_EQ(json["retired"][0]["applied"], true);
  EXPECT_FALSE(json["retired"][0]["changes"].empty());
  EXPECT_FALSE(json["retired"][0]["kept"].empty()) << "the canaries";
  const Outcome plan = Invoke(RunPlan, Mode::kCleanup, backend, OutputFormat::kJson, Retiring());
  EXPECT_EQ(plan.code, kExitOk);
  EXPECT_TRUE(nlohmann::json::parse(plan.out)["retirement"]["changes"].empty());
}

TEST(RetireTest, PlanShowsItAmongTheChangesAndSaysWhyTheRestStays) {
  FakeBackend backend;
  LeaveResidue(backend);
  const Outcome plan = Invoke(
      RunPlan, Mode::kCleanup, backend, OutputFormat::kText,
      Retiring({.references = {{"/etc/cni/net.d/a.conflist", "portmap", "KUBE-MARK-MASQ"}}}));
  EXPECT_EQ(plan.code, kExitDifferences);
  EXPECT_THAT(plan.out, HasSubstr("- -X KUBE-MARK-DROP"));
  EXPECT_THAT(plan.out,
              HasSubstr("= :KUBE-MARK-MASQ - [0:0]  # stale, kept: named by the CNI configuration "
                        "/etc/cni/net.d/a.conflist (plugin portmap)"));
}

TEST(RetireTest, WhatKubeProxyUsesAsItsOwnIsListedAsSuchAndNotAsStale) {
  FakeBackend backend;
  LeaveResidue(backend);
  for (const netlink::Family family : netlink::kFamilies) {
    backend.AddChain(Nat("KUBE-SERVICES", family));
    backend.AppendRule(Nat("OUTPUT", family), JumpTo("KUBE-SERVICES"));
  }
  const std::string plan = Invoke(RunPlan, Mode::kCleanup, backend).out;
  EXPECT_THAT(plan, HasSubstr(" stale, 14 kube-proxy's, 0 findings\n"));
  EXPECT_THAT(plan,
              HasSubstr("= :KUBE-MARK-MASQ - [0:0]  # kube-proxy's: it uses this chain too; "));
  const Json json = Json::parse(Invoke(RunPlan, Mode::kCleanup, backend, OutputFormat::kJson).out);
  EXPECT_EQ(json["ofKubeProxy"].size(), 14U);
  EXPECT_THAT(json["stale"].dump(), Not(HasSubstr("KUBE-MARK-MASQ")));
  const std::string retired =
      Invoke(RunRetire, Mode::kCleanup, backend, OutputFormat::kText, Retiring()).out;
  EXPECT_THAT(retired, HasSubstr("\nkube-proxy's, and not stale\n  = ip nat KUBE-MARK-MASQ: "
                                 ":KUBE-MARK-MASQ - [0:0]  # kube-proxy uses it: "));
  EXPECT_THAT(retired, HasSubstr(" kept, 4 kube-proxy's\n"));
}

TEST(RetireTest, WhoBeginsToUseAChainMeanwhileKeepsIt) {
  FakeBackend backend;
  LeaveResidue(backend);
  const netlink::ChainId mine = {netlink::Family::kIPv4, netlink::Table::kNat, "MINE"};
  bool done = false;
  NodeQuestions node = Retiring();
  node.retire->other_mode = [&](DependentsCollector&) {
    if (std::exchange(done, true)) return;
    backend.AppendRule(mine, netlink::Rule{.target = netlink::Jump{"KUBE-MARK-MASQ"}});
  };
  const Outcome outcome = Invoke(RetireNow, Mode::kCleanup, backend, OutputFormat::kText, node);
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("jumped to from ip nat MINE"));
  EXPECT_NE(backend.state().Find({netlink::Family::kIPv4, netlink::Table::kNat, "KUBE-MARK-MASQ"}),
            nullptr);
  EXPECT_EQ(backend.state().Find({netlink::Family::kIPv6, netlink::Table::kNat, "KUBE-MARK-MASQ"}),
            nullptr);
}

}  // namespace
}  // namespace kipt::agent
