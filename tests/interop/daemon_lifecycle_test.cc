// SPDX-License-Identifier: Apache-2.0
//
// The daemon as a service: starting, ending, what the service manager is told, and who may run it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "agent/process/own_process.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/interop/notify_socket.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

class DaemonLifecycleTest : public DaemonTest {
 protected:
  // Without counters: the endpoints' own packets are counted.
  static std::string SavedNft() { return Output({"nft", "-s", "list", "ruleset"}); }
};

// A build with a sanitizer has no filter (agent/process/syscall_filter.h).
std::string ExpectedSeccomp() { return agent::kBuiltWithASanitizer ? "0" : "2"; }

// A TCP port of 127.0.0.1 that another program listens on.
class TakenPort {
 public:
  explicit TakenPort(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0) << port;
    EXPECT_EQ(listen(fd_, 1), 0) << port;
  }
  ~TakenPort() { close(fd_); }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;

 private:
  int fd_;
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

// ---- addresses ----

TEST_F(DaemonLifecycleTest, TakenPortsKeepNoRuleFromBeingMadeAndAreHadOnceTheyAreFree) {
  for (const AgentSettings& settings :
       {AgentSettings{}, AgentSettings{.iptables = IptablesMode::kLegacy}}) {
    {
      const TakenPort health(kHealthPort);
      const TakenPort metrics(kMetricsPort);
      StartOnly(settings.Flags());
      ASSERT_TRUE(daemon().Prints("ip6 is in place")) << daemon().Output();
      ExpectNothingPlanned(settings);
      for (const char* address : {"127.0.0.1:10270", "127.0.0.1:10271"}) {
        const std::string said = absl::StrCat("cannot listen on ", address, ": Address already");
        EXPECT_TRUE(daemon().Prints(said)) << daemon().Output();
      }
      absl::SleepFor(absl::Seconds(7));
      EXPECT_EQ(CountOf("cannot listen on", daemon().Output()), 2) << "not at each attempt";
    }
    EXPECT_TRUE(BecomesReady()) << daemon().Output();
    EXPECT_TRUE(WaitUntil([] { return HttpGet(kMetricsPort, "/metrics").status == 200; }));
    EXPECT_EQ(Stop(SIGTERM), kExitOk);
  }
}

TEST_F(DaemonLifecycleTest, AnAddressThatCannotBeHadIsToldButNoReasonNotToBeReady) {
  NotifySocket manager;
  ASSERT_TRUE(manager.bound());
  // No address of this machine yet.
  Start({}, {"--metrics-bind-address=192.0.2.7:10271"}, {manager.Variable()});
  EXPECT_THAT(Readyz(), HasSubstr("[+]listening ok: cannot listen on 192.0.2.7:10271"));
  EXPECT_TRUE(manager.IsTold("cannot listen on 192.0.2.7:10271")) << manager.Told();
  Output({"ip", "address", "add", "192.0.2.7/32", "dev", "lo"});
  EXPECT_TRUE(daemon().Prints("Listening on http://192.0.2.7:10271")) << daemon().Output();
  EXPECT_TRUE(WaitUntil([] { return !absl::StrContains(Readyz(), "192.0.2.7"); })) << Readyz();
}

// The service manager holds the ports also while no agent runs.
TEST_F(DaemonLifecycleTest, ListensOnTheSocketsThatTheServiceManagerPasses) {
  StartProgram({"systemd-socket-activate", "--listen=127.0.0.1:10271", "--listen=127.0.0.1:10270",
                AgentProgram(), "run"});
  // Started by the first connection.
  ASSERT_TRUE(BecomesReady()) << daemon().Output();
  EXPECT_EQ(HttpGet(kMetricsPort, "/metrics").status, 200);
  EXPECT_THAT(daemon().Output(), Not(HasSubstr("cannot listen")));
  EXPECT_EQ(CountOf("Listening on http://127.0.0.1:1027", daemon().Output()), 2);
}

TEST_F(DaemonLifecycleTest, PassedSocketsThatNoAddressAsksForAreNamed) {
  StartProgram({"systemd-socket-activate", "--listen=127.0.0.1:10270", "--listen=127.0.0.1:9",
                "--listen=/run/kipt-test-socket", AgentProgram(), "run",
                "--metrics-bind-address="});
  ASSERT_TRUE(BecomesReady()) << daemon().Output();
  EXPECT_TRUE(daemon().Prints("127.0.0.1:9, which systemd passed, is not used"));
  EXPECT_EQ(HttpGet(kMetricsPort, "/metrics").status, 0);
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
  EXPECT_TRUE(daemon().Prints("is unchanged"));
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
    EXPECT_THAT(OfEveryThread(pid, set), Each("0000000000001000")) << set;
  }
  for (const char* set : {"CapInh", "CapAmb"}) {
    EXPECT_THAT(OfEveryThread(pid, set), Each("0000000000000000")) << set;
  }
  EXPECT_THAT(OfEveryThread(pid, "NoNewPrivs"), Each("1"));
  EXPECT_THAT(OfEveryThread(pid, "Seccomp"), Each(ExpectedSeccomp()));
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

// What nobody reads, and descriptors that are not what they should be, keep no rule from being
// repaired.

class DaemonUnreadTest : public DaemonTest {
 protected:
  void ExpectRepairs() {
    const Iptables iptables = {.mode = IptablesMode::kNft};
    iptables.Run({"-t", "nat", "-F", "KUBE-POSTROUTING"});
    EXPECT_TRUE(WaitUntil([&] {
      return absl::StrContains(iptables.Run({"-t", "nat", "-S", "KUBE-POSTROUTING"}).out,
                               "MASQUERADE");
    }));
    EXPECT_EQ(HttpGet(kHealthPort, "/livez").status, 200);
  }
  const TemporaryFile directory_{""};
  const std::vector<std::string> flags_ = {"--iptables-sync-period=1s", "--iptables-mode=nft",
                                           "--feature-gates=IPTablesOwnershipCleanup=false"};
};

TEST_F(DaemonUnreadTest, AServiceManagerThatReadsNothingIsToldLater) {
  NotifySocket manager;
  ASSERT_TRUE(manager.bound());
  ASSERT_GT(manager.Fill(), 0);
  StartOnly(flags_, {manager.Variable(), "WATCHDOG_USEC=300000"});
  ASSERT_TRUE(BecomesReady()) << daemon().Output();
  ExpectRepairs();
  EXPECT_TRUE(manager.IsTold("READY=1"));
  EXPECT_TRUE(manager.IsTold("STATUS=in place"));
  EXPECT_TRUE(manager.IsTold("WATCHDOG=1"));
  ASSERT_GT(manager.Fill(), 0);
  EXPECT_EQ(Stop(SIGTERM), kExitOk);
}

TEST_F(DaemonUnreadTest, LogLinesThatNobodyReadsAreDroppedAndCounted) {
  const std::string fifo = directory_.directory() + "/log";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const int reader = open(fifo.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  const std::string page(4096, '.');
  while (write(reader, page.data(), page.size()) > 0) {
  }
  std::vector<std::string> argv = {"/bin/bash", "-c",           "exec \"$@\" 2>\"$0\"",
                                   fifo,        AgentProgram(), "run"};
  argv.insert(argv.end(), flags_.begin(), flags_.end());
  StartProgram(argv);
  ASSERT_TRUE(BecomesReady());
  ExpectRepairs();
  EXPECT_GE(Metric("kube_iptables_agent_log_lines_dropped_total"), 3);
  std::string log;
  std::string buffer(1 << 16, ' ');
  const auto read_all = [&] {
    for (ssize_t size = 0; (size = read(reader, buffer.data(), buffer.size())) > 0;) {
      log.append(buffer, 0, static_cast<size_t>(size));
    }
    return log.size();
  };
  read_all();
  daemon().Signal(SIGHUP);
  EXPECT_TRUE(WaitUntil([&] {
    read_all();
    return absl::StrContains(log, "is unchanged");
  })) << log.substr(log.find_last_of('.') + 1);
  EXPECT_THAT(log, HasSubstr(" lines are missing here: standard error was full\n"));
  EXPECT_EQ(Stop(SIGTERM), kExitOk);
  close(reader);
}

TEST_F(DaemonUnreadTest, APassedNumberOfNoDescriptorIsNoSocket) {
  std::vector<std::string> argv = {"/bin/bash", "-c",
                                   "exec 3<&-; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\"",
                                   AgentProgram(), "run"};
  argv.insert(argv.end(), flags_.begin(), flags_.end());
  StartProgram(argv);
  ASSERT_TRUE(BecomesReady()) << daemon().Output();
  ExpectRepairs();
  EXPECT_EQ(Stop(SIGTERM), kExitOk);
}

TEST_F(DaemonUnreadTest, ANamespaceThatIsAFifoIsNone) {
  const std::string fifo = directory_.directory() + "/netns";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const ProgramResult status = Agent({"status", "--netns=" + fifo});
  EXPECT_EQ(status.exit_code, kExitUsage) << status;
  EXPECT_THAT(status.err, HasSubstr("not a network namespace"));
}

}  // namespace
}  // namespace kipt::testing
