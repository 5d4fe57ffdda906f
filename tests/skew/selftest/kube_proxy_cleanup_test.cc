// SPDX-License-Identifier: Apache-2.0
//
// `kube-proxy --cleanup`: what it leaves, held against the captures, and its hostile neighbours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/skew/actors/third_parties.h"
#include "tests/skew/selftest/actor_fixture.h"
#include "tests/skew/selftest/captured_fixtures.h"
#include "tests/support/background_program.h"
#include "tests/support/lock_holder.h"

namespace kipt::skew {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Arguments = std::vector<std::string>;

struct Neighbour {
  // Of the capture: ".cleanup", ".cleanup-masq".
  const char* capture;
  std::vector<Arguments> rules;
  // What the program reports: 1.31, and 1.34.
  bool ok_before;
  bool ok_since;
};

std::vector<Neighbour> Neighbours() {
  return {
      {"cleanup", {}, true, true},
      {"cleanup-masq",
       {{"-t", "nat", "-N", "CNI-OTHER"},
        {"-t", "nat", "-A", "CNI-OTHER", "-s", "10.180.0.0/16", "-d", "192.0.2.0/24", "-j",
         "KUBE-MARK-MASQ"},
        {"-t", "nat", "-A", "PREROUTING", "-j", "CNI-OTHER"}},
       true,
       false},
      {"cleanup-nodeports",
       {{"-t", "nat", "-A", "PREROUTING", "-i", "eth9", "-j", "KUBE-NODEPORTS"}},
       false,
       false},
      {"cleanup-oldinput",
       {{"-I", "INPUT", "-m", "conntrack", "--ctstate", "NEW", "-m", "comment", "--comment",
         "kubernetes service portals", "-j", "KUBE-SERVICES"}},
       false,
       false},
  };
}

class KubeProxyCleanupTest : public ActorTest {
 protected:
  static ProxyActorSettings As(int minor) {
    return {.version = {{1, minor}}, .iptables = Choice(), .pod_cidr_v4 = "10.180.0.0/16"};
  }
  static void StartBoth(int minor) {
    EXPECT_TRUE(Went(NewKubelet({.version = KubeletOf(minor), .iptables = Choice()})->Start()));
    const std::unique_ptr<ServiceProxy> proxy = NewKubeProxy(As(minor));
    EXPECT_TRUE(Went(proxy->Start(ServicesOf(Fixture::kA), {})));
  }
  static void Run(const Arguments& arguments) {
    const testing::ProgramResult result = V4().Run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result;
  }
};

TEST_P(KubeProxyCleanupTest, LeavesWhatTheRealOneLeft) {
  for (const int minor : {31, 33, 34, 36}) {
    for (const Neighbour& neighbour : Neighbours()) {
      SCOPED_TRACE(absl::StrCat("1.", minor, " ", neighbour.capture));
      StartBoth(minor);
      for (const Arguments& rule : neighbour.rules) Run(rule);
      const bool since = minor >= 34;
      for (int again = 0; again < 2; ++again) {
        const Act act = CleanUpKubeProxy(As(minor));
        EXPECT_EQ(act.ok, since ? neighbour.ok_since : neighbour.ok_before) << act.error;
        if (GetParam() != IptablesMode::kNft) continue;
        const std::string label = since ? "1.34-A-" : "1.31-A-";
        EXPECT_EQ(ComparableLines(V4().Save().out),
                  ComparableLines(
                      ReadOwnCapture(absl::StrCat(label, "v4.", neighbour.capture, ".save"))));
        EXPECT_EQ(ComparableLines(V6().Save().out),
                  ComparableLines(ReadOwnCapture(label + "v6.cleanup.save")));
      }
      EXPECT_TRUE(Went(FlushEverything(Choice())));
    }
  }
}

// The whole table is kept, and only its jumps are gone.
TEST_P(KubeProxyCleanupTest, From1_34AForeignJumpToKubeMarkMasqKeepsAllOfNat) {
  for (const int minor : {33, 34}) {
    StartBoth(minor);
    const Neighbour neighbour = Neighbours()[1];
    for (const Arguments& rule : neighbour.rules) Run(rule);
    const Act act = CleanUpKubeProxy(As(minor));
    EXPECT_EQ(act.ok, minor < 34) << act.error;
    EXPECT_EQ(Saved(V4()).HasChain("nat", "KUBE-SERVICES"), minor >= 34);
    EXPECT_TRUE(Saved(V4()).HasChain("nat", "KUBE-MARK-MASQ"));
    EXPECT_THAT(RulesIn(V4(), "nat", "POSTROUTING"), IsEmpty())
        << "nothing masquerades what is marked";
    EXPECT_TRUE(Went(FlushEverything(Choice())));
  }
}

// The lock is of iptables-legacy; on nft nobody takes it.
TEST_P(KubeProxyCleanupTest, From1_33ItDoesNothingWhileAnotherHoldsTheLockAndReportsSuccess) {
  StartBoth(33);
  const testing::SavedRules before = Saved(V4());
  const testing::LockHolder holder("/run/xtables.lock", absl::Seconds(12));
  EXPECT_TRUE(Went(CleanUpKubeProxy(As(33))));
  EXPECT_EQ(Saved(V4()) == before, GetParam() == IptablesMode::kLegacy);
}

// With the gate off the agent keeps the jump to KUBE-POSTROUTING. While that stands the kernel
// refuses to delete the chain, and with it all others of the table.
TEST_P(KubeProxyCleanupTest, FinishesNextToAnAgentThatThenPutsKubeletsChainsBack) {
  for (const int minor : {31, 33, 34, 36}) {
    SCOPED_TRACE(minor);
    const std::unique_ptr<NodeAgent> agent = NewAgentDaemon(
        {.program = AgentProgram(), .version = KubeletOf(27, false), .mode = GetParam()});
    ASSERT_TRUE(Went(agent->Start()));
    const testing::SavedRules before = Saved(V4());
    const testing::SavedRules before_v6 = Saved(V6());
    const std::unique_ptr<ServiceProxy> proxy = NewKubeProxy(As(minor));
    EXPECT_TRUE(Went(proxy->Start(ServicesOf(Fixture::kA), {})));
    EXPECT_TRUE(Went(CleanUpKubeProxy(As(minor))));
    EXPECT_FALSE(Saved(V4()).HasChain("nat", "KUBE-SERVICES"));
    EXPECT_FALSE(Saved(V6()).HasChain("nat", "KUBE-SERVICES"));
    EXPECT_TRUE(Went(agent->Settle()));
    for (const char* chain : {"POSTROUTING", "KUBE-POSTROUTING", "KUBE-MARK-MASQ"}) {
      EXPECT_EQ(RulesIn(V4(), "nat", chain), before.Rules("nat", chain)) << chain;
      EXPECT_EQ(RulesIn(V6(), "nat", chain), before_v6.Rules("nat", chain)) << chain;
    }
    EXPECT_TRUE(Went(agent->Stop()));
    EXPECT_TRUE(Went(FlushEverything(Choice())));
  }
}

// From 1.34 on such a cleanup fails, whatever we do.
TEST_P(KubeProxyCleanupTest, ThatFailsForAForeignJumpLeavesTheMarkedPacketsToTheAgent) {
  const std::unique_ptr<NodeAgent> agent = NewAgentDaemon(
      {.program = AgentProgram(), .version = KubeletOf(27, false), .mode = GetParam()});
  ASSERT_TRUE(Went(agent->Start()));
  const std::vector<std::string> jump = RulesIn(V4(), "nat", "POSTROUTING");
  const std::unique_ptr<ServiceProxy> proxy = NewKubeProxy(As(34));
  EXPECT_TRUE(Went(proxy->Start(ServicesOf(Fixture::kA), {})));
  const Neighbour neighbour = Neighbours()[1];
  for (const Arguments& rule : neighbour.rules) Run(rule);
  EXPECT_FALSE(CleanUpKubeProxy(As(34)).ok);
  EXPECT_TRUE(Saved(V4()).HasChain("nat", "KUBE-SERVICES"));
  EXPECT_TRUE(testing::WaitUntil([&] { return RulesIn(V4(), "nat", "POSTROUTING") == jump; }));
}

INSTANTIATE_TEST_SUITE_P(Modes, KubeProxyCleanupTest, ::testing::ValuesIn(testing::kBothModes),
                         ModeName);

}  // namespace
}  // namespace kipt::skew
