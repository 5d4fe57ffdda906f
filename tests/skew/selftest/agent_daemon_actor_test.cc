// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/selftest/actor_fixture.h"
#include "tests/support/background_program.h"
#include "tests/support/http_get.h"
#include "tests/support/matchers.h"

namespace kipt::skew {
namespace {

class AgentDaemonActorTest : public ActorTest {
 protected:
  static AgentDaemonSettings As(const KubeletVersion& version) {
    return {.program = AgentProgram(), .version = version, .mode = GetParam()};
  }
  static bool Answers() { return testing::HttpGet(10270, "/livez").status == 200; }
};

TEST_P(AgentDaemonActorTest, HasPutItsRulesInPlaceWhenStartedAndLeavesThemWhenStopped) {
  const std::unique_ptr<NodeAgent> agent = NewAgentDaemon(As(KubeletOf(26)));
  EXPECT_EQ(agent->name(), "kube-iptables-agent as 1.26");
  const Act started = agent->Start();
  EXPECT_TRUE(Went(started));
  EXPECT_THAT(started.done, Contains("ready"));
  const testing::SavedRules before = Saved(V4());
  EXPECT_TRUE(before.HasChain("nat", "KUBE-MARK-DROP"));
  EXPECT_TRUE(Saved(V6()).HasChain("nat", "KUBE-MARK-DROP"));
  EXPECT_TRUE(Went(agent->Stop()));
  EXPECT_FALSE(Answers());
  EXPECT_EQ(Saved(V4()), before);
}

TEST_P(AgentDaemonActorTest, WhatIsOlderThan1_24IsDoneAs1_24) {
  const std::unique_ptr<NodeAgent> agent = NewAgentDaemon(As(KubeletOf(17)));
  EXPECT_EQ(agent->name(), "kube-iptables-agent as 1.24");
  EXPECT_TRUE(Went(agent->Start()));
  EXPECT_TRUE(Saved(V4()).HasChain("nat", "KUBE-MARK-DROP"));
}

TEST_P(AgentDaemonActorTest, TheGateIsGivenWhereTheVersionHasIt) {
  for (const KubeletVersion& version : {KubeletOf(26, true), KubeletOf(29), KubeletOf(34)}) {
    const std::unique_ptr<NodeAgent> agent = NewAgentDaemon(As(version));
    EXPECT_TRUE(Went(agent->Start())) << ToString(version);
    EXPECT_FALSE(Saved(V4()).HasChain("nat", "KUBE-MARK-DROP")) << ToString(version);
    EXPECT_TRUE(Went(agent->Stop()));
  }
  const std::unique_ptr<NodeAgent> agent = NewAgentDaemon(As(KubeletOf(27, false)));
  EXPECT_TRUE(Went(agent->Start()));
  EXPECT_TRUE(Saved(V4()).HasChain("nat", "KUBE-MARK-DROP"));
}

TEST_P(AgentDaemonActorTest, SettlesWhenWhatOthersTookAwayIsBackAndNotBefore) {
  const std::unique_ptr<NodeAgent> agent = NewAgentDaemon(As(KubeletOf(24)));
  EXPECT_TRUE(Went(agent->Start()));
  const testing::SavedRules before = Saved(V4());
  const testing::SavedRules before_v6 = Saved(V6());
  for (const char* table : {"nat", "filter", "mangle"}) {
    EXPECT_TRUE(Went(FlushTable(Choice(), table)));
    EXPECT_TRUE(Went(agent->Settle()));
    EXPECT_EQ(Saved(V4()), before) << table;
    EXPECT_EQ(Saved(V6()), before_v6) << table;
  }
  EXPECT_TRUE(Went(FlushEverything(Choice())));
  // What it did stands before its log says so.
  EXPECT_TRUE(testing::WaitUntil([&] {
    const Act settled = agent->Settle();
    EXPECT_TRUE(Went(settled));
    return std::any_of(settled.done.begin(), settled.done.end(),
                       [](const std::string& done) { return absl::StartsWith(done, "Repaired "); });
  }));
  EXPECT_EQ(Saved(V4()), before);
  EXPECT_EQ(Saved(V6()), before_v6);
}

TEST_P(AgentDaemonActorTest, DoesNotSettleWhileItCannotPutThingsRight) {
  const std::unique_ptr<NodeAgent> agent = NewAgentDaemon(As(KubeletOf(24)));
  EXPECT_TRUE(Went(agent->Start()));
  // As one that hangs.
  const pid_t pid = [] {
    const testing::ProgramResult found = testing::RunProgram(
        {"/usr/bin/pgrep", "--parent", std::to_string(getpid()), "kube-iptables"});
    return static_cast<pid_t>(std::atoi(found.out.c_str()));
  }();
  ASSERT_GT(pid, 0);
  kill(pid, SIGSTOP);
  EXPECT_TRUE(Went(FlushTable(Choice(), "nat")));
  const Act settled = agent->Settle();
  EXPECT_FALSE(settled.ok);
  EXPECT_THAT(settled.error, AllOf(HasSubstr("not settled"), HasSubstr("KUBE-MARK-DROP")));
  kill(pid, SIGCONT);
  EXPECT_TRUE(Went(agent->Settle()));
  EXPECT_TRUE(Saved(V4()).HasChain("nat", "KUBE-MARK-DROP"));
}

TEST_P(AgentDaemonActorTest, RetiresWhatIsStaleWhenAMinuteIsOver) {
  const std::unique_ptr<NodeAgent> agent = NewAgentDaemon(As(KubeletOf(28)));
  EXPECT_TRUE(Went(agent->Start()));
  EXPECT_TRUE(Went(NewKubelet({.version = KubeletOf(26), .iptables = Choice()})->Start()));
  EXPECT_TRUE(Went(agent->Settle()));
  EXPECT_TRUE(Saved(V4()).HasChain("nat", "KUBE-MARK-DROP"));
  const Act tick = agent->Tick();
  EXPECT_TRUE(Went(tick));
  EXPECT_THAT(tick.done, Contains(StartsWith("Retired ")));
  EXPECT_FALSE(Saved(V4()).HasChain("nat", "KUBE-MARK-DROP"));
  EXPECT_FALSE(Saved(V6()).HasChain("nat", "KUBE-MARK-MASQ"));
}

TEST_P(AgentDaemonActorTest, StartsWithTheGateThatItIsGiven) {
  AgentDaemonSettings settings = As(KubeletOf(24));
  settings.conn_labels = true;
  EXPECT_TRUE(Went(NewAgentDaemon(settings)->Start()));
  EXPECT_TRUE(Saved(V6()).HasChain("filter", "KUBELET-FIREWALL"));
}

TEST_P(AgentDaemonActorTest, KeepsWhatIsStaleWhereItIsToldTo) {
  EXPECT_TRUE(Went(NewKubelet({.version = KubeletOf(26), .iptables = Choice()})->Start()));
  const testing::SavedRules before = Saved(V4());
  AgentDaemonSettings settings = As(KubeletOf(28));
  settings.retire = false;
  const std::unique_ptr<NodeAgent> agent = NewAgentDaemon(settings);
  EXPECT_TRUE(Went(agent->Start()));
  EXPECT_TRUE(Went(agent->Tick()));
  EXPECT_EQ(Saved(V4()), before);
}

TEST_P(AgentDaemonActorTest, SaysWhyItDoesNotStart) {
  AgentDaemonSettings settings = As(KubeletOf(24));
  settings.program = "/bin/false";
  const std::unique_ptr<NodeAgent> agent = NewAgentDaemon(settings);
  const Act started = agent->Start();
  EXPECT_FALSE(started.ok);
  EXPECT_THAT(started.error, HasSubstr("ended with 1"));
  EXPECT_FALSE(agent->Settle().ok);
  EXPECT_FALSE(agent->Tick().ok);
  EXPECT_FALSE(agent->Stop().ok);
}

INSTANTIATE_TEST_SUITE_P(Modes, AgentDaemonActorTest, ::testing::ValuesIn(testing::kBothModes),
                         ModeName);

}  // namespace
}  // namespace kipt::skew
