// SPDX-License-Identifier: Apache-2.0
//
// The tables and base chains that iptables owns stay iptables' own.
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/interop/agent_fixture.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

constexpr AgentSettings Legacy() { return {.ownership_cleanup = false}; }

class BaseChainTest : public AgentTest {
 protected:
  static void Nft(const std::string& commands) {
    const ProgramResult result = RunProgram({"/usr/sbin/nft", "-f", "-"}, commands);
    EXPECT_EQ(result.exit_code, 0) << result;
  }
};

class EitherIptablesTest : public BaseChainTest,
                           public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static void SyncWith(bool ownership_cleanup) {
    Sync({.ownership_cleanup = ownership_cleanup, .iptables = GetParam()});
  }
  static Iptables Of(IpFamily family) { return {.family = family, .mode = GetParam()}; }
};

TEST_P(EitherIptablesTest, IptablesCanStillListEachTable) {
  for (const bool ownership_cleanup : {true, false}) {
    SyncWith(ownership_cleanup);
    for (const IpFamily family : kBothFamilies) {
      for (const char* table : kIptablesTables) {
        const ProgramResult result = Of(family).Run({"-S", "-t", table});
        EXPECT_EQ(result.exit_code, 0) << table << result;
        EXPECT_EQ(result.err, "");
      }
    }
  }
}

TEST_P(EitherIptablesTest, IptablesCanStillFlushAndDeleteEverythingOfOurs) {
  SyncWith(/*ownership_cleanup=*/false);
  for (const IpFamily family : kBothFamilies) {
    for (const char* table : kIptablesTables) {
      EXPECT_EQ(Of(family).Run({"-t", table, "-F"}).exit_code, 0);
      EXPECT_EQ(Of(family).Run({"-t", table, "-X"}).exit_code, 0);
    }
    const SavedRules saved = SavedRules::Of(Of(family));
    EXPECT_THAT(saved.Comparable(), Not(HasSubstr("KUBE-")));
  }
}

TEST_P(EitherIptablesTest, ADropPolicySurvivesEverySync) {
  for (const IpFamily family : kBothFamilies) {
    for (const char* chain : {"INPUT", "FORWARD", "OUTPUT"}) {
      EXPECT_EQ(Of(family).Run({"-P", chain, "DROP"}).exit_code, 0);
      EXPECT_EQ(Of(family).Run({"-t", "mangle", "-P", chain, "DROP"}).exit_code, 0);
    }
  }
  const auto expect_drop = [](const std::string& when) {
    for (const IpFamily family : kBothFamilies) {
      for (const char* chain : {"INPUT", "FORWARD", "OUTPUT"}) {
        for (const char* table : {"filter", "mangle"}) {
          const ProgramResult result = Of(family).Run({"-t", table, "-S", chain});
          EXPECT_THAT(result.out, HasSubstr(absl::StrCat("-P ", chain, " DROP\n"))) << when;
        }
      }
    }
  };
  SyncWith(/*ownership_cleanup=*/true);
  expect_drop("first sync, cleanup mode");
  SyncWith(/*ownership_cleanup=*/false);
  expect_drop("legacy mode after cleanup mode");
  SyncWith(/*ownership_cleanup=*/false);
  expect_drop("second sync");
  for (const IpFamily family : kBothFamilies) {
    EXPECT_EQ(Of(family).Run({"-F"}).exit_code, 0);
  }
  SyncWith(/*ownership_cleanup=*/false);
  expect_drop("after a flush");
  SyncWith(/*ownership_cleanup=*/true);
  expect_drop("back in cleanup mode");
}

INSTANTIATE_TEST_SUITE_P(Modes, EitherIptablesTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

// nft lets an admin give a nat base chain a DROP policy, which iptables does not.
TEST_F(BaseChainTest, ADropPolicyOfTheNatTableSurvivesToo) {
  Nft("table ip nat {\n"
      "  chain POSTROUTING { type nat hook postrouting priority 100; policy drop; }\n"
      "}\n");
  Sync(Legacy());
  EXPECT_THAT(Output({"/usr/sbin/nft", "list", "chain", "ip", "nat", "POSTROUTING"}),
              HasSubstr("policy drop;"));
}

TEST_F(BaseChainTest, OnlyTheBaseChainsThatHoldOurJumpsAreMade) {
  Sync(Legacy());
  const std::string chains = Output({"/usr/sbin/nft", "list", "chains"});
  for (const char* chain : {"chain FORWARD", "chain PREROUTING"}) {
    EXPECT_THAT(chains, Not(HasSubstr(chain)));
  }
  EXPECT_THAT(chains, HasSubstr("type nat hook postrouting priority srcnat; policy accept;"));
}

class UnhookedBaseChainTest : public BaseChainTest {
 protected:
  void SetUp() override {
    BaseChainTest::SetUp();
    if (HasFatalFailure()) return;
    Nft("add table ip filter\nadd chain ip filter INPUT\nadd rule ip filter INPUT counter\n");
    before_ = Table();
  }
  static std::string Table() {
    return Output({"/usr/sbin/nft", "-a", "list", "table", "ip", "filter"});
  }
  std::string before_;
};

TEST_F(UnhookedBaseChainTest, IsReportedAndNeverRecreated) {
  for (const bool ownership_cleanup : {false, true}) {
    const ProgramResult result = Agent("sync", {.ownership_cleanup = ownership_cleanup});
    EXPECT_EQ(result.exit_code, kExitDifferences) << result;
    EXPECT_THAT(result.out + result.err, HasSubstr("BaseChainNotHooked")) << result;
    EXPECT_EQ(Table(), before_);
  }
}

TEST_F(UnhookedBaseChainTest, TheOtherTablesAreDoneAllTheSame) {
  Agent("sync", Legacy());
  const Iptables ipv6{IpFamily::kIpv6};
  const SavedRules ours = SavedRules::Of(ipv6);
  const std::string mangle = Iptables{IpFamily::kIpv4}.Save("mangle").out;
  const std::string nat = Iptables{IpFamily::kIpv4}.Save("nat").out;
  const Netns fresh = NewNetns();
  const InNetns in(fresh);
  Sync(Legacy());
  EXPECT_EQ(ours, SavedRules::Of(ipv6));
  EXPECT_EQ(SavedRules::Parse(mangle),
            SavedRules::Parse(Iptables{IpFamily::kIpv4}.Save("mangle").out));
  EXPECT_EQ(SavedRules::Parse(nat), SavedRules::Parse(Iptables{IpFamily::kIpv4}.Save("nat").out));
}

TEST_F(UnhookedBaseChainTest, PlanAndStatusSaySoToo) {
  for (const char* command : {"plan", "status"}) {
    const ProgramResult result = Agent(command, Legacy());
    EXPECT_EQ(result.exit_code, kExitDifferences) << result;
    EXPECT_THAT(result.out + result.err, HasSubstr("BaseChainNotHooked")) << result;
  }
  EXPECT_EQ(Table(), before_);
}

}  // namespace
}  // namespace kipt::testing
