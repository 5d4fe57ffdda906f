// SPDX-License-Identifier: Apache-2.0
//
// Two kinds of iptables, each of which leaves the other's kernel interface alone. The tables and
// base chains that iptables owns stay iptables' own.
#include "tests/interop/agent_fixture.h"
#include "tests/support/generation_listener.h"
#include "tests/support/lock_holder.h"

namespace kipt::testing {
namespace {

class IptablesModesTest : public AgentTest, public ::testing::WithParamInterface<bool> {
 protected:
  static AgentSettings Settings(IptablesMode mode) {
    return {.ownership_cleanup = GetParam(), .iptables = mode};
  }

  // As text and as JSON.
  static void ReadEverything(const std::vector<std::string>& flags) {
    for (const char* const command : {"plan", "status", "detect", "audit"}) {
      for (const char* const output : {"text", "json"}) {
        EXPECT_NE(Agent(Words{command, absl::StrCat("--output=", output)} + flags).exit_code,
                  kExitFailed)
            << command;
      }
    }
  }
};

TEST_P(IptablesModesTest, LegacyMakesNothingOfNftAndOnlyTheTablesItNeeds) {
  for (int i = 0; i < 2; ++i) {
    Sync(Settings(IptablesMode::kLegacy));
    EXPECT_EQ(Output({"/usr/sbin/nft", "list", "ruleset"}), "");
    EXPECT_EQ(IptablesLegacyTables(IpFamily::kIpv4),
              GetParam() ? "filter mangle" : "filter mangle nat");
    EXPECT_EQ(IptablesLegacyTables(IpFamily::kIpv6), GetParam() ? "mangle" : "filter mangle nat");
  }
}

TEST_P(IptablesModesTest, ReadingMakesNoTableAndLoadsNoModule) {
  const std::vector<std::string> flags = Settings(IptablesMode::kLegacy).Flags();
  const std::string fresh = TablesAndModules();
  ReadEverything(flags);
  EXPECT_EQ(TablesAndModules(), fresh);
  for (const IpFamily family : kBothFamilies) EXPECT_EQ(IptablesLegacyTables(family), "");
  // Nor where one table exists.
  const ProgramResult made =
      Iptables{.family = IpFamily::kIpv4, .mode = IptablesMode::kLegacy}.Run({"-N", "X"});
  EXPECT_EQ(made.exit_code, 0) << made;
  ReadEverything(flags);
  EXPECT_EQ(IptablesLegacyTables(IpFamily::kIpv4), "filter");
  EXPECT_EQ(IptablesLegacyTables(IpFamily::kIpv6), "");
}

// Every writer of iptables-legacy tables takes the lock.
TEST_P(IptablesModesTest, ASecondLegacySyncWritesNothing) {
  const AgentSettings settings = Settings(IptablesMode::kLegacy);
  Sync(settings);
  const LockHolder holder("/run/xtables.lock", absl::InfiniteDuration());
  const ProgramResult again = Agent("sync", settings);
  EXPECT_EQ(again.exit_code, kExitOk) << again;
  EXPECT_THAT(again.out, HasSubstr("nothing to change"));
}

INSTANTIATE_TEST_SUITE_P(Gate, IptablesModesTest, ::testing::Bool(), [](const auto& row) {
  return std::string(row.param ? "GateOn" : "GateOff");
});

class EitherIptablesTest : public AgentTest, public ::testing::WithParamInterface<IptablesMode> {};

TEST_P(EitherIptablesTest, ADropPolicySurvivesEverySync) {
  const auto each_chain = [](const auto& act) {
    for (const IpFamily family : kBothFamilies) {
      for (const char* table : {"filter", "mangle"}) {
        for (const char* chain : {"INPUT", "FORWARD", "OUTPUT"}) {
          act(Iptables{.family = family, .mode = GetParam()}, table, chain);
        }
      }
    }
  };
  each_chain([](const Iptables& iptables, const char* table, const char* chain) {
    EXPECT_EQ(iptables.Run({"-t", table, "-P", chain, "DROP"}).exit_code, 0);
  });
  // Into cleanup mode, into legacy mode, nothing to do, and back.
  for (const bool ownership_cleanup : {true, false, false, true}) {
    Sync({.ownership_cleanup = ownership_cleanup, .iptables = GetParam()});
    each_chain([](const Iptables& iptables, const char* table, const char* chain) {
      EXPECT_THAT(iptables.Run({"-t", table, "-S", chain}).out,
                  HasSubstr(absl::StrCat("-P ", chain, " DROP\n")));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, EitherIptablesTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

// nft lets an admin give a nat base chain a DROP policy, which iptables does not.
using BaseChainTest = AgentTest;
TEST_F(BaseChainTest, ADropPolicyOfTheNatTableSurvivesToo) {
  MustRun({"/usr/sbin/nft", "-f", "-"},
          "table ip nat {\n"
          "  chain POSTROUTING { type nat hook postrouting priority 100; policy drop; }\n"
          "}\n");
  Sync({.ownership_cleanup = false});
  EXPECT_THAT(Output({"/usr/sbin/nft", "list", "chain", "ip", "nat", "POSTROUTING"}),
              HasSubstr("policy drop;"));
}

using TransactionsTest = AgentTest;

TEST_F(TransactionsTest, ASyncOfBothFamiliesIsOneAndACheckIsNone) {
  auto listener = GenerationListener::Create();
  ASSERT_THAT(listener, IsOk());
  const auto check = [](const AgentSettings& settings) {
    for (const char* command : {"plan", "status", "detect", "gates", "version"}) {
      Agent(command, settings);
    }
  };
  for (const bool ownership_cleanup : {true, false}) {
    const AgentSettings settings = {ownership_cleanup};
    check(settings);
    EXPECT_THAT(listener->Drain(), IsOkAndHolds(netlink::RulesetChanges()));
    Sync(settings);
    const auto changes = listener->Drain();
    ASSERT_THAT(changes, IsOk());
    EXPECT_EQ(changes->count, 1U);
    ASSERT_THAT(changes->writers, SizeIs(1));
    EXPECT_EQ(changes->writers[0].command, "kube-iptables-a") << "15 characters";
    Sync(settings);
    check(settings);
    EXPECT_THAT(listener->Drain(), IsOkAndHolds(netlink::RulesetChanges()));
  }
}

}  // namespace
}  // namespace kipt::testing
