// SPDX-License-Identifier: Apache-2.0
//
// One config, two kinds of iptables: the same answer, and each leaves the other's kernel interface
// alone. The tables and base chains that iptables owns stay iptables' own.
#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "tests/interop/agent_fixture.h"
#include "tests/support/lock_holder.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

using Json = nlohmann::json;

// The text without what must differ: the name of the iptables and the generation, both in the first
// line, where they must be.
std::string WithoutHeaderWords(const std::string& text, IptablesMode mode) {
  const std::string name = absl::StrCat(", iptables ", NameOf(mode), ",");
  const size_t end = text.find('\n');
  std::string header = text.substr(0, end);
  EXPECT_THAT(header, HasSubstr(name));
  header = absl::StrReplaceAll(header, {{name, ","}});
  const size_t generation = header.find(", generation ");
  EXPECT_NE(generation, std::string::npos) << header;
  return header.substr(0, generation) + text.substr(end);
}

// The same of JSON; and the other mode's name, beside which nothing may stand.
Json WithoutHeaderFields(const std::string& text, IptablesMode mode) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(json.value("iptablesMode", ""), NameOf(mode)) << text;
  EXPECT_EQ(json.erase("iptablesMode"), 1U);
  EXPECT_EQ(json.erase("generation"), 1U);
  if (json.contains("otherMode")) {
    Json& other = json["otherMode"];
    EXPECT_EQ(other.erase("iptablesMode"), 1U);
    EXPECT_THAT(other["chains"], IsEmpty());
  }
  return json;
}

class IptablesModesTest : public AgentTest, public ::testing::WithParamInterface<bool> {
 protected:
  struct Status {
    std::string text;
    Json json;
    int exit_code = 0;
  };

  static AgentSettings Settings(IptablesMode mode) {
    return {.ownership_cleanup = GetParam(), .iptables = mode};
  }

  static Status StatusOf(IptablesMode mode) {
    const ProgramResult text = Agent("status", Settings(mode));
    std::vector<std::string> arguments = Settings(mode).Flags();
    arguments.insert(arguments.begin(), {"status", "--output=json"});
    const ProgramResult json = Agent(arguments);
    EXPECT_EQ(text.exit_code, json.exit_code);
    return {.text = WithoutHeaderWords(text.out, mode),
            .json = WithoutHeaderFields(json.out, mode),
            .exit_code = text.exit_code};
  }

  // In a fresh namespace each.
  template <typename Prepare>
  static void ExpectTheSameStatus(int exit_code, Prepare prepare) {
    std::vector<Status> statuses;
    for (const IptablesMode mode : kBothModes) {
      const Netns fresh = NewNetns();
      const InNetns in(fresh);
      prepare(mode);
      statuses.push_back(StatusOf(mode));
    }
    EXPECT_EQ(statuses[0].text, statuses[1].text);
    EXPECT_EQ(statuses[0].json, statuses[1].json);
    for (const Status& status : statuses) EXPECT_EQ(status.exit_code, exit_code) << status.text;
  }

  // plan, status and detect, as text and as JSON.
  static void LookAtEverything(const std::vector<std::string>& flags) {
    for (const char* const command : {"plan", "status", "detect"}) {
      for (const char* const output : {"text", "json"}) {
        std::vector<std::string> arguments = flags;
        arguments.insert(arguments.begin(), {command, absl::StrCat("--output=", output)});
        EXPECT_NE(Agent(arguments).exit_code, kExitFailed) << command;
      }
    }
  }
};

TEST_P(IptablesModesTest, StatusIsTheSameAfterASync) {
  ExpectTheSameStatus(kExitOk, [](IptablesMode mode) { Sync(Settings(mode)); });
}

TEST_P(IptablesModesTest, StatusIsTheSameOnAFreshNode) {
  ExpectTheSameStatus(kExitDifferences, [](IptablesMode) {});
}

TEST_P(IptablesModesTest, StatusIsTheSameWhereTheOtherGateLeftItsRules) {
  ExpectTheSameStatus(GetParam() ? kExitOk : kExitDifferences, [](IptablesMode mode) {
    Sync({.ownership_cleanup = !GetParam(), .iptables = mode});
  });
}

TEST_P(IptablesModesTest, StatusIsTheSameAmongTheRulesOfAnOldKubelet) {
  ExpectTheSameStatus(GetParam() ? kExitOk : kExitDifferences, [](IptablesMode mode) {
    for (const IpFamily family : kBothFamilies) {
      Kubelet(KubeletForm::k1_17, {.family = family, .mode = mode});
    }
    Sync({.ownership_cleanup = true, .iptables = mode});
  });
}

TEST_P(IptablesModesTest, WhatWasSyncedIsFoundWithoutNamingTheMode) {
  for (const IptablesMode mode : kBothModes) {
    const Netns fresh = NewNetns();
    const InNetns in(fresh);
    Sync(Settings(mode));
    const ProgramResult named = Agent("status", Settings(mode));
    EXPECT_EQ(WithoutHeaderWords(Agent("status", {.ownership_cleanup = GetParam()}).out, mode),
              WithoutHeaderWords(named.out, mode));
  }
}

TEST_P(IptablesModesTest, LegacyMakesNothingOfNftAndOnlyTheTablesItNeeds) {
  for (int i = 0; i < 2; ++i) {
    Sync(Settings(IptablesMode::kLegacy));
    EXPECT_EQ(Output({"/usr/sbin/nft", "list", "ruleset"}), "");
    EXPECT_EQ(IptablesLegacyTables(IpFamily::kIpv4),
              GetParam() ? "filter mangle" : "filter mangle nat");
    EXPECT_EQ(IptablesLegacyTables(IpFamily::kIpv6), GetParam() ? "mangle" : "filter mangle nat");
  }
}

TEST_P(IptablesModesTest, NftMakesNoLegacyTable) {
  Sync(Settings(IptablesMode::kNft));
  for (const IpFamily family : kBothFamilies) EXPECT_EQ(IptablesLegacyTables(family), "");
}

TEST_P(IptablesModesTest, OneFamilyLeavesTheOtherFamilysTablesAlone) {
  std::vector<std::string> arguments = Settings(IptablesMode::kLegacy).Flags();
  arguments.insert(arguments.begin(), {"sync", "--ip-families=ipv6"});
  const ProgramResult result = Agent(arguments);
  EXPECT_EQ(result.exit_code, kExitOk) << result;
  EXPECT_EQ(IptablesLegacyTables(IpFamily::kIpv4), "");
  EXPECT_THAT(IptablesLegacyTables(IpFamily::kIpv6), HasSubstr("mangle"));
}

TEST_P(IptablesModesTest, LookingMakesNoTableAndLoadsNoModule) {
  const std::vector<std::string> flags = Settings(IptablesMode::kLegacy).Flags();
  const std::string fresh = TablesAndModules();
  LookAtEverything(flags);
  EXPECT_EQ(TablesAndModules(), fresh);
  for (const IpFamily family : kBothFamilies) EXPECT_EQ(IptablesLegacyTables(family), "");
  // Nor beside one table that is there.
  const ProgramResult made =
      Iptables{.family = IpFamily::kIpv4, .mode = IptablesMode::kLegacy}.Run({"-N", "X"});
  EXPECT_EQ(made.exit_code, 0) << made;
  LookAtEverything(flags);
  EXPECT_EQ(IptablesLegacyTables(IpFamily::kIpv4), "filter");
  EXPECT_EQ(IptablesLegacyTables(IpFamily::kIpv6), "");
}

// Whoever writes legacy tables holds the lock.
TEST_P(IptablesModesTest, ASecondLegacySyncWritesNothing) {
  const AgentSettings settings = Settings(IptablesMode::kLegacy);
  Sync(settings);
  const LockHolder holder("/run/xtables.lock", absl::InfiniteDuration());
  const ProgramResult again = Agent("sync", settings);
  EXPECT_EQ(again.exit_code, kExitOk) << again;
  EXPECT_THAT(again.out, HasSubstr("nothing to change"));
}

TEST_P(IptablesModesTest, LegacySyncsAtTheSameTimeDoubleNothing) {
  const AgentSettings settings = Settings(IptablesMode::kLegacy);
  Sync(settings);
  std::vector<SavedRules> whole;
  for (const IpFamily family : kBothFamilies) {
    whole.push_back(SavedRules::Of({.family = family, .mode = IptablesMode::kLegacy}));
  }
  for (int round = 0; round < 10; ++round) {
    for (const IpFamily family : kBothFamilies) {
      const Iptables iptables{.family = family, .mode = IptablesMode::kLegacy};
      EXPECT_EQ(iptables.Run({"-t", "mangle", "-X"}).exit_code, 0);
      if (family == IpFamily::kIpv6 && GetParam()) continue;
      EXPECT_EQ(iptables.Run({"-F"}).exit_code, 0);
      EXPECT_EQ(iptables.Run({"-X"}).exit_code, 0);
    }
    std::vector<std::thread> agents;
    std::atomic<int> failed = 0;
    for (int i = 0; i < 3; ++i) {
      agents.emplace_back([&] { failed += Agent("sync", settings).exit_code != kExitOk; });
    }
    for (std::thread& agent : agents) agent.join();
    EXPECT_EQ(failed, 0) << "round " << round;
    for (size_t i = 0; i < whole.size(); ++i) {
      ASSERT_EQ(SavedRules::Of({.family = kBothFamilies[i], .mode = IptablesMode::kLegacy}),
                whole[i])
          << "round " << round;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gate, IptablesModesTest, ::testing::Bool(), [](const auto& row) {
  return std::string(row.param ? "GateOn" : "GateOff");
});

// ---- the tables and base chains that iptables owns ----

class EitherIptablesTest : public AgentTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static void SyncWith(bool ownership_cleanup) {
    Sync({.ownership_cleanup = ownership_cleanup, .iptables = GetParam()});
  }
  static Iptables Of(IpFamily family) { return {.family = family, .mode = GetParam()}; }
};

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

class UnhookedBaseChainTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    if (HasFatalFailure()) return;
    MustRun({"nft", "-f", "-"},
            "add table ip filter\nadd chain ip filter INPUT\nadd rule ip filter INPUT counter\n");
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

}  // namespace
}  // namespace kipt::testing
