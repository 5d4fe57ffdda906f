// SPDX-License-Identifier: Apache-2.0
//
// The daemon as a service: starting, ending, its notifications, and which users can run it.
#include <sys/socket.h>

#include "agent/process/own_process.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/interop/notify_socket.h"

namespace kipt::testing {
namespace {

class DaemonLifecycleTest : public DaemonTest {
 protected:
  // Without counters: the endpoints' own packets are counted.
  static std::string SavedNft() { return Output({"nft", "-s", "list", "ruleset"}); }
};

// What `name` is in /proc/PID/task/*/status.
std::vector<std::string> OfEveryThread(pid_t pid, const std::string& name) {
  std::vector<std::string> values;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::ifstream file(task.path() / "status");
    for (std::string line; std::getline(file, line);) {
      if (absl::StartsWith(line, name + ":\t")) values.push_back(line.substr(name.size() + 2));
    }
  }
  return values;
}

TEST_F(DaemonLifecycleTest, ATerminationLeavesTheRulesAndIsNoFailure) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Start({});
    const std::string before = SavedNft();
    EXPECT_THAT(before, HasSubstr("KUBE-IPTABLES-HINT"));
    EXPECT_EQ(Stop(signal), kExitOk) << daemon().Output();
    EXPECT_EQ(SavedNft(), before);
  }
}

TEST_F(DaemonLifecycleTest, TakenPortsKeepNoRuleFromBeingMadeAndAreHadOnceTheyAreFree) {
  {
    const BackgroundProgram other({"systemd-socket-activate", "--listen=127.0.0.1:10270",
                                   "--listen=127.0.0.1:10271", "/bin/true"});
    ASSERT_TRUE(other.Prints("Listening on 127.0.0.1:10271")) << other.Output();
    StartOnly({});
    ASSERT_TRUE(daemon().Prints("ip6 is in place")) << daemon().Output();
    ExpectNothingPlanned({});
    for (const char* port : {"10270", "10271"}) {
      EXPECT_TRUE(
          daemon().Prints(absl::StrCat("cannot listen on 127.0.0.1:", port, ": Address already")))
          << daemon().Output();
    }
    absl::SleepFor(absl::Seconds(6));  // Tried once more.
  }
  EXPECT_TRUE(BecomesReady()) << daemon().Output();
  EXPECT_TRUE(WaitUntil([] { return HttpGet(kMetricsPort, "/metrics").status == 200; }));
  EXPECT_EQ(CountOf("which is retried every 5s", daemon().Output()), 2) << "once for each address";
}

// The service manager holds the ports also while no agent runs.
TEST_F(DaemonLifecycleTest, ListensOnTheSocketsThatTheServiceManagerPasses) {
  StartProgram({"systemd-socket-activate", "--listen=127.0.0.1:10271", "--listen=127.0.0.1:10299",
                "--listen=127.0.0.1:10270", AgentProgram(), "run"});
  // Started by the first connection.
  ASSERT_TRUE(BecomesReady()) << daemon().Output();
  EXPECT_EQ(HttpGet(kMetricsPort, "/metrics").status, 200);
  EXPECT_THAT(daemon().Output(), Not(HasSubstr("cannot listen")));
  EXPECT_EQ(CountOf("Listening on http://127.0.0.1:1027", daemon().Output()), 2);
  EXPECT_THAT(daemon().Output(), HasSubstr("The socket 127.0.0.1:10299, which systemd passed, is "
                                           "not used: no such address is configured"));
}

TEST_F(DaemonLifecycleTest, EndpointsCanBeSwitchedOff) {
  StartOnly({"--healthz-bind-address=", "--metrics-bind-address="});
  EXPECT_TRUE(daemon().Prints("ip6 is in place")) << daemon().Output();
  EXPECT_EQ(HttpGet(kHealthPort, "/healthz").status, 0);
  EXPECT_EQ(HttpGet(kMetricsPort, "/metrics").status, 0);
}

TEST_F(DaemonLifecycleTest, NotifiesOfStartReloadStateAndEnd) {
  NotifySocket manager;
  ASSERT_TRUE(manager.bound());
  Start({}, {}, {manager.Variable()});
  EXPECT_TRUE(manager.Receives("READY=1"));
  EXPECT_TRUE(manager.Receives("STATUS="));
  daemon().Signal(SIGHUP);
  EXPECT_TRUE(manager.Receives("RELOADING=1\nMONOTONIC_USEC="));
  EXPECT_TRUE(daemon().Prints("is unchanged"));
  EXPECT_TRUE(WaitUntil([&] { return CountOf("READY=1", manager.Received()) == 2; }));
  EXPECT_EQ(Stop(SIGTERM), kExitOk);
  EXPECT_TRUE(manager.Receives("STOPPING=1"));
}

TEST_F(DaemonLifecycleTest, TheWatchdogIsFedInTime) {
  NotifySocket manager;
  ASSERT_TRUE(manager.bound());
  Start({}, {}, {manager.Variable(), "WATCHDOG_USEC=400000"});
  EXPECT_TRUE(WaitUntil([&] { return CountOf("WATCHDOG=1", manager.Received()) >= 3; }));
}

TEST_F(DaemonLifecycleTest, ItIsReadyForTheServiceManagerAlsoWhereTheKernelRefuses) {
  // A plain chain INPUT in table filter: nothing can be hooked there.
  Output({"nft", "add table ip filter; add chain ip filter INPUT"});
  NotifySocket manager;
  ASSERT_TRUE(manager.bound());
  StartOnly({}, {manager.Variable()});
  EXPECT_TRUE(manager.Receives("READY=1"));
  EXPECT_TRUE(manager.Receives("BaseChainNotHooked")) << manager.Received();
  EXPECT_EQ(HttpGet(kHealthPort, "/readyz").status, 503);
  EXPECT_EQ(HttpGet(kHealthPort, "/livez").status, 200);
  Output({"nft", "delete chain ip filter INPUT"});
  EXPECT_TRUE(BecomesReady()) << Readyz();
}

TEST_F(DaemonLifecycleTest, EveryThreadHasNothingButNetAdmin) {
  Start({});
  const pid_t pid = daemon().pid();
  const std::vector<std::string> effective = OfEveryThread(pid, "CapEff");
  EXPECT_GE(effective.size(), 3);  // the loop and two servers
  for (const char* set : {"CapEff", "CapPrm", "CapBnd"}) {
    EXPECT_THAT(OfEveryThread(pid, set), Each("0000000000001000")) << set;
  }
  for (const char* set : {"CapInh", "CapAmb"}) {
    EXPECT_THAT(OfEveryThread(pid, set), Each("0000000000000000")) << set;
  }
  EXPECT_THAT(OfEveryThread(pid, "NoNewPrivs"), Each("1"));
  // A build with a sanitizer has no filter (agent/process/syscall_filter.h).
  EXPECT_THAT(OfEveryThread(pid, "Seccomp"), Each(agent::kBuiltWithASanitizer ? "0" : "2"));
}

TEST_F(DaemonLifecycleTest, LegacyKeepsNetRawToo) {
  const AgentSettings settings{.iptables = IptablesMode::kLegacy};
  Start(settings);
  for (const char* set : {"CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"}) {
    EXPECT_THAT(OfEveryThread(daemon().pid(), set), Each("0000000000003000")) << set;
  }
  // And that is enough to go on working.
  Output({"iptables-legacy", "-F", "KUBE-FIREWALL"});
  EXPECT_TRUE(MetricReaches("kube_iptables_agent_repair_latency_seconds_count", 1))
      << daemon().Output();
}

TEST_F(DaemonLifecycleTest, NftWorksForAnotherUserWhoHasNetAdmin) {
  const UserCopy copy(AgentProgram());
  StartProgram({"setpriv", "--pdeathsig=keep", "--reuid=65534", "--regid=65534", "--clear-groups",
                "--inh-caps=-all,+net_admin", "--ambient-caps=-all,+net_admin", copy.path(), "run",
                "--iptables-mode=nft"});
  ASSERT_TRUE(BecomesReady()) << daemon().Output();
  EXPECT_THAT(OfEveryThread(daemon().pid(), "CapEff"), Each("0000000000001000"));
  EXPECT_THAT(OfEveryThread(daemon().pid(), "Uid"), Each("65534\t65534\t65534\t65534"));
  Output({"nft", "flush", "ruleset"});
  EXPECT_TRUE(MetricReaches("kube_iptables_agent_repair_latency_seconds_count", 1))
      << daemon().Output();
}

TEST_F(DaemonLifecycleTest, UnreadLogLinesAreDroppedAndCounted) {
  FullPipe log;
  StartProgram({"/bin/bash", "-c", "exec \"$@\" 2>\"$0\"", log.path(), AgentProgram(), "run",
                "--iptables-sync-period=1s"});
  ASSERT_TRUE(BecomesReady());
  Output({"nft", "flush", "ruleset"});
  EXPECT_TRUE(MetricReaches("kube_iptables_agent_repair_latency_seconds_count", 1));
  EXPECT_GE(Metric("kube_iptables_agent_log_lines_dropped_total"), 3);
  log.Read();
  daemon().Signal(SIGHUP);
  EXPECT_TRUE(WaitUntil([&] { return absl::StrContains(log.Read(), "is unchanged"); }));
  EXPECT_THAT(log.Read(), HasSubstr(" lines are missing here: standard error was full\n"));
  EXPECT_EQ(Stop(SIGTERM), kExitOk);
}

}  // namespace
}  // namespace kipt::testing
