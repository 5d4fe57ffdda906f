// SPDX-License-Identifier: Apache-2.0
#include "agent/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "agent/policy/rule_forms.h"
#include "tests/support/fake_backend.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

using ::kipt::testing::FakeBackend;
using ::kipt::testing::Filter;
using ::kipt::testing::Nat;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

Subject Wanted(Mode mode) {
  return {.emulated_version = {1, 27},
          .iptables_mode = "nft",
          .desired = DesiredRuleset(mode, netlink::kFamilies, {})};
}

struct Outcome {
  ExitCode code = kExitOk;
  std::string out;
  std::string err;
};

using CommandFunction = ExitCode (*)(const Subject&, netlink::Backend&, const Clock&, OutputFormat,
                                     CommandStreams);

Outcome Invoke(CommandFunction command, Mode mode, FakeBackend& backend,
               OutputFormat format = OutputFormat::kText) {
  std::ostringstream out;
  std::ostringstream err;
  const Clock clock{.now = [] { return absl::UnixEpoch(); }, .sleep = [](absl::Duration) {}};
  const ExitCode code = command(Wanted(mode), backend, clock, format, {.out = out, .err = err});
  return {code, out.str(), err.str()};
}

// ---- exit codes, per command and state ----

struct ExitCase {
  std::string name;
  std::function<void(FakeBackend&)> state;
  ExitCode plan;
  ExitCode status;
  ExitCode sync;
};

class ExitCodeTest : public ::testing::TestWithParam<ExitCase> {};

TEST_P(ExitCodeTest, TellsAScriptWhatTheStateIs) {
  const std::pair<CommandFunction, ExitCode> commands[] = {
      {RunPlan, GetParam().plan}, {RunStatus, GetParam().status}, {RunSync, GetParam().sync}};
  for (const auto& [command, code] : commands) {
    FakeBackend backend;
    GetParam().state(backend);
    EXPECT_EQ(Invoke(command, Mode::kCleanup, backend).code, code);
  }
}

void InPlace(FakeBackend& backend) { Invoke(RunSync, Mode::kCleanup, backend); }

INSTANTIATE_TEST_SUITE_P(
    CommandsTest, ExitCodeTest,
    ::testing::Values(
        ExitCase{"NothingStands", [](FakeBackend&) {}, kExitDifferences, kExitDifferences, kExitOk},
        ExitCase{"EverythingStands", InPlace, kExitOk, kExitOk, kExitOk},
        ExitCase{"StaleChainsAreNoFinding",
                 [](FakeBackend& backend) {
                   InPlace(backend);
                   backend.AddChain(Nat("KUBE-MARK-DROP"));
                 },
                 kExitOk, kExitOk, kExitOk},
        ExitCase{"AnAdminsDropAll",
                 [](FakeBackend& backend) {
                   InPlace(backend);
                   backend.AppendRule(Filter("KUBE-FIREWALL"), ::kipt::testing::BareDrop());
                 },
                 kExitDifferences, kExitDifferences, kExitDifferences},
        ExitCase{"DamageThatIsMended",
                 [](FakeBackend& backend) {
                   InPlace(backend);
                   backend.AppendRule(
                       Filter("KUBE-FIREWALL"),
                       ::kipt::testing::BareDrop("block incoming localnet connections"));
                 },
                 kExitDifferences, kExitDifferences, kExitOk},
        ExitCase{"AnUnhookedBaseChain",
                 [](FakeBackend& backend) { backend.AddChain(Filter("INPUT"), false); },
                 kExitDifferences, kExitDifferences, kExitDifferences},
        ExitCase{"TheKernelRefusesToBeRead",
                 [](FakeBackend& backend) {
                   for (int i = 0; i < 3; ++i)
                     backend.FailNextRead(absl::PermissionDeniedError("no"));
                 },
                 kExitFailed, kExitFailed, kExitFailed}),
    [](const auto& row) { return row.param.name; });

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
    const absl::StatusOr<Plan> plan =
        Reconciler(&backend, SystemClock()).Look(Wanted(mode).desired);
    ASSERT_TRUE(plan.ok());
    ASSERT_THAT(PlanLines(plan->diff), Not(IsEmpty()));
    for (const PlanLine& line : PlanLines(plan->diff)) EXPECT_NE(line.reason, "") << line.text;
  }
}

TEST(CommandsTest, APlanGroupsByTableAndCountsItsLines) {
  FakeBackend backend;
  const Outcome outcome = Invoke(RunPlan, Mode::kCleanup, backend);
  EXPECT_THAT(outcome.out, HasSubstr("mode cleanup at emulated version 1.27, iptables nft, "
                                     "families ip ip6, generation 1\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\nip mangle\n  + :KUBE-IPTABLES-HINT - [0:0]  # tells"));
  EXPECT_THAT(outcome.out, HasSubstr("\nip filter\n  + :KUBE-FIREWALL - [0:0]  # holds"));
  EXPECT_THAT(outcome.out, HasSubstr("8 to add, 0 to remove, 0 in place, 0 stale, 0 findings\n"));
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
  backend.RemoveChain(::kipt::testing::Mangle("KUBE-IPTABLES-HINT", netlink::Family::kIPv6));
  EXPECT_THAT(Invoke(RunStatus, Mode::kCleanup, backend).out,
              HasSubstr("ip: in place\nip6: 1 change needed (see plan)\n"));
}

TEST(CommandsTest, FindingsSayWhatToDo) {
  FakeBackend backend;
  InPlace(backend);
  backend.AppendRule(Filter("KUBE-FIREWALL"), ::kipt::testing::BareDrop());
  EXPECT_THAT(Invoke(RunStatus, Mode::kCleanup, backend).out,
              HasSubstr("! ForeignDropsEverything (critical) ip filter KUBE-FIREWALL: \"-A "
                        "KUBE-FIREWALL -j DROP\" drops every packet and is not kubelet's: if "
                        "nobody wants it, delete it\n"));
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
  for (int i = 0; i < 3; ++i) backend.FailNextApply(absl::NotFoundError("no module"));
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
  backend.AppendRule(Filter("KUBE-FIREWALL"), ::kipt::testing::BareDrop("\xff\xfe"));
  const Json plan = Json::parse(Invoke(RunPlan, Mode::kCleanup, backend, OutputFormat::kJson).out);
  EXPECT_EQ(plan["findings"][0]["condition"], "ForeignDropsEverything");
}

}  // namespace
}  // namespace kipt::agent
