// SPDX-License-Identifier: Apache-2.0
//
// What the monitor of legacy iptables says of what the real programs do.
#include "agent/xtables/iptables_legacy_monitor.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/matchers.h"

// Needs struct in6_addr to be the C library's, and so comes after it.
#include <linux/netfilter_ipv4/ip_tables.h>

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "agent/process/command.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "netlink/backend.h"
#include "tests/kernel/iptables_legacy_monitor_fixture.h"
#include "tests/support/failing_call.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/process_cost.h"
#include "tests/support/run_program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

using agent::IptablesLegacyOptions;
using netlink::WatchMode;

// The first makes the table, the fifth replaces a rule by one of the same size.
constexpr const char* kWrites[] = {"-N USER",
                                   "-A USER -j DROP",
                                   "-A USER -m mark --mark 1",
                                   "-I INPUT -j USER",
                                   "-R USER 1 -j ACCEPT",
                                   "-R USER 1 -j REJECT",
                                   "-D INPUT -j USER",
                                   "-P FORWARD DROP",
                                   "-E USER RESU",
                                   "-F RESU",
                                   "-X RESU",
                                   "-t nat -N USER",
                                   "-t mangle -N USER"};

TEST_F(LegacyMonitorTest, SeesEachWriteOfEachFamilyOnceAndWithin50Milliseconds) {
  auto monitor = Watch();
  for (const std::string program : {"iptables-legacy", "ip6tables-legacy"}) {
    for (const char* arguments : kWrites) {
      const std::string command = absl::StrCat(program, " ", arguments);
      MustRun(absl::StrSplit(command, ' '));
      EXPECT_EQ(Seen(*monitor), 1U) << command;
    }
    SCOPED_TRACE(program + "-restore");
    MustRun({program + "-restore", "--noflush"}, "*filter\n:RESTORED - [0:0]\nCOMMIT\n");
    EXPECT_EQ(Seen(*monitor), 1U);
    // Two tables are two uses of the lock; 1 or 2, as we come in between or not.
    MustRun({program + "-restore"}, "*filter\nCOMMIT\n*nat\nCOMMIT\n");
    EXPECT_GE(Seen(*monitor), 1U);
  }
}

TEST_F(LegacyMonitorTest, SaysNothingOfReaders) {
  auto monitor = Watch();
  for (const std::string program : {"iptables-legacy", "ip6tables-legacy"}) {
    MustRun({program + "-restore"},
            "*filter\n:USER - [0:0]\n-A USER -j DROP\nCOMMIT\n*nat\nCOMMIT\n*mangle\nCOMMIT\n");
    Seen(*monitor);
    for (const char* arguments : {" -S", " -t nat -L -v -n", " -C USER -j DROP", "-save",
                                  "-save -t mangle", "-restore --noflush --test"}) {
      const std::string command = program + arguments;
      MustRun(absl::StrSplit(command, ' '), "*filter\n:MORE - [0:0]\nCOMMIT\n");
      EXPECT_EQ(Seen(*monitor), 0U) << command;
    }
    MustRun({program, "-S"});
    EXPECT_TRUE(Wakes(*monitor, absl::Milliseconds(50))) << "and yet it takes the lock";
    EXPECT_EQ(Seen(*monitor), 0U);
  }
}

TEST_F(LegacyMonitorTest, SaysNothingOfPacketsThatAreCounted) {
  MustRun({"iptables-legacy", "-A", "INPUT", "-j", "ACCEPT"});
  auto monitor = Watch();
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const sockaddr_in to = {.sin_family = AF_INET,
                          .sin_port = htons(9),
                          .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)},
                          .sin_zero = {}};
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(sendto(fd, "x", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to), 1);
  }
  close(fd);
  const ProgramResult listed = RunProgram({"iptables-legacy", "-L", "INPUT", "-v", "-n", "-x"});
  ASSERT_THAT(listed.out, ::testing::ContainsRegex("[1-9][0-9]* +[0-9]+ ACCEPT"));
  EXPECT_EQ(Seen(*monitor), 0U);
}

TEST_F(LegacyMonitorTest, SaysNothingOfAnotherNamespace) {
  MustRun({"iptables-legacy", "-N", "USER"});
  auto monitor = Watch();
  const Netns other = NewNetns();
  {
    const InNetns inside(other);
    MustRun({"iptables-legacy", "-N", "THERE"});
    MustRun({"ip6tables-legacy", "-t", "nat", "-N", "THERE"});
    EXPECT_TRUE(Wakes(*monitor)) << "there is one lock for all namespaces";
    EXPECT_EQ(Seen(*monitor), 0U) << "although we are there";
  }
  MustRun({"iptables-legacy", "-N", "HERE"});
  const InNetns inside(other);
  EXPECT_EQ(Seen(*monitor), 1U) << "from there, too";
}

TEST_F(LegacyMonitorTest, LookingCreatesNoTable) {
  const std::string nothing = TableNames();
  auto monitor = Watch();
  EXPECT_EQ(TableNames(), nothing);
  const Netns other = NewNetns();
  {
    const InNetns inside(other);
    MustRun({"iptables-legacy", "-N", "THERE"});
  }
  EXPECT_EQ(Seen(*monitor), 0U);
  EXPECT_EQ(TableNames(), nothing);
  MustRun({"iptables-legacy", "-t", "mangle", "-N", "USER"});
  EXPECT_EQ(Seen(*monitor), 1U);
  EXPECT_EQ(TableNames(), "mangle\n/" + nothing.substr(1));
}

TEST_F(LegacyMonitorTest, SeesARuleOfTheSameSizeInATableOfManyRules) {
  MustRun({"iptables-legacy-restore"}, RestoreText("nat", 500, ""));
  auto monitor = Watch();
  MustRun({"iptables-legacy", "-t", "nat", "-R", "MANY", "250", "-s", "10.9.9.9", "-m", "comment",
           "--comment", "rule-249", "-j", "RETURN"});
  EXPECT_EQ(Seen(*monitor), 1U);
  MustRun({"iptables-legacy", "-t", "nat", "-S", "MANY"});
  EXPECT_EQ(Seen(*monitor), 0U);
}

TEST_F(LegacyMonitorTest, CountsEveryUseOfTheLockWhereATableIsTooLargeToTell) {
  MustRun({"iptables-legacy-restore"}, RestoreText("nat", 5000, ""));
  auto monitor = Watch();
  MustRun({"iptables-legacy", "-t", "nat", "-R", "MANY", "250", "-s", "10.9.9.9", "-m", "comment",
           "--comment", "rule-249", "-j", "RETURN"});
  EXPECT_EQ(Seen(*monitor), 1U);
  MustRun({"iptables-legacy", "-S"});
  EXPECT_GE(Seen(*monitor), 1U);
  EXPECT_EQ(Seen(*monitor), 0U) << "nobody used the lock";
}

TEST_F(LegacyMonitorTest, LooksInMicroseconds) {
  MustRun({"iptables-legacy-restore"}, RestoreText("nat", 5000, ""));
  MustRun({"iptables-legacy", "-N", "USER"});
  auto monitor = Watch();
  const absl::Duration start = CpuOfThisThread();
  for (int i = 0; i < 1000; ++i) {
    close(::open(kLock, O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(Drain(*monitor).count, 1U);
  }
  const absl::Duration each = (CpuOfThisThread() - start) / 1000;
  RecordProperty("microseconds", static_cast<int>(absl::ToInt64Microseconds(each)));
  EXPECT_LT(each, absl::Milliseconds(1)) << "it reads the large table, too";
}

TEST_F(LegacyMonitorTest, LeaksNothingInTenThousandDrains) {
  std::ofstream{kLock};
  const auto before = Descriptors();
  {
    auto monitor = Watch();
    const auto open = Descriptors();
    for (int i = 0; i < 10000; ++i) {
      close(::open(kLock, O_RDONLY | O_CLOEXEC));
      if (i % 100 == 0) unlink(kLock);
      if (i % 100 == 0) std::ofstream{kLock};
      EXPECT_EQ(Drain(*monitor).count, 0U);
    }
    EXPECT_EQ(Descriptors(), open);
  }
  EXPECT_EQ(Descriptors(), before);
}

TEST_F(LegacyMonitorTest, IsWhatTheBackendWatchesWithInBothModes) {
  auto runner = agent::NewCommandRunner();
  auto backend = agent::NewIptablesLegacyBackend(runner.get());
  ASSERT_THAT(backend, IsOk());
  auto events = (*backend)->Watch(WatchMode::kEvents);
  auto poll = (*backend)->Watch(WatchMode::kPoll);
  ASSERT_THAT(events, IsOk());
  ASSERT_THAT(poll, IsOk());
  MustRun({"iptables-legacy", "-N", "USER"});
  EXPECT_EQ(Seen(**events), 1U);
  EXPECT_EQ(Seen(**poll), 1U);
  // Nobody tells our own writes from others'.
  const auto snapshot = (*backend)->Read({});
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ(Seen(**events), 0U) << "reading takes no lock";
  ASSERT_THAT((*backend)->Apply({.generation = snapshot->generation,
                                 .operations = {netlink::CreateChain{
                                     {netlink::Family::kIPv4, netlink::Table::kNat, "OURS"}}}}),
              IsOk());
  EXPECT_EQ(Seen(**events), 1U);
  const Netns other = NewNetns();
  const InNetns inside(other);
  EXPECT_THAT((*backend)->Watch(WatchMode::kEvents),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(LegacyMonitorTest, TellsAnErrorFromATableThatIsMissing) {
  using Code = absl::StatusCode;
  MustRun({"iptables-legacy", "-N", "USER"});
  MustRun({"ip6tables-legacy", "-N", "USER"});
  struct Row {
    std::string name;
    FailingCall call;
    Code code = Code::kOk;
    std::string message = {};
  };
  constexpr uint32_t kGetOption = SYS_getsockopt;
  const Row rows[] = {
      {"a kernel without IPv6", FailingCall{SYS_socket, 0, AF_INET6, EAFNOSUPPORT}},
      {"no raw socket of IPv6", FailingCall{SYS_socket, 0, AF_INET6, EPERM},
       Code::kPermissionDenied, "opening a raw socket to ask for iptables-legacy ip6"},
      {"a kernel without IPv4", FailingCall{SYS_socket, 0, AF_INET, EAFNOSUPPORT},
       Code::kUnavailable, "opening a raw socket to ask for iptables-legacy ip:"},
      {"tables that are gone", FailingCall{kGetOption, 2, IPT_SO_GET_INFO, ENOENT}},
      {"layouts that cannot be read", FailingCall{kGetOption, 2, IPT_SO_GET_INFO, ENOMEM},
       Code::kResourceExhausted, "reading the layout of iptables-legacy ip filter"},
      {"rules that are rewritten all the while",
       FailingCall{kGetOption, 2, IPT_SO_GET_ENTRIES, EAGAIN}},
      {"rules that cannot be read", FailingCall{kGetOption, 2, IPT_SO_GET_ENTRIES, ENOMEM},
       Code::kResourceExhausted, "reading the rules of iptables-legacy ip filter"},
      {"a list of tables that cannot be read again", FailingCall{SYS_lseek, 2, SEEK_SET, EINVAL},
       Code::kUnavailable, "cannot read /proc"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    WithFailingCall(row.call, [&] {
      const auto monitor =
          agent::NewIptablesLegacyMonitor(kLock, IptablesLegacyOptions().table_names_path);
      EXPECT_THAT(monitor, StatusIs(row.code, HasSubstr(row.message)));
    });
  }
}

TEST_F(LegacyMonitorTest, FindsTheListOfTablesOnceItIsThere) {
  MustRun({"iptables-legacy", "-N", "USER"});
  const TemporaryTree tree;
  tree.Write("dev", "");
  const std::string names = tree.Path("%s_names");
  auto monitor = agent::NewIptablesLegacyMonitor(kLock, names);
  ASSERT_THAT(monitor, IsOk());
  MustRun({"iptables-legacy", "-S"});
  EXPECT_EQ(Seen(**monitor), 0U) << "no list, no table";
  tree.Write("ip_names", "filter\n");
  MustRun({"iptables-legacy", "-S"});
  EXPECT_EQ(Seen(**monitor), 1U);
  tree.Write("ip_names", "filter\nraw\n");
  MustRun({"iptables-legacy", "-S"});
  EXPECT_EQ(Seen(**monitor), 0U) << "kubelet has no rules in raw";
  tree.Link("ip6_names", tree.Path("ip6_names"));
  MustRun({"iptables-legacy", "-S"});
  ASSERT_TRUE(Wakes(**monitor, absl::Milliseconds(50)));
  EXPECT_THAT((*monitor)->Drain(), Not(IsOk())) << "too many links is not the same as no list";
  const auto opened = agent::NewIptablesLegacyMonitor(kLock, names);
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("only uid 0"));
}

TEST_F(LegacyMonitorTest, SaysWhichCapabilityIsMissing) {
  MustRun({"iptables-legacy", "-N", "USER"});
  auto monitor = Watch();
  MustRun({"iptables-legacy", "-N", "MORE"});
  // A thread has capabilities of its own.
  std::thread([&] {
    __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    const __user_cap_data_struct none[2] = {};
    ASSERT_EQ(syscall(SYS_capset, &header, none), 0);
    EXPECT_THAT(agent::NewIptablesLegacyMonitor(kLock, IptablesLegacyOptions().table_names_path),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("CAP_NET_RAW")));
    EXPECT_THAT(monitor->Drain(),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("CAP_NET_ADMIN")));
  }).join();
}

}  // namespace
}  // namespace kipt::testing
