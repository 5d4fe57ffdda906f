// SPDX-License-Identifier: Apache-2.0
//
// What the monitor of legacy iptables sees of the lock, whatever becomes of its file.
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "agent/xtables/iptables_legacy_monitor.h"
#include "netlink/backend.h"
#include "tests/kernel/iptables_legacy_monitor_fixture.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using agent::IptablesLegacyOptions;
using netlink::RulesetChanges;
using LegacyMonitorLockTest = LegacyMonitorTest;

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

}  // namespace
}  // namespace kipt::testing
