// SPDX-License-Identifier: Apache-2.0
//
// Failure as a normal state: what fails is retried, reported once, and not ready; the rest works
// on.
#include "tests/interop/daemon_fixture.h"
#include "tests/support/lock_holder.h"

namespace kipt::testing {
namespace {

const AgentSettings kLegacyIptables{.iptables = IptablesMode::kLegacy};

constexpr char kLegacyProgram[] = "/usr/sbin/xtables-legacy-multi";

class DaemonFailureTest : public DaemonTest {
 protected:
  void StartLegacy() {
    std::vector<std::string> flags = kLegacyIptables.Flags();
    flags.push_back("--iptables-sync-period=2s");
    StartOnly(flags);
  }
};

TEST_F(DaemonFailureTest, AProgramThatIsMissingIsWaitedFor) {
  InPlaceOf missing("/dev/null", kLegacyProgram);
  StartLegacy();
  ASSERT_TRUE(daemon().Prints("ip is failed: ")) << daemon().Output();
  EXPECT_EQ(HttpGet(kHealthPort, "/readyz").status, 503);
  EXPECT_THAT(Readyz(), HasSubstr("[-]ip failed: since "));
  EXPECT_EQ(HttpGet(kHealthPort, "/livez").status, 200);
  absl::SleepFor(absl::Seconds(1));
  EXPECT_EQ(CountOf("ip is failed: ", daemon().Output()), 1) << "once, not at each attempt";
  missing.Undo();
  EXPECT_TRUE(BecomesReady()) << Readyz();
  EXPECT_TRUE(daemon().Prints("ip is in place"));
}

TEST_F(DaemonFailureTest, AnOverlongLockIsReportedWithItsHolderAndAwaited) {
  {
    const LockHolder holder("/run/xtables.lock", absl::Minutes(1));
    StartLegacy();
    ASSERT_TRUE(daemon().Prints("ip is failed: ")) << daemon().Output();
    EXPECT_THAT(Readyz(), HasSubstr("xtables.lock"));
    EXPECT_THAT(Readyz(), HasSubstr(std::to_string(holder.pid())));
  }
  EXPECT_TRUE(BecomesReady()) << Readyz();
  EXPECT_GE(Metric("kube_iptables_agent_lock_wait_seconds_count"), 1);
}

TEST_F(DaemonFailureTest, ATableThatIsNotHookedKeepsNothingElseFromBeingRepaired) {
  Output({"nft", "add table ip filter; add chain ip filter INPUT"});
  StartOnly({});
  ASSERT_TRUE(daemon().Prints("ip is failed: BaseChainNotHooked")) << daemon().Output();
  EXPECT_TRUE(daemon().Prints("ip6 is in place"));
  Output({"ip6tables-nft", "-t", "mangle", "-X", "KUBE-IPTABLES-HINT"});
  Output({"iptables-nft", "-t", "mangle", "-X", "KUBE-IPTABLES-HINT"});
  EXPECT_TRUE(MetricReaches("kube_iptables_agent_repair_latency_seconds_count", 2));
  EXPECT_THAT(Output({"nft", "list", "ruleset"}), HasSubstr("chain KUBE-IPTABLES-HINT"));
  EXPECT_THAT(Output({"nft", "list", "table", "ip", "filter"}), Not(HasSubstr("KUBE-FIREWALL")));
}

// The mode is decided at start: what it would be now only begins to count with the next one.
TEST_F(DaemonFailureTest, AHostWhoseProgramChangesIsRepairedUntilTheNextStartAndThenUnknown) {
  namespace fs = std::filesystem;
  const TemporaryFile host("");
  const fs::path programs = fs::path(host.directory()) / "host/usr/sbin";
  fs::create_directories(programs);
  for (const char* name : {"xtables-nft-multi", "xtables-legacy-multi"}) {
    std::ofstream(programs / name).close();
    fs::permissions(programs / name, fs::perms(0755));
  }
  for (const char* name : {"iptables", "ip6tables"}) {
    fs::create_symlink("xtables-nft-multi", programs / name);
  }
  const std::vector<std::string> flags = {"--iptables-mode=auto",
                                          "--host-root=" + host.directory() + "/host",
                                          "--iptables-sync-period=1s"};
  Start({}, flags);
  // As update-alternatives does.
  for (const char* name : {"iptables", "ip6tables"}) {
    fs::create_symlink("xtables-legacy-multi", programs / "new");
    fs::rename(programs / "new", programs / name);
  }
  const std::string why =
      "cannot tell which iptables this node uses for ip: the host's iptables program selects "
      "legacy, but mangle KUBE-IPTABLES-HINT exists in nft";
  ASSERT_TRUE(daemon().Prints("Continuing with iptables nft until the next start: " + why))
      << daemon().Output();
  Output({"iptables-nft", "-F", "KUBE-FIREWALL"});
  EXPECT_TRUE(MetricReaches("kube_iptables_agent_repair_latency_seconds_count", 1));
  EXPECT_TRUE(IsReady()) << Readyz();
  absl::SleepFor(absl::Seconds(2));
  EXPECT_EQ(CountOf("Continuing with", daemon().Output()), 1) << "reported once";
  const std::string before = Output({"nft", "-s", "list", "ruleset"});
  StartOnly(flags);
  ASSERT_TRUE(daemon().Prints("ip is failed: " + why)) << daemon().Output();
  EXPECT_THAT(Readyz(), HasSubstr(why));
  EXPECT_EQ(HttpGet(kHealthPort, "/readyz").status, 503);
  EXPECT_EQ(Output({"nft", "-s", "list", "ruleset"}), before);
  EXPECT_EQ(Output({"iptables-legacy-save"}), "");
}

// Longer than a program may take.
class DaemonHangLongTest : public DaemonFailureTest {};

TEST_F(DaemonHangLongTest, AHangingProgramIsKilledAndReported) {
  const TemporaryFile hanging("#!/bin/sh\nexec setpriv --pdeathsig KILL sleep 1000\n");
  std::filesystem::permissions(hanging.path(), std::filesystem::perms(0755));
  Start(kLegacyIptables, {"--iptables-sync-period=2s"});
  {
    InPlaceOf instead(hanging.path(), kLegacyProgram);
    ASSERT_TRUE(daemon().Prints("ip is failed: ", 1, absl::Minutes(2))) << daemon().Output();
    EXPECT_THAT(daemon().Output(), HasSubstr("did not end"));
    EXPECT_EQ(HttpGet(kHealthPort, "/livez").status, 200);
    EXPECT_EQ(HttpGet(kHealthPort, "/readyz").status, 503);
  }
  EXPECT_TRUE(WaitUntil(IsReady, absl::Minutes(2))) << Readyz();
  EXPECT_EQ(RunProgram({"pgrep", "--parent", std::to_string(daemon().pid())}).out, "")
      << "no program is left running";
}

}  // namespace
}  // namespace kipt::testing
