// SPDX-License-Identifier: Apache-2.0
//
// The monitor of iptables-legacy where a system call fails, or its files change under it.
#include <fcntl.h>
#include <netinet/in.h>
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
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/process/files.h"
#include "tests/kernel/iptables_legacy_monitor_fixture.h"
#include "tests/support/child.h"
#include "tests/support/failing_call.h"
#include "tests/support/matchers.h"

namespace {

// What becomes of each getsockopt(2) that reads rules. Nothing: the kernel's answer.
std::function<int(int result, void* value)>& OnRules() {
  static std::function<int(int, void*)> on_rules;
  return on_rules;
}

}  // namespace

extern "C" int getsockopt(int fd, int level, int option, void* value, socklen_t* size) noexcept {
  const auto result = static_cast<int>(syscall(SYS_getsockopt, fd, level, option, value, size));
  constexpr int kGetEntries = 65;  // IPT_SO_GET_ENTRIES, IP6T_SO_GET_ENTRIES
  const bool reads_rules = (level == SOL_IP || level == SOL_IPV6) && option == kGetEntries;
  return reads_rules && OnRules() ? OnRules()(result, value) : result;
}

namespace kipt::testing::iptables_legacy_monitor_fault_test {
namespace {

using agent::IptablesLegacyOptions;
using agent::OwnedFd;
using LegacyMonitorLockTest = LegacyMonitorTest;

class LegacyMonitorFaultTest : public LegacyMonitorTest {
 protected:
  void SetUp() override {
    LegacyMonitorTest::SetUp();
    std::ofstream{kLock};
  }
  void TearDown() override { OnRules() = nullptr; }

  static absl::Status Watching() {
    return agent::NewIptablesLegacyMonitor(kLock, IptablesLegacyOptions().table_names_path)
        .status();
  }
  // Another program's change of the rules, which nobody hears.
  static void ChangeUnheard(const std::string& chain) {
    ASSERT_EQ(setenv("XTABLES_LOCKFILE", "/run/private", 1), 0);
    MustRun({"iptables-legacy", "-N", chain});
    ASSERT_EQ(unsetenv("XTABLES_LOCKFILE"), 0);
  }
  static void Touch() { OwnedFd(open(kLock, O_RDONLY)).Close(); }
};

// ---- system calls that fail ----

struct WatchFault {
  std::string name;
  FailingCall failing;
  absl::StatusCode code = absl::StatusCode::kResourceExhausted;
};
constexpr uint32_t kDirectory =
    IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
constexpr uint32_t kFile = IN_CLOSE_NOWRITE | IN_CLOSE_WRITE;
FailingCall Add(uint32_t events, uint32_t error) {
  return {.number = SYS_inotify_add_watch, .argument = 2, .value = events, .error = error};
}
const WatchFault kWatchFaults[] = {
    {"no instance",
     {.number = SYS_inotify_init1,
      .argument = 0,
      .value = IN_CLOEXEC | IN_NONBLOCK,
      .error = EMFILE}},
    {"no watch of the directory", Add(kDirectory, ENOSPC)},
    {"no watch of the file", Add(kFile, ENOSPC)},
    {"no permission for the file", Add(kFile, EACCES), absl::StatusCode::kPermissionDenied},
};

TEST_F(LegacyMonitorFaultTest, AWatchThatIsRefusedIsReported) {
  for (const WatchFault& row : kWatchFaults) {
    absl::Status status;
    WithFailingCall(row.failing, [&] { status = Watching(); });
    EXPECT_THAT(status, StatusIs(row.code)) << row.name;
  }
}

TEST_F(LegacyMonitorFaultTest, ADirectoryThatMayNotBeReadIsReportedWhereTheFileIsMissing) {
  ASSERT_EQ(unlink(kLock), 0);
  absl::Status status;
  WithFailingCall(Add(kDirectory, EACCES), [&] { status = Watching(); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(LegacyMonitorFaultTest, EventsThatCannotBeReadAreAnError) {
  auto monitor = Watch();
  ASSERT_EQ(dup2(OwnedFd(open("/dev/null", O_WRONLY)).get(), monitor->fd()), monitor->fd());
  EXPECT_THAT(monitor->Drain(), Not(IsOk()));
}

TEST_F(LegacyMonitorFaultTest, RulesThatAreNoneAreAnError) {
  MustRun({"iptables-legacy", "-N", "USER"});
  OnRules() = [](int result, void* value) {
    // struct ipt_get_entries: a name and a size, then the first rule; its size is at 90.
    std::memset(static_cast<char*>(value) + 40 + 90, 0, 2);
    return result;
  };
  EXPECT_THAT(Watching(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no whole rule")));
}

TEST_F(LegacyMonitorFaultTest, RulesThatCouldNotBeReadMayHaveChanged) {
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

// ---- what is watched ----

TEST_F(LegacyMonitorFaultTest, ALockWithoutADirectoryIsInTheCurrentOne) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path("/run");
  auto monitor = Watch("xtables.lock");
  std::filesystem::current_path(before);
  ASSERT_NE(monitor, nullptr);
  MustRun({"iptables-legacy", "-N", "USER"});
  EXPECT_EQ(Seen(*monitor), 1U);
}

TEST_F(LegacyMonitorFaultTest, AReaderOfTheLockFileIsNotHeard) {
  std::ofstream{kLock} << "text";
  auto monitor = Watch();
  const OwnedFd file(open(kLock, O_RDWR));
  char byte = 0;
  ASSERT_EQ(read(file.get(), &byte, 1), 1);
  EXPECT_FALSE(Wakes(*monitor));
}

TEST_F(LegacyMonitorFaultTest, AProgramThatOpenedTheLockForWritingIsHeard) {
  auto monitor = Watch();
  OwnedFd file(open(kLock, O_RDWR));
  ChangeUnheard("USER");
  Drain(*monitor);
  file.Close();
  EXPECT_EQ(Seen(*monitor), 1U);
}

TEST_F(LegacyMonitorFaultTest, ALockFileThatIsMovedThereIsWatched) {
  ASSERT_EQ(unlink(kLock), 0);
  auto monitor = Watch();
  std::ofstream{"/run/new"};
  Drain(*monitor);
  ASSERT_EQ(rename("/run/new", kLock), 0);
  EXPECT_TRUE(Wakes(*monitor));
  Drain(*monitor);
  MustRun({"iptables-legacy", "-N", "USER"});
  EXPECT_EQ(Seen(*monitor), 1U);
}

TEST_F(LegacyMonitorFaultTest, ADirectoryThatWasReplacedIsNotHeard) {
  ASSERT_EQ(mkdir("/run/a", 0755), 0);
  auto monitor = Watch("/run/a/xtables.lock");
  ASSERT_EQ(rename("/run/a", "/run/old"), 0);
  ASSERT_EQ(mkdir("/run/a", 0755), 0);
  Drain(*monitor);
  Drain(*monitor);
  std::ofstream{"/run/old/xtables.lock"};
  EXPECT_FALSE(Wakes(*monitor));
}

// Of each inotify watch a line.
size_t Watches(const netlink::Monitor& monitor) {
  std::ifstream file(absl::StrCat("/proc/self/fdinfo/", monitor.fd()));
  size_t watches = 0;
  for (std::string line; std::getline(file, line);) {
    watches += absl::StartsWith(line, "inotify ") ? 1 : 0;
  }
  return watches;
}

TEST_F(LegacyMonitorFaultTest, OfLockFilesThatWereRemovedAndAreStillOpenAFewAreWatched) {
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

TEST_F(LegacyMonitorFaultTest, ARemovedLockFileIsWatchedUntilItsLastProgramEnds) {
  auto monitor = Watch();
  OwnedFd first(open(kLock, O_RDONLY));
  OwnedFd second(open(kLock, O_RDONLY));
  ASSERT_EQ(unlink(kLock), 0);
  Drain(*monitor);
  first.Close();
  Drain(*monitor);
  // More come and go, and take no place.
  for (int i = 0; i < 8; ++i) {
    OwnedFd(open(kLock, O_RDONLY | O_CREAT, 0600)).Close();
    Drain(*monitor);
    ASSERT_EQ(unlink(kLock), 0);
    Drain(*monitor);
  }
  // Nor does one file that many programs use.
  for (int i = 0; i < 8; ++i) {
    OwnedFd(open(kLock, O_RDONLY | O_CREAT, 0600)).Close();
    Drain(*monitor);
  }
  ChangeUnheard("USER");
  Drain(*monitor);
  second.Close();
  EXPECT_EQ(Seen(*monitor), 1U);
}

// ---- the lock, whatever becomes of its file ----

TEST_F(LegacyMonitorLockTest, FollowsTheLockFileThatIsRemovedAndMadeAgain) {
  auto monitor = Watch();
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    MustRun({"iptables-legacy", "-N", absl::StrCat("A", i)});
    EXPECT_EQ(Seen(*monitor), 1U);
    ASSERT_EQ(i % 2 == 0 ? unlink(kLock) : rename(kLock, "/run/old"), 0);
    EXPECT_EQ(Seen(*monitor), 0U);
  }
}

TEST_F(LegacyMonitorLockTest, SeesAWriterWhoseLockFileCameAndWent) {
  auto monitor = Watch();
  for (int i = 0; i < 50; ++i) {
    // Made, used and closed before anybody comes to watch it.
    MustRun({"iptables-legacy", "-N", absl::StrCat("A", i)});
    ASSERT_EQ(unlink(kLock), 0);
    EXPECT_EQ(Seen(*monitor), 1U) << i;
  }
}

TEST_F(LegacyMonitorLockTest, SeesWritersBehindABindMount) {
  ASSERT_EQ(mkdir("/run/host", 0755), 0);
  std::ofstream{"/run/host/xtables.lock"};
  std::ofstream{kLock};
  ASSERT_EQ(mount("/run/host/xtables.lock", kLock, nullptr, MS_BIND, nullptr), 0);
  auto monitor = Watch();
  ASSERT_EQ(setenv("XTABLES_LOCKFILE", "/run/host/xtables.lock", 1), 0);
  MustRun({"iptables-legacy", "-N", "USER"});
  ASSERT_EQ(unsetenv("XTABLES_LOCKFILE"), 0);
  EXPECT_EQ(Seen(*monitor), 1U);
}

TEST_F(LegacyMonitorLockTest, FollowsADirectoryThatIsReplaced) {
  ASSERT_EQ(mkdir("/run/a", 0755), 0);
  const std::string lock = "/run/a/xtables.lock";
  auto monitor = Watch(lock);
  ASSERT_EQ(mkdir("/run/b", 0755), 0);
  ASSERT_EQ(rename("/run/a", "/run/old"), 0);
  ASSERT_EQ(rename("/run/b", "/run/a"), 0);
  EXPECT_EQ(Seen(*monitor), 0U);
  ASSERT_EQ(setenv("XTABLES_LOCKFILE", lock.c_str(), 1), 0);
  MustRun({"iptables-legacy", "-N", "USER"});
  ASSERT_EQ(unsetenv("XTABLES_LOCKFILE"), 0);
  EXPECT_EQ(Seen(*monitor), 1U);
  ASSERT_EQ(std::filesystem::remove_all("/run/a"), 2U);
  EXPECT_THAT(monitor->Drain(), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(LegacyMonitorLockTest, SaysWhatToDoWhereThereIsNothingToWatch) {
  std::ofstream{"/run/file"};
  for (const std::string lock : {"/run/none/xtables.lock", "/run/file/xtables.lock"}) {
    EXPECT_THAT(agent::NewIptablesLegacyMonitor(lock, IptablesLegacyOptions().table_names_path),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("hostPath")));
  }
}

TEST_F(LegacyMonitorLockTest, DoesNotWakeForWhatElseHappensInTheDirectory) {
  std::ofstream{kLock};
  auto monitor = Watch();
  std::ofstream{"/run/present"} << "x";
  Drain(*monitor);
  std::ofstream{"/run/present"} << "y";
  std::ifstream{"/run/present"}.get();
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator("/run"), {}), 2);
  EXPECT_FALSE(Wakes(*monitor));
}

TEST_F(LegacyMonitorLockTest, CountsAnOverflowAsAChange) {
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

// ---- the names of the tables ----

TEST_F(LegacyMonitorFaultTest, NamesThatCannotBeReadAreAnError) {
  ASSERT_EQ(mkdir("/run/names", 0755), 0);
  EXPECT_THAT(agent::NewIptablesLegacyMonitor(kLock, "/run/names").status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("cannot read /run/names")));
}

// As where the module was removed and has come back.
TEST_F(LegacyMonitorFaultTest, AFileOfNamesThatCanNoLongerBeReadIsOpenedAgain) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    DieWithParent(parent);
    pause();
    _exit(0);
  }
  std::filesystem::create_symlink(absl::StrCat("/proc/", child, "/comm"), "/run/names");
  auto monitor = agent::NewIptablesLegacyMonitor(kLock, "/run/names");
  EXPECT_THAT(monitor, IsOk());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_EQ(unlink("/run/names"), 0);
  std::ofstream{"/run/names"};
  Touch();
  EXPECT_THAT((*monitor)->Drain(), IsOk());
}

TEST_F(LegacyMonitorFaultTest, NamesOfAnotherNetworkNamespaceAreNotRead) {
  std::ofstream{"/run/dev"};
  auto monitor = agent::NewIptablesLegacyMonitor(kLock, "/run/names");
  ASSERT_THAT(monitor, IsOk());
  std::ofstream{"/run/names"};
  ASSERT_EQ(unshare(CLONE_NEWNET), 0);
  Touch();
  EXPECT_THAT((*monitor)->Drain().status(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace kipt::testing::iptables_legacy_monitor_fault_test
