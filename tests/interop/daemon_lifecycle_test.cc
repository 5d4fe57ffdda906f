// SPDX-License-Identifier: Apache-2.0
//
// The daemon as a service: starting, ending, what the service manager is told, and who may run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "agent/process/sanitizer.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/interop/notify_socket.h"

namespace kipt::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class DaemonLifecycleTest : public DaemonTest {
 protected:
  // Without counters: the endpoints' own packets are counted.
  static std::string SavedNft() { return Output({"nft", "-s", "list", "ruleset"}); }
};

// A build with a sanitizer has no filter (agent/process/syscall_filter.h).
std::string ExpectedSeccomp() { return agent::kBuiltWithASanitizer ? "0" : "2"; }

// A copy of the program that an ordinary user may run, who may not be able to look into the build
// tree.
class UserCopy {
 public:
  UserCopy() : path_(beside_.directory() + "/kube-iptables-agent") {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::permissions(beside_.directory(), fs::perms(0755), error);
    fs::copy_file(DaemonTest::AgentProgramPath(), path_, error);
    EXPECT_FALSE(error) << path_ << ": " << error.message();
  }
  const std::string& path() const { return path_; }

 private:
  TemporaryFile beside_{""};
  std::string path_;
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

TEST_F(DaemonLifecycleTest, WithoutASubcommandItRuns) {
  StartProgram({AgentProgram()});
  EXPECT_TRUE(BecomesReady()) << daemon().Output();
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

TEST_F(DaemonLifecycleTest, AnAddressInUseEndsItWithAClearLineAndAnUnchangedKernel) {
  Start({});
  const std::string before = SavedNft();
  BackgroundProgram second(
      {AgentProgram(), "run", "--feature-gates=IPTablesOwnershipCleanup=false"});
  EXPECT_EQ(second.Wait(), kExitFailed);
  EXPECT_THAT(second.Output(), HasSubstr("127.0.0.1:10270"));
  EXPECT_EQ(SavedNft(), before);
}

TEST_F(DaemonLifecycleTest, EndpointsCanBeSwitchedOff) {
  StartOnly({"--healthz-bind-address=", "--metrics-bind-address="});
  EXPECT_TRUE(daemon().Prints("ip6 is in place")) << daemon().Output();
  EXPECT_EQ(HttpGet(kHealthPort, "/healthz").status, 0);
  EXPECT_EQ(HttpGet(kMetricsPort, "/metrics").status, 0);
}

TEST_F(DaemonLifecycleTest, TheServiceManagerIsToldOfStartReloadStateAndEnd) {
  NotifySocket manager;
  ASSERT_TRUE(manager.bound());
  Start({}, {}, {manager.Variable()});
  EXPECT_TRUE(manager.IsTold("READY=1"));
  EXPECT_TRUE(manager.IsTold("STATUS="));
  daemon().Signal(SIGHUP);
  EXPECT_TRUE(manager.IsTold("RELOADING=1\nMONOTONIC_USEC="));
  EXPECT_TRUE(daemon().Prints("says what it said before"));
  EXPECT_TRUE(WaitUntil([&] { return CountOf("READY=1", manager.Told()) == 2; }));
  EXPECT_EQ(Stop(SIGTERM), kExitOk);
  EXPECT_TRUE(manager.IsTold("STOPPING=1"));
}

TEST_F(DaemonLifecycleTest, TheWatchdogIsFedAsOftenAsItWants) {
  NotifySocket manager;
  ASSERT_TRUE(manager.bound());
  Start({}, {}, {manager.Variable(), "WATCHDOG_USEC=400000"});
  EXPECT_TRUE(WaitUntil([&] { return CountOf("WATCHDOG=1", manager.Told()) >= 3; }));
}

TEST_F(DaemonLifecycleTest, ItIsReadyForTheServiceManagerAlsoWhereTheKernelRefuses) {
  // A plain chain INPUT in table filter: nothing can be hooked there.
  Output({"nft", "add table ip filter; add chain ip filter INPUT"});
  NotifySocket manager;
  ASSERT_TRUE(manager.bound());
  StartOnly({}, {manager.Variable()});
  EXPECT_TRUE(manager.IsTold("READY=1"));
  EXPECT_TRUE(manager.IsTold("BaseChainNotHooked")) << manager.Told();
  EXPECT_EQ(HttpGet(kHealthPort, "/readyz").status, 503);
  EXPECT_EQ(HttpGet(kHealthPort, "/livez").status, 200);
  Output({"nft", "delete chain ip filter INPUT"});
  EXPECT_TRUE(BecomesReady()) << Readyz();
}

// ---- privileges ----

TEST_F(DaemonLifecycleTest, EveryThreadHasNothingButNetAdmin) {
  Start({});
  const pid_t pid = daemon().pid();
  const std::vector<std::string> effective = OfEveryThread(pid, "CapEff");
  EXPECT_GE(effective.size(), 3);  // the loop and two servers
  for (const char* set : {"CapEff", "CapPrm", "CapBnd"}) {
    EXPECT_THAT(OfEveryThread(pid, set), ::testing::Each("0000000000001000")) << set;
  }
  for (const char* set : {"CapInh", "CapAmb"}) {
    EXPECT_THAT(OfEveryThread(pid, set), ::testing::Each("0000000000000000")) << set;
  }
  EXPECT_THAT(OfEveryThread(pid, "NoNewPrivs"), ::testing::Each("1"));
  EXPECT_THAT(OfEveryThread(pid, "Seccomp"), ::testing::Each(ExpectedSeccomp()));
}

TEST_F(DaemonLifecycleTest, LegacyKeepsNetRawToo) {
  const AgentSettings settings{.iptables = IptablesMode::kLegacy};
  Start(settings);
  for (const char* set : {"CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"}) {
    EXPECT_THAT(OfEveryThread(daemon().pid(), set), ::testing::Each("0000000000003000")) << set;
  }
  // And that is enough to go on working.
  Output({"iptables-legacy", "-F", "KUBE-FIREWALL"});
  EXPECT_TRUE(MetricReaches("kube_iptables_agent_repair_latency_seconds_count", 1))
      << daemon().Output();
}

TEST_F(DaemonLifecycleTest, NftWorksForAnotherUserWhoHasNetAdmin) {
  const UserCopy copy;
  StartProgram({"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                "--inh-caps=-all,+net_admin", "--ambient-caps=-all,+net_admin", copy.path(), "run",
                "--iptables-mode=nft"});
  ASSERT_TRUE(BecomesReady()) << daemon().Output();
  EXPECT_THAT(OfEveryThread(daemon().pid(), "CapEff"), ::testing::Each("0000000000001000"));
  EXPECT_THAT(OfEveryThread(daemon().pid(), "Uid"), ::testing::Each("65534\t65534\t65534\t65534"));
  Output({"nft", "flush", "ruleset"});
  EXPECT_TRUE(MetricReaches("kube_iptables_agent_repair_latency_seconds_count", 1))
      << daemon().Output();
}

TEST_F(DaemonLifecycleTest, WithoutNetAdminItEndsAndSaysWhatToDo) {
  const UserCopy copy;
  StartProgram({"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", copy.path(), "run",
                "--iptables-mode=nft"});
  EXPECT_EQ(daemon().Wait(), kExitFailed);
  EXPECT_THAT(daemon().Output(), HasSubstr("CAP_NET_ADMIN is missing"));
}

}  // namespace
}  // namespace kipt::testing
