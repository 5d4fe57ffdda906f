// SPDX-License-Identifier: Apache-2.0
//
// The configuration file changes under a running daemon.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

constexpr char kLegacyMode[] = "featureGates: {IPTablesOwnershipCleanup: false}\n";

class DaemonReloadTest : public DaemonTest {
 protected:
  void Write(const std::string& more) const { WriteTo(file_.path(), more); }
  static void WriteTo(const std::string& path, const std::string& more) {
    std::ofstream(path) << kConfigHead << more;
  }
  // As most editors save: a new file takes the old one's place.
  void Replace(const std::string& more) const {
    const std::string beside = file_.path() + ".new";
    WriteTo(beside, more);
    ASSERT_EQ(rename(beside.c_str(), file_.path().c_str()), 0);
  }
  // Without the flags of AgentSettings, which would win over the file.
  void StartWith(const std::vector<std::string>& flags) {
    StartOnly(flags);
    ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  }
  void StartWithFile() {
    Write("");
    StartWith({"--config=" + file_.path()});
    ASSERT_FALSE(IsLegacyMode());
  }
  static bool IsLegacyMode() {
    return RunProgram({"iptables-nft", "-t", "nat", "-S", "KUBE-MARK-DROP"}).exit_code == 0;
  }
  static bool BecomesLegacyMode() { return WaitUntil(IsLegacyMode); }

  TemporaryFile file_{kConfigHead};
};

TEST_F(DaemonReloadTest, AFileWrittenInPlaceIsUsedWithinASecond) {
  StartWithFile();
  Write(kLegacyMode);
  EXPECT_TRUE(BecomesLegacyMode()) << daemon().Output();
  EXPECT_THAT(daemon().Output(),
              HasSubstr("Using the new configuration (the file has changed); featureGates: "));
  EXPECT_THAT(daemon().Output(), HasSubstr("; mode: legacy, was cleanup\n"));
  EXPECT_THAT(daemon().Output(), Not(HasSubstr("Repaired"))) << "nobody damaged anything";
}

TEST_F(DaemonReloadTest, AFileReplacedByAnEditorIsUsed) {
  StartWithFile();
  Replace(kLegacyMode);
  EXPECT_TRUE(BecomesLegacyMode()) << daemon().Output();
}

TEST_F(DaemonReloadTest, AFileThatIsReplacedAllTheTimeIsUsedAllTheSame) {
  StartWithFile();
  std::atomic<bool> ended = false;
  std::thread writer([&] {
    while (!ended) {
      Replace(kLegacyMode);
      absl::SleepFor(absl::Milliseconds(20));
    }
  });
  EXPECT_TRUE(WaitUntil(IsLegacyMode, absl::Seconds(5))) << daemon().Output();
  ended = true;
  writer.join();
}

TEST_F(DaemonReloadTest, AConfigMapVolumeThatIsSwappedIsUsed) {
  namespace fs = std::filesystem;
  const fs::path volume = file_.directory() + "/volume";
  fs::create_directories(volume / "..2026_1");
  fs::create_directories(volume / "..2026_2");
  WriteTo(volume / "..2026_1" / "config.yaml", "");
  WriteTo(volume / "..2026_2" / "config.yaml", kLegacyMode);
  fs::create_directory_symlink("..2026_1", volume / "..data");
  fs::create_symlink("..data/config.yaml", volume / "config.yaml");
  StartWith({"--config=" + (volume / "config.yaml").string()});
  ASSERT_FALSE(IsLegacyMode());
  // As kubelet does it.
  fs::create_directory_symlink("..2026_2", volume / "..data_tmp");
  fs::rename(volume / "..data_tmp", volume / "..data");
  EXPECT_TRUE(BecomesLegacyMode()) << daemon().Output();
}

TEST_F(DaemonReloadTest, SighupLoadsTheFileAgain) {
  StartWithFile();
  daemon().Signal(SIGHUP);
  EXPECT_TRUE(daemon().Prints("The configuration (SIGHUP) is unchanged"));
  EXPECT_TRUE(daemon().Running());
}

TEST_F(DaemonReloadTest, AWrongFileIsReportedAndTheOldOneStaysInForce) {
  StartWithFile();
  Write("iptablesDropBit: 77\n");
  EXPECT_TRUE(daemon().Prints("is invalid; the previous one stays in force")) << daemon().Output();
  EXPECT_THAT(daemon().Output(), HasSubstr("77 must be between 0 and 31"));
  EXPECT_TRUE(WaitUntil([] { return Readyz().find("not reloaded: ") != std::string::npos; }))
      << Readyz();
  EXPECT_TRUE(IsReady());
  Output({"nft", "flush", "ruleset"});
  EXPECT_TRUE(BecomesClean({})) << "the old configuration is kept in place";
  Write(kLegacyMode);
  EXPECT_TRUE(BecomesLegacyMode());
  EXPECT_THAT(Readyz(), Not(HasSubstr("not reloaded")));
}

TEST_F(DaemonReloadTest, ASettingThatIsFixedAtStartEndsItAndIsNamed) {
  StartWithFile();
  Write("watch: poll\n");
  EXPECT_EQ(daemon().Wait(), kExitFailed);
  EXPECT_THAT(daemon().Output(), HasSubstr("Ending, to be restarted: fixed at start, and changed"));
  EXPECT_THAT(daemon().Output(), HasSubstr("watch"));
  EXPECT_EQ(Agent("plan", {}).exit_code, kExitOk) << "the rules stay";
}

TEST_F(DaemonReloadTest, FlagsStayAboveTheFile) {
  Write("");
  StartWith({"--config=" + file_.path(), "--feature-gates=IPTablesOwnershipCleanup=true"});
  Write(kLegacyMode);
  EXPECT_TRUE(daemon().Prints("The configuration (the file has changed) is unchanged"))
      << daemon().Output();
  EXPECT_FALSE(IsLegacyMode());
}

TEST_F(DaemonReloadTest, BackAndForthLeavesWhatWasThereAndTellsItInMetrics) {
  StartWithFile();
  EXPECT_EQ(Metric("kubernetes_feature_enabled", "IPTablesOwnershipCleanup"), 1);
  Write(kLegacyMode);
  ASSERT_TRUE(BecomesLegacyMode());
  EXPECT_TRUE(WaitUntil(
      [] { return Metric("kubernetes_feature_enabled", "IPTablesOwnershipCleanup") == 0; }));
  Write("");
  EXPECT_TRUE(daemon().Prints("Using the new configuration", 2));
  EXPECT_TRUE(MetricReaches("kube_iptables_agent_stale_chains", 1))
      << "kept, as kubelet keeps them";
  EXPECT_TRUE(IsLegacyMode());
  EXPECT_TRUE(IsReady());
}

}  // namespace
}  // namespace kipt::testing
