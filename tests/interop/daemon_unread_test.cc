// SPDX-License-Identifier: Apache-2.0
//
// What nobody reads, and descriptors that are not what they should be, keep no rule from being
// repaired.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/interop/notify_socket.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

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
