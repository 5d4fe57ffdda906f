// SPDX-License-Identifier: Apache-2.0
//
// The configuration file changes under a running daemon; and `run --observe`, the daemon as a
// packaged unit first starts it: it shows what it would do, and does it when the file allows it.
#include "tests/interop/daemon_fixture.h"
#include "tests/interop/notify_socket.h"
#include "tests/support/in_place_of.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

constexpr char kLegacyMode[] = "featureGates: {IPTablesOwnershipCleanup: false}\n";

class DaemonReloadTest : public DaemonTest {
 protected:
  void Write(const std::string& more) const { WriteTo(file_.path(), more); }
  static void WriteTo(const std::string& path, const std::string& more) {
    std::ofstream(path) << kConfigHead << more;
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

// The package's unit and the manifests give no --config.
TEST_F(DaemonReloadTest, AnObserverWritesNothingWhileItsFileIsReplaced) {
  const TemporaryTree etc;
  MustRun({"cp", "-a", "/etc/.", etc.root()});
  etc.Directory("kube-iptables-agent");
  const InPlaceOf in_place(etc.root(), "/etc");
  const std::string path = "/etc/kube-iptables-agent/config.yaml";
  WriteTo(path, "observe: true\n");
  StartWith({});
  std::filesystem::rename(path, path + "~");
  EXPECT_TRUE(daemon().Prints(path + " is gone; write it again")) << daemon().Output();
  EXPECT_EQ(Output({"nft", "list", "ruleset"}), "");
  WriteTo(path, "");
  EXPECT_TRUE(BecomesClean({})) << daemon().Output();
}

TEST_F(DaemonReloadTest, ASettingThatIsFixedAtStartEndsItAndIsNamed) {
  NotifySocket manager;
  ASSERT_TRUE(manager.bound());
  Write("");
  StartOnly({"--config=" + file_.path()}, {manager.Variable()});
  ASSERT_TRUE(BecomesReady()) << daemon().Output();
  Write("watch: poll\n");
  EXPECT_EQ(daemon().Wait(), kExitFailed);
  EXPECT_TRUE(manager.Receives("STATUS=must restart: fixed at start, and changed"))
      << manager.Received();
  EXPECT_THAT(daemon().Output(), HasSubstr("Ending, to be restarted: fixed at start, and changed"));
  EXPECT_THAT(daemon().Output(), HasSubstr("watch"));
  EXPECT_EQ(Agent("plan", {}).exit_code, kExitOk) << "the rules stay";
}

// A start refuses to write where both modes have a hint.
TEST_F(DaemonReloadTest, WritesNothingWhereAStartWouldNotKnowTheMode) {
  MustRun({"iptables-legacy", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"});
  MustRun({"iptables-nft", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"});
  const std::string before = Output({"nft", "list", "ruleset"});
  Write("makeIPTablesUtilChains: false\n");
  // A host without iptables, which would decide.
  StartOnly({"--config=" + file_.path(), "--host-root=" + file_.directory()});
  ASSERT_TRUE(BecomesReady()) << daemon().Output();
  Write("makeIPTablesUtilChains: true\n");
  EXPECT_EQ(daemon().Wait(), kExitFailed);
  EXPECT_THAT(daemon().Output(), HasSubstr("a start must decide the iptables mode again"));
  EXPECT_EQ(Output({"nft", "list", "ruleset"}), before);
}

// It takes CAP_SYS_PTRACE to see another process's root, and the daemon has dropped it by then.
TEST_F(DaemonReloadTest, TheHostsRootIsExaminedOnlyAtStart) {
  Write("");
  StartWith({"--config=" + file_.path(), absl::StrCat("--host-root=/proc/", getpid(), "/root")});
  Write(kLegacyMode);
  EXPECT_TRUE(BecomesLegacyMode()) << daemon().Output();
}

class DaemonObserveTest : public DaemonReloadTest {
 protected:
  static std::string Rules() { return RunProgram({"nft", "list", "ruleset"}).out; }
  static bool HasFirewall() {
    return RunProgram({"iptables-nft", "-S", "KUBE-FIREWALL"}).exit_code == 0;
  }
};

TEST_F(DaemonObserveTest, ReportsChangesAndMakesNone) {
  StartWith({"--observe"});
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

TEST_F(DaemonObserveTest, TheFileTurnsItIntoAnAgentThatWritesAndBack) {
  Write("observe: true\n");
  StartWith({"--config=" + file_.path()});
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

TEST_F(DaemonObserveTest, OneShotCommandsStillWrite) {
  Write("observe: true\n");
  EXPECT_EQ(RunProgram({AgentProgram(), "sync", "--config=" + file_.path()}).exit_code, 0);
  EXPECT_TRUE(HasFirewall());
}

}  // namespace
}  // namespace kipt::testing
