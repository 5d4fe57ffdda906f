// SPDX-License-Identifier: Apache-2.0
//
// The keepers of kubelet's chains: a kubelet, against captured calls, and the agent in its place.
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/skew/selftest/actor_fixture.h"
#include "tests/skew/selftest/captured_fixtures.h"
#include "tests/support/lock_holder.h"
#include "tests/support/matchers.h"
#include "tests/support/run_program.h"

namespace kipt::skew {
namespace {

using testing::ProgramResult;

TEST(KubeletActorTest, From1_21ItGivesUpOnAFamilyWhoseFirstSyncFailed) {
  const IptablesChoice missing = {.chroot_dir = "/nonexistent"};
  const std::unique_ptr<NodeAgent> newer =
      NewKubelet({.version = KubeletOf(21), .iptables = missing});
  EXPECT_THAT(newer->Start().error,
              AllOf(HasSubstr("ipv4: "), HasSubstr("ipv6: "), Not(HasSubstr("canary"))));
  EXPECT_TRUE(Went(newer->Tick()));
  const std::unique_ptr<NodeAgent> older =
      NewKubelet({.version = KubeletOf(19), .iptables = missing});
  EXPECT_THAT(older->Start().error, HasSubstr("canary"));
  EXPECT_FALSE(older->Tick().ok);
}

std::vector<std::string> Captured(int minor, const std::string& kind, const std::string& step) {
  return CapturedCalls(absl::StrCat("actors/testdata/kubelet-1.", minor, "-", kind, ".commands"),
                       step);
}

// Families run at the same time in the real one: of each the order is held.
void ExpectCalls(const std::vector<std::string>& calls, const std::vector<std::string>& captured) {
  for (const char* program : {"iptables", "ip6tables"}) {
    EXPECT_EQ(CallsIn(calls, program), CallsIn(captured, program));
  }
}

std::vector<std::string> Both(const Act& first, const Act& then) {
  std::vector<std::string> calls = first.calls;
  calls.insert(calls.end(), then.calls.begin(), then.calls.end());
  return calls;
}

// Of each generation since 1.31, argument for argument.
class CapturedKubeletTest : public testing::AgentTest, public ::testing::WithParamInterface<int> {
 protected:
  static std::unique_ptr<NodeAgent> New(IptablesMode mode) {
    return NewKubelet({.version = KubeletOf(GetParam()), .iptables = {.mode = mode}});
  }
  static void Empty(IptablesMode mode, const char* table) {
    EXPECT_TRUE(Went(Flush({.mode = mode}, {table})));
  }
};

TEST_P(CapturedKubeletTest, StartsAndStartsAgain) {
  for (const char* step : {"start", "restart"}) {
    ExpectCalls(New(IptablesMode::kNft)->Start().calls, Captured(GetParam(), "nft.start", step));
  }
}

// Its hostile neighbour: rules in `ip nat` that iptables-nft cannot read.
TEST_P(CapturedKubeletTest, From1_33LosesAFamilyOfWhichItCannotReadNat) {
  const ProgramResult native = testing::RunProgram(
      {"/usr/sbin/nft", "-f", "-"},
      "add table ip nat\n"
      "add chain ip nat OUTPUT { type nat hook output priority -100; }\n"
      "add chain ip nat POSTROUTING { type nat hook postrouting priority 100; }\n"
      "add rule ip nat OUTPUT ip daddr { 192.0.2.1, 192.0.2.2 } counter\n"
      "add rule ip nat POSTROUTING meta mark 0x77 masquerade fully-random,persistent\n");
  ASSERT_EQ(native.exit_code, 0) << native;
  const std::unique_ptr<NodeAgent> kubelet = New(IptablesMode::kNft);
  const Act started = kubelet->Start();
  EXPECT_TRUE(Went(started)) << "it logs nothing";
  ExpectCalls(Both(started, kubelet->Tick()), Captured(GetParam(), "nft.native", "native"));
  const bool lost = GetParam() >= 33;
  const testing::Iptables v4;
  EXPECT_EQ(v4.Run({"-S", "KUBE-FIREWALL"}).exit_code != 0, lost) << "no martian rule in IPv4";
  if (!lost) return;
  // Permanently: it needs a restart after the rules are removed.
  ASSERT_EQ(testing::RunProgram({"/usr/sbin/nft", "delete table ip nat"}).exit_code, 0);
  EXPECT_TRUE(Went(kubelet->Tick()));
  EXPECT_NE(v4.Run({"-S", "KUBE-FIREWALL"}).exit_code, 0);
  EXPECT_TRUE(Went(New(IptablesMode::kNft)->Start()));
  EXPECT_EQ(v4.Run({"-S", "KUBE-FIREWALL"}).exit_code, 0);
}

TEST_P(CapturedKubeletTest, StartsWhileAnotherHoldsTheLock) {
  const testing::LockHolder holder("/run/xtables.lock", absl::Seconds(12));
  const std::unique_ptr<NodeAgent> kubelet = New(IptablesMode::kLegacy);
  ExpectCalls(kubelet->Start().calls, Captured(GetParam(), "legacy.locked", "locked"));
  EXPECT_THAT(kubelet->Tick().calls, IsEmpty()) << "it never tries again";
}

TEST_P(CapturedKubeletTest, WatchesItsCanaryAndFrom1_34TakesALockForALostOne) {
  const IptablesMode mode = IptablesMode::kLegacy;
  const std::unique_ptr<NodeAgent> kubelet = New(mode);
  ExpectCalls(kubelet->Start().calls, Captured(GetParam(), "legacy.monitor", "start"));
  EXPECT_TRUE(Went(Flush({.mode = mode})));
  ExpectCalls(kubelet->Tick().calls, Captured(GetParam(), "legacy.monitor", "flush"));
  Empty(mode, "nat");
  Empty(mode, "filter");
  ExpectCalls(kubelet->Tick().calls, Captured(GetParam(), "legacy.monitor", "natlost"));
  // Families take turns here: in IPv6 the lock is free again.
  const testing::LockHolder holder("/run/xtables.lock", absl::Seconds(17));
  EXPECT_EQ(CallsIn(kubelet->Tick().calls, "iptables"),
            CallsIn(Captured(GetParam(), "legacy.monitor", "locked"), "iptables"));
  const testing::Iptables v4 = {.mode = mode};
  EXPECT_EQ(v4.Run({"-w", "30", "-S", "KUBE-FIREWALL"}).exit_code == 0, GetParam() >= 34)
      << "it heals what the emptied tables lost";
}

INSTANTIATE_TEST_SUITE_P(Generations, CapturedKubeletTest, ::testing::Values(32, 33, 34),
                         [](const auto& row) { return absl::StrCat("V1_", row.param); });

class AgentDaemonActorTest : public ActorTest {
 protected:
  static AgentDaemonSettings As(const KubeletVersion& version) {
    return {.program = AgentProgram(), .version = version, .mode = GetParam()};
  }
};

TEST_P(AgentDaemonActorTest, DoesNotSettleWhileItCannotPutThingsRight) {
  const std::unique_ptr<NodeAgent> agent = NewAgentDaemon(As(KubeletOf(24)));
  EXPECT_TRUE(Went(agent->Start()));
  // As one that hangs.
  const pid_t pid = [] {
    const testing::ProgramResult found = testing::RunProgram(
        {"/usr/bin/pgrep", "--parent", std::to_string(getpid()), "kube-iptables"});
    return static_cast<pid_t>(std::atoi(found.out.c_str()));
  }();
  ASSERT_GT(pid, 0);
  kill(pid, SIGSTOP);
  EXPECT_TRUE(Went(Flush(Choice(), {"nat"})));
  const Act settled = agent->Settle();
  EXPECT_FALSE(settled.ok);
  EXPECT_THAT(settled.error, AllOf(HasSubstr("not settled"), HasSubstr("KUBE-MARK-DROP")));
  kill(pid, SIGCONT);
  EXPECT_TRUE(Went(agent->Settle()));
  EXPECT_TRUE(Saved(V4()).HasChain("nat", "KUBE-MARK-DROP"));
}

TEST_P(AgentDaemonActorTest, RetiresWhatIsStaleWhenAMinuteIsOver) {
  const std::unique_ptr<NodeAgent> agent = NewAgentDaemon(As(KubeletOf(28)));
  EXPECT_TRUE(Went(agent->Start()));
  StartKubelet(26);
  EXPECT_TRUE(Went(agent->Settle()));
  EXPECT_TRUE(Saved(V4()).HasChain("nat", "KUBE-MARK-DROP"));
  EXPECT_THAT(agent->Tick().done, Contains(StartsWith("Retired ")));
  EXPECT_FALSE(Saved(V4()).HasChain("nat", "KUBE-MARK-DROP"));
}

INSTANTIATE_TEST_SUITE_P(Modes, AgentDaemonActorTest, ::testing::ValuesIn(testing::kBothModes),
                         ModeName);

}  // namespace
}  // namespace kipt::skew
