// SPDX-License-Identifier: Apache-2.0
//
// What the monitor of iptables-legacy reports when the real programs write, when a system call
// fails, and when its files are replaced. Each test has a network namespace and a /run of its own:
// the machine's lock is never touched.
#include "agent/xtables/iptables_legacy_monitor.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "absl/status/status.h"
#include "agent/process/files.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "tests/support/child.h"
#include "tests/support/failing_call.h"

// Included last because it needs the C library's struct in6_addr.
#include <linux/netfilter_ipv4/ip_tables.h>

namespace {

// Replaces the result of each getsockopt(2) that reads rules. Nothing: the kernel's answer.
std::function<int(int result, void* value)>& OnRules() {
  static std::function<int(int, void*)> on_rules;
  return on_rules;
}

}  // namespace

extern "C" int getsockopt(int fd, int level, int option, void* value, socklen_t* size) noexcept {
  const auto result = static_cast<int>(syscall(SYS_getsockopt, fd, level, option, value, size));
  // Of IPv6 it has the same number.
  const bool reads_rules = (level == SOL_IP || level == SOL_IPV6) && option == IPT_SO_GET_ENTRIES;
  return reads_rules && OnRules() ? OnRules()(result, value) : result;
}

namespace kipt::testing {
namespace {

using agent::IptablesLegacyOptions;
using agent::OwnedFd;

constexpr char kLock[] = "/run/xtables.lock";

std::string TableNames() {
  std::ostringstream text;
  for (const char* path :
       {"/proc/thread-self/net/ip_tables_names", "/proc/thread-self/net/ip6_tables_names"}) {
    std::ifstream file(path);
    if (file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
    text << "/";
  }
  return text.str();
}

bool Wakes(const netlink::Monitor& monitor, absl::Duration within = absl::ZeroDuration()) {
  pollfd polled = {.fd = monitor.fd(), .events = POLLIN, .revents = 0};
  return poll(&polled, 1, static_cast<int>(absl::ToInt64Milliseconds(within))) == 1;
}

netlink::RulesetChanges Drain(netlink::Monitor& monitor) {
  const absl::StatusOr<netlink::RulesetChanges> changes = monitor.Drain();
  EXPECT_THAT(changes, IsOk());
  return changes.ok() ? *changes : netlink::RulesetChanges{};
}

// The number of changes that are reported within 50 ms.
uint64_t Seen(netlink::Monitor& monitor) {
  uint64_t count = 0;
  while (Wakes(monitor, absl::Milliseconds(50))) {
    const netlink::RulesetChanges changes = Drain(monitor);
    EXPECT_TRUE(changes.writers.empty());
    EXPECT_EQ(changes.lost, 0U);
    count += changes.count;
  }
  return count;
}

std::string RestoreText(const std::string& table, int rules) {
  std::string text = absl::StrCat("*", table, "\n:MANY - [0:0]\n");
  for (int i = 0; i < rules; ++i) {
    absl::StrAppend(&text, "-A MANY -s 10.", i / 65536, ".", i / 256 % 256, ".", i % 256,
                    "/32 -m comment --comment rule-", i, " -j RETURN\n");
  }
  return text + "COMMIT\n";
}

class LegacyMonitorTest : public PrivateRunTest {
 protected:
  void TearDown() override { OnRules() = nullptr; }

  static absl::StatusOr<std::unique_ptr<netlink::Monitor>> Open(
      const std::string& lock = kLock,
      const std::string& names = IptablesLegacyOptions().table_names_path) {
    return agent::NewIptablesLegacyMonitor(lock, names);
  }
  static std::unique_ptr<netlink::Monitor> Watch(const std::string& lock = kLock) {
    auto monitor = Open(lock);
    EXPECT_THAT(monitor, IsOk());
    return monitor.ok() ? *std::move(monitor) : nullptr;
  }
  // Another program's change of the rules, of which no monitor is notified.
  static void ChangeUnheard(const std::string& chain) {
    MustRun({"env", "XTABLES_LOCKFILE=/run/private", "iptables-legacy", "-N", chain});
  }
  // A use of the lock.
  static void Touch() { OwnedFd(open(kLock, O_RDONLY | O_CREAT, 0600)).Close(); }
};

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

TEST_F(LegacyMonitorTest, IgnoresReaders) {
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

TEST_F(LegacyMonitorTest, IgnoresPacketCounters) {
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

TEST_F(LegacyMonitorTest, IgnoresAnotherNamespace) {
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

TEST_F(LegacyMonitorTest, ReadingCreatesNoTable) {
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

TEST_F(LegacyMonitorTest, CountsEveryUseOfTheLockWhereATableIsTooLargeToCompare) {
  MustRun({"iptables-legacy-restore"}, RestoreText("nat", 5000));
  auto monitor = Watch();
  MustRun({"iptables-legacy", "-t", "nat", "-R", "MANY", "250", "-s", "10.9.9.9", "-m", "comment",
           "--comment", "rule-249", "-j", "RETURN"});
  EXPECT_EQ(Seen(*monitor), 1U);
  MustRun({"iptables-legacy", "-S"});
  EXPECT_GE(Seen(*monitor), 1U);
  EXPECT_EQ(Seen(*monitor), 0U) << "the lock was not used";
}

TEST_F(LegacyMonitorTest, DistinguishesAnErrorFromAMissingTable) {
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
  constexpr uint32_t kDirectory =
      IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
  constexpr uint32_t kFile = IN_CLOSE_NOWRITE | IN_CLOSE_WRITE;
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
      {"no instance of inotify",
       FailingCall{SYS_inotify_init1, 0, IN_CLOEXEC | IN_NONBLOCK, EMFILE},
       Code::kResourceExhausted},
      {"no watch of the directory", FailingCall{SYS_inotify_add_watch, 2, kDirectory, ENOSPC},
       Code::kResourceExhausted},
      {"no watch of the file", FailingCall{SYS_inotify_add_watch, 2, kFile, ENOSPC},
       Code::kResourceExhausted},
      {"no permission for the file", FailingCall{SYS_inotify_add_watch, 2, kFile, EACCES},
       Code::kPermissionDenied},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    WithFailingCall(row.call,
                    [&] { EXPECT_THAT(Open(), StatusIs(row.code, HasSubstr(row.message))); });
  }
  ASSERT_EQ(unlink(kLock), 0);
  WithFailingCall(FailingCall{SYS_inotify_add_watch, 2, kDirectory, EACCES},
                  [] { EXPECT_THAT(Open(), StatusIs(Code::kPermissionDenied)); });
}

TEST_F(LegacyMonitorTest, FindsTheListOfTablesOnceItIsThere) {
  MustRun({"iptables-legacy", "-N", "USER"});
  const TemporaryTree tree;
  tree.Write("dev", "");
  const std::string names = tree.Path("%s_names");
  auto monitor = Open(kLock, names);
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
  const auto opened = Open(kLock, names);
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("cannot read"));
}

TEST_F(LegacyMonitorTest, NamesTheMissingCapability) {
  MustRun({"iptables-legacy", "-N", "USER"});
  auto monitor = Watch();
  MustRun({"iptables-legacy", "-N", "MORE"});
  // A thread has capabilities of its own.
  std::thread([&] {
    __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    const __user_cap_data_struct none[2] = {};
    ASSERT_EQ(syscall(SYS_capset, &header, none), 0);
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("CAP_NET_RAW")));
    EXPECT_THAT(monitor->Drain(),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("CAP_NET_ADMIN")));
  }).join();
}

TEST_F(LegacyMonitorTest, EventsThatCannotBeReadAreAnError) {
  auto monitor = Watch();
  ASSERT_EQ(dup2(OwnedFd(open("/dev/null", O_WRONLY)).get(), monitor->fd()), monitor->fd());
  EXPECT_THAT(monitor->Drain(), Not(IsOk()));
}

TEST_F(LegacyMonitorTest, RulesThatAreNoneAreAnError) {
  MustRun({"iptables-legacy", "-N", "USER"});
  OnRules() = [](int result, void* value) {
    // struct ipt_get_entries: a name and a size, then the first rule; its size is at 90.
    std::memset(static_cast<char*>(value) + 40 + 90, 0, 2);
    return result;
  };
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no whole rule")));
}

TEST_F(LegacyMonitorTest, RulesThatCouldNotBeReadMayHaveChanged) {
  MustRun({"iptables-legacy", "-N", "USER"});
  auto monitor = Watch();
  OnRules() = [](int /*result*/, void* /*value*/) {
    errno = EAGAIN;  // rewritten
    return -1;
  };
  Touch();
  EXPECT_EQ(Seen(*monitor), 1U);
  OnRules() = nullptr;
  Touch();
  EXPECT_EQ(Seen(*monitor), 1U) << "read for the first time since";
  Touch();
  EXPECT_EQ(Seen(*monitor), 0U);
}

TEST_F(LegacyMonitorTest, ALockWithoutADirectoryIsInTheCurrentOne) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path("/run");
  auto monitor = Watch("xtables.lock");
  std::filesystem::current_path(before);
  ASSERT_NE(monitor, nullptr);
  MustRun({"iptables-legacy", "-N", "USER"});
  EXPECT_EQ(Seen(*monitor), 1U);
}

TEST_F(LegacyMonitorTest, AReaderOfTheLockFileIsNotHeard) {
  std::ofstream{kLock} << "text";
  auto monitor = Watch();
  const OwnedFd file(open(kLock, O_RDWR));
  char byte = 0;
  ASSERT_EQ(read(file.get(), &byte, 1), 1);
  EXPECT_FALSE(Wakes(*monitor));
}

TEST_F(LegacyMonitorTest, AProgramThatOpenedTheLockForWritingIsHeard) {
  Touch();
  auto monitor = Watch();
  OwnedFd file(open(kLock, O_RDWR));
  ChangeUnheard("USER");
  Drain(*monitor);
  file.Close();
  EXPECT_EQ(Seen(*monitor), 1U);
}

TEST_F(LegacyMonitorTest, ALockFileThatIsMovedThereIsWatched) {
  auto monitor = Watch();
  std::ofstream{"/run/new"};
  Drain(*monitor);
  ASSERT_EQ(rename("/run/new", kLock), 0);
  EXPECT_TRUE(Wakes(*monitor));
  Drain(*monitor);
  MustRun({"iptables-legacy", "-N", "USER"});
  EXPECT_EQ(Seen(*monitor), 1U);
}

// A line for each inotify watch.
size_t Watches(const netlink::Monitor& monitor) {
  std::ifstream file(absl::StrCat("/proc/self/fdinfo/", monitor.fd()));
  size_t watches = 0;
  for (std::string line; std::getline(file, line);) {
    watches += absl::StartsWith(line, "inotify ") ? 1 : 0;
  }
  return watches;
}

TEST_F(LegacyMonitorTest, OfLockFilesThatWereRemovedAndAreStillOpenAFewAreWatched) {
  auto monitor = Watch();
  std::deque<OwnedFd> open_files;
  for (int i = 0; i < 12; ++i) {
    open_files.emplace_back(open(kLock, O_RDONLY | O_CREAT, 0600));
    Drain(*monitor);
    ASSERT_EQ(unlink(kLock), 0);
    EXPECT_LE(Watches(*monitor), 6U) << "the directory, and five files at most";
  }
  ChangeUnheard("USER");
  Drain(*monitor);
  open_files.pop_back();
  EXPECT_EQ(Seen(*monitor), 1U) << "the newest one's program might have changed something";
}

TEST_F(LegacyMonitorTest, ARemovedLockFileIsWatchedUntilItsLastProgramEnds) {
  Touch();
  auto monitor = Watch();
  OwnedFd first(open(kLock, O_RDONLY));
  OwnedFd second(open(kLock, O_RDONLY));
  ASSERT_EQ(unlink(kLock), 0);
  Drain(*monitor);
  first.Close();
  Drain(*monitor);
  // Further ones are made and removed, and take no place.
  for (int i = 0; i < 8; ++i) {
    Touch();
    Drain(*monitor);
    ASSERT_EQ(unlink(kLock), 0);
    Drain(*monitor);
  }
  // Nor does one file that many programs use.
  for (int i = 0; i < 8; ++i) {
    Touch();
    Drain(*monitor);
  }
  ChangeUnheard("USER");
  Drain(*monitor);
  second.Close();
  EXPECT_EQ(Seen(*monitor), 1U);
}

TEST_F(LegacyMonitorTest, SeesAWriterOfAShortLivedLockFile) {
  auto monitor = Watch();
  for (int i = 0; i < 50; ++i) {
    // Made, used and closed before the monitor can watch it.
    MustRun({"iptables-legacy", "-N", absl::StrCat("A", i)});
    ASSERT_EQ(unlink(kLock), 0);
    EXPECT_EQ(Seen(*monitor), 1U) << i;
  }
}

TEST_F(LegacyMonitorTest, SeesWritersThroughABindMount) {
  ASSERT_EQ(mkdir("/run/host", 0755), 0);
  std::ofstream{"/run/host/xtables.lock"};
  std::ofstream{kLock};
  ASSERT_EQ(mount("/run/host/xtables.lock", kLock, nullptr, MS_BIND, nullptr), 0);
  auto monitor = Watch();
  MustRun({"env", "XTABLES_LOCKFILE=/run/host/xtables.lock", "iptables-legacy", "-N", "USER"});
  EXPECT_EQ(Seen(*monitor), 1U);
}

TEST_F(LegacyMonitorTest, FollowsADirectoryThatIsReplaced) {
  ASSERT_EQ(mkdir("/run/a", 0755), 0);
  const std::string lock = "/run/a/xtables.lock";
  auto monitor = Watch(lock);
  ASSERT_EQ(mkdir("/run/b", 0755), 0);
  ASSERT_EQ(rename("/run/a", "/run/old"), 0);
  ASSERT_EQ(rename("/run/b", "/run/a"), 0);
  EXPECT_EQ(Seen(*monitor), 0U);
  MustRun({"env", "XTABLES_LOCKFILE=" + lock, "iptables-legacy", "-N", "USER"});
  EXPECT_EQ(Seen(*monitor), 1U);
  ASSERT_EQ(std::filesystem::remove_all("/run/a"), 2U);
  EXPECT_THAT(monitor->Drain(), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(LegacyMonitorTest, GivesTheRemedyWhereThereIsNothingToWatch) {
  std::ofstream{"/run/file"};
  for (const std::string lock : {"/run/none/xtables.lock", "/run/file/xtables.lock"}) {
    EXPECT_THAT(Open(lock), StatusIs(absl::StatusCode::kNotFound, HasSubstr("hostPath")));
  }
}

TEST_F(LegacyMonitorTest, DoesNotWakeForWhatElseHappensInTheDirectory) {
  std::ofstream{kLock};
  auto monitor = Watch();
  std::ofstream{"/run/present"} << "x";
  Drain(*monitor);
  std::ofstream{"/run/present"} << "y";
  std::ifstream{"/run/present"}.get();
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator("/run"), {}), 2);
  EXPECT_FALSE(Wakes(*monitor));
}

TEST_F(LegacyMonitorTest, CountsAnOverflowAsAChange) {
  auto monitor = Watch();
  for (int i = 0; i < 40000; ++i) {
    ASSERT_EQ(mkdir("/run/x", 0755), 0);
    ASSERT_EQ(rmdir("/run/x"), 0);
    // One in between, since the kernel merges equal events.
    if (i % 2 == 0) std::ofstream{"/run/y"};
    if (i % 2 == 0) unlink("/run/y");
  }
  const RulesetChanges changes = Drain(*monitor);
  EXPECT_EQ(changes.count, 1U);
  EXPECT_EQ(changes.lost, 1U);
  EXPECT_EQ(Seen(*monitor), 0U);
  MustRun({"iptables-legacy", "-N", "USER"});
  EXPECT_EQ(Seen(*monitor), 1U);
}

TEST_F(LegacyMonitorTest, NamesThatCannotBeReadAreAnError) {
  ASSERT_EQ(mkdir("/run/names", 0755), 0);
  EXPECT_THAT(Open(kLock, "/run/names").status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("cannot read /run/names")));
}

// As where the module was removed and has come back.
TEST_F(LegacyMonitorTest, AFileOfNamesThatCanNoLongerBeReadIsOpenedAgain) {
  const pid_t child = StartPausedChild();
  std::filesystem::create_symlink(absl::StrCat("/proc/", child, "/comm"), "/run/names");
  auto monitor = Open(kLock, "/run/names");
  EXPECT_THAT(monitor, IsOk());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_EQ(unlink("/run/names"), 0);
  std::ofstream{"/run/names"};
  Touch();
  EXPECT_THAT((*monitor)->Drain(), IsOk());
}

TEST_F(LegacyMonitorTest, NamesOfAnotherNetworkNamespaceAreNotRead) {
  std::ofstream{"/run/dev"};
  auto monitor = Open(kLock, "/run/names");
  ASSERT_THAT(monitor, IsOk());
  std::ofstream{"/run/names"};
  ASSERT_EQ(unshare(CLONE_NEWNET), 0);
  Touch();
  EXPECT_THAT((*monitor)->Drain().status(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace kipt::testing
