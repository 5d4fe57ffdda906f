// SPDX-License-Identifier: Apache-2.0
//
// `run --observe`: the daemon as a packaged unit first starts it. It tells what it would do, and
// does it once it is told to.
#include <csignal>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

class DaemonObserveTest : public DaemonTest {
 protected:
  void Write(const std::string& more) const { std::ofstream(file_.path()) << kConfigHead << more; }
  static std::string Rules() { return RunProgram({"nft", "list", "ruleset"}).out; }
  static bool HasFirewall() {
    return RunProgram({"iptables-nft", "-S", "KUBE-FIREWALL"}).exit_code == 0;
  }

  TemporaryFile file_{kConfigHead};
};

TEST_F(DaemonObserveTest, TellsWhatItWouldDoAndDoesNothing) {
  StartOnly({"--observe"});
  ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  EXPECT_EQ(Rules(), "");
  EXPECT_THAT(daemon().Output(), HasSubstr("Would: "));
  EXPECT_THAT(daemon().Output(), HasSubstr("block incoming localnet connections"));
  EXPECT_THAT(Readyz(), HasSubstr("[+]ip ok: observed since "));
  EXPECT_THAT(Readyz(), HasSubstr("needed, and not made (observe)"));
  EXPECT_EQ(Metric("kube_iptables_agent_observing"), 1);
  EXPECT_GT(Metric("kube_iptables_agent_pending_changes", "family=\"ip\""), 2);
  EXPECT_EQ(Stop(SIGTERM), 0);
  EXPECT_EQ(Rules(), "");
}

TEST_F(DaemonObserveTest, NoticesDamageAndLeavesIt) {
  ASSERT_EQ(RunProgram({AgentProgramPath(), "sync"}).exit_code, 0);
  StartOnly({"--observe"});
  ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  ASSERT_TRUE(MetricReaches("kube_iptables_agent_hint_present", 2));
  EXPECT_EQ(Metric("kube_iptables_agent_pending_changes"), 0);
  ASSERT_EQ(RunProgram({"iptables-nft", "-F", "KUBE-FIREWALL"}).exit_code, 0);
  EXPECT_TRUE(MetricReaches("kube_iptables_agent_pending_changes", 1, "family=\"ip\""));
  EXPECT_THAT(daemon().Output(), HasSubstr("ip is observed: 1 change is needed"));
  EXPECT_THAT(RunProgram({"iptables-nft", "-S", "KUBE-FIREWALL"}).out, Not(HasSubstr("localnet")));
}

TEST_F(DaemonObserveTest, TheFileTurnsItIntoAnAgentThatWritesAndBack) {
  Write("observe: true\n");
  StartOnly({"--config=" + file_.path()});
  ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  ASSERT_EQ(Rules(), "");
  Write("observe: false\n");
  EXPECT_TRUE(WaitUntil(HasFirewall)) << daemon().Output();
  EXPECT_TRUE(WaitUntil([] {
    return absl::StrContains(HttpGet(kMetricsPort, "/metrics").body,
                             "\nkube_iptables_agent_observing 0\n");
  }));
  Write("observe: true\n");
  ASSERT_TRUE(MetricReaches("kube_iptables_agent_observing", 1));
  ASSERT_EQ(RunProgram({"nft", "flush", "ruleset"}).exit_code, 0);
  EXPECT_TRUE(WaitUntil([] { return Metric("kube_iptables_agent_pending_changes") > 4; }));
  EXPECT_FALSE(HasFirewall());
}

TEST_F(DaemonObserveTest, OneShotCommandsDoWhatTheirNamesSay) {
  Write("observe: true\n");
  EXPECT_EQ(RunProgram({AgentProgramPath(), "sync", "--config=" + file_.path()}).exit_code, 0);
  EXPECT_TRUE(HasFirewall());
}

}  // namespace
}  // namespace kipt::testing
