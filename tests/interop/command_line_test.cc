// SPDX-License-Identifier: Apache-2.0
//
// What each command prints, how it ends, and where it works.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/interop/agent_fixture.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

using Json = nlohmann::json;

class CommandLineTest : public AgentTest {
 protected:
  static Json AgentJson(std::vector<std::string> arguments) {
    arguments.push_back("--output=json");
    const ProgramResult result = Agent(std::move(arguments));
    Json json = Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(json.is_object()) << result;
    return json.is_object() ? json : Json::object();
  }
  static constexpr char kGateOff[] = "--feature-gates=IPTablesOwnershipCleanup=false";
};

TEST_F(CommandLineTest, PlanThenSyncThenPlanThenSync) {
  for (const bool ownership_cleanup : {true, false}) {
    const AgentSettings settings = {ownership_cleanup};
    const ProgramResult before = Agent("plan", settings);
    EXPECT_EQ(before.exit_code, kExitDifferences) << before;
    EXPECT_THAT(before.out, HasSubstr("  + ")) << before;
    EXPECT_EQ(Agent("status", settings).exit_code, kExitDifferences);
    Sync(settings);
    ExpectNothingPlanned(settings);
    EXPECT_EQ(Agent("status", settings).exit_code, kExitOk);
    const ProgramResult again = Agent("sync", settings);
    EXPECT_EQ(again.exit_code, kExitOk);
    EXPECT_THAT(again.out, HasSubstr("nothing to change")) << again;
  }
}

// A script that reads an empty plan would take it for nothing to do.
TEST_F(CommandLineTest, AReportThatCannotBeWrittenIsAFailure) {
  const std::vector<std::vector<std::string>> calls = {{"gates"},
                                                       {"gates", "--output=json"},
                                                       {"version"},
                                                       {"completion", "bash"},
                                                       {"--help"},
                                                       {"detect"},
                                                       {"plan", "--output=json"},
                                                       {"sync"},
                                                       {"plan"},
                                                       {"status"},
                                                       {"retire"},
                                                       {"audit", "--output=dot"},
                                                       {"explain", "filter/KUBE-FIREWALL"}};
  for (const std::vector<std::string>& call : calls) {
    std::vector<std::string> argv = {"sh", "-c", "exec \"$0\" \"$@\" >/dev/full", AgentProgram()};
    argv.insert(argv.end(), call.begin(), call.end());
    const ProgramResult result = RunProgram(argv);
    EXPECT_EQ(result.exit_code, kExitFailed) << call.front() << result;
    EXPECT_THAT(result.err, HasSubstr("Error: writing to standard output: "))
        << call.front() << result;
    // A reader that has read enough is no failure.
    argv[0] = "bash";
    argv[2] =
        "set -o pipefail; \"$0\" \"$@\" >/dev/null; a=$?; (sleep 0.1; \"$0\" \"$@\") | true; "
        "[ $? = $a ]";
    const ProgramResult ended = RunProgram(argv);
    EXPECT_EQ(ended.exit_code, kExitOk) << call.front() << ended;
    EXPECT_THAT(ended.err, Not(HasSubstr("Error"))) << call.front();
  }
  // What sync did stays done.
  ExpectNothingPlanned({});
}

TEST_F(CommandLineTest, EachChangeOfAPlanIsGivenWithAReason) {
  const Json plan = AgentJson({"plan", kGateOff});
  ASSERT_GT(plan["changes"].size(), 20U);
  for (const Json& change : plan["changes"]) {
    EXPECT_FALSE(change["reason"].get<std::string>().empty()) << change;
  }
}

TEST_F(CommandLineTest, JsonSaysWhatThePlanAndTheSyncDid) {
  const Json plan = AgentJson({"plan", kGateOff});
  EXPECT_EQ(plan["mode"], "legacy");
  EXPECT_EQ(plan["emulatedVersion"], "1.27");
  EXPECT_EQ(plan["iptablesMode"], "nft");
  const Json sync = AgentJson({"sync", kGateOff});
  EXPECT_EQ(sync["applied"], plan["changes"]);
  EXPECT_EQ(sync["checks"], 1);
  const Json status = AgentJson({"status", kGateOff});
  EXPECT_EQ(status["changesNeeded"], 0);
  EXPECT_TRUE(AgentJson({"sync", kGateOff})["applied"].empty());
}

TEST_F(CommandLineTest, AfterTheGateIsFlippedWhatStaysIsListedAsStale) {
  Sync({.ownership_cleanup = false});
  const Json plan = AgentJson({"plan"});
  EXPECT_EQ(plan["mode"], "cleanup");
  EXPECT_TRUE(plan["changes"].empty());
  std::vector<std::string> stale;
  for (const Json& item : plan["stale"]) {
    stale.push_back(absl::StrCat(item["family"].get<std::string>(), " ",
                                 item["table"].get<std::string>(), " ",
                                 item["chain"].get<std::string>()));
  }
  for (const char* chain : {"nat KUBE-MARK-DROP", "nat KUBE-MARK-MASQ", "nat KUBE-POSTROUTING",
                            "nat KUBE-KUBELET-CANARY", "filter KUBE-FIREWALL"}) {
    EXPECT_THAT(stale, Contains(HasSubstr(chain)));
  }
}

TEST_F(CommandLineTest, NetnsWorksThereAndNotHere) {
  const Netns there = NewNetns();
  const std::string netns = absl::StrCat("--netns=", there.Path());
  EXPECT_EQ(Agent({"plan", netns}).exit_code, kExitDifferences);
  EXPECT_EQ(Agent({"sync", netns}).exit_code, kExitOk);
  EXPECT_EQ(Agent({"plan", netns}).exit_code, kExitOk);
  EXPECT_EQ(Output({"/usr/sbin/nft", "list", "ruleset"}), "");
  const InNetns in(there);
  EXPECT_TRUE(SavedRules::Of({IpFamily::kIpv4}).HasChain("mangle", "KUBE-IPTABLES-HINT"));
}

TEST_F(CommandLineTest, OneFamilyLeavesTheOtherAlone) {
  EXPECT_EQ(Agent({"sync", kGateOff, "--ip-families=ipv4"}).exit_code, kExitOk);
  EXPECT_THAT(Output({"/usr/sbin/nft", "list", "tables"}), Not(HasSubstr("ip6")));
  EXPECT_EQ(Agent({"sync", kGateOff, "--ip-families=ipv6"}).exit_code, kExitOk);
  EXPECT_THAT(Output({"/usr/sbin/nft", "list", "tables"}), HasSubstr("table ip6 nat"));
}

TEST_F(CommandLineTest, MakeIptablesUtilChainsFalseTouchesNothing) {
  EXPECT_EQ(Agent({"sync", kGateOff, "--make-iptables-util-chains=false"}).exit_code, kExitOk);
  EXPECT_EQ(Output({"/usr/sbin/nft", "list", "ruleset"}), "");
}

TEST_F(CommandLineTest, DeprecatedFlagsAreNamedOnlyWhereTheyHaveNoEffect) {
  constexpr char kDeprecated[] =
      "Flag --iptables-masquerade-bit has been deprecated, This flag has no effect and will be "
      "removed in a future version.";
  EXPECT_THAT(Agent({"plan", "--iptables-masquerade-bit=14"}).err, HasSubstr(kDeprecated));
  EXPECT_THAT(Agent({"plan", "--emulated-version=1.29", "--iptables-masquerade-bit=14"}).err,
              HasSubstr(kDeprecated));
  EXPECT_THAT(Agent({"plan", kGateOff, "--iptables-masquerade-bit=14"}).err,
              Not(HasSubstr("deprecated")));
  EXPECT_THAT(Agent({"plan", "--emulated-version=1.24", "--iptables-masquerade-bit=14"}).err,
              Not(HasSubstr("deprecated")));
}

TEST_F(CommandLineTest, TheModeFollowsTheEmulatedVersion) {
  for (const auto& [version, mode] :
       std::vector<std::pair<const char*, const char*>>{{"1.24", "legacy"},
                                                        {"1.25", "legacy"},
                                                        {"1.26", "legacy"},
                                                        {"1.27", "cleanup"},
                                                        {"1.28", "cleanup"},
                                                        {"1.30", "cleanup"},
                                                        {"1.31", "cleanup"}}) {
    EXPECT_EQ(AgentJson({"plan", absl::StrCat("--emulated-version=", version)})["mode"], mode)
        << version;
  }
}

TEST_F(CommandLineTest, GatesAndVersionAndHelpNeedNoPrivilege) {
  for (const char* argument : {"gates", "version", "--help"}) {
    const ProgramResult result = AgentAsNobody({argument});
    EXPECT_EQ(result.exit_code, kExitOk) << result;
    EXPECT_FALSE(result.out.empty());
  }
  EXPECT_THAT(AgentAsNobody({"gates"}).out, HasSubstr("IPTablesOwnershipCleanup"));
  EXPECT_THAT(AgentAsNobody({"--help"}).out,
              AllOf(HasSubstr("IPTablesOwnershipCleanup"), HasSubstr("--emulated-version")));
}

}  // namespace
}  // namespace kipt::testing
