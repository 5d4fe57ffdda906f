// SPDX-License-Identifier: Apache-2.0
//
// `kube-proxy --cleanup`: what it leaves, held against the captures, and its hostile neighbours.

#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/selftest/actor_fixture.h"
#include "tests/skew/selftest/captured_fixtures.h"
#include "tests/support/lock_holder.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"

namespace kipt::skew {
namespace {

using Arguments = std::vector<std::string>;

struct Neighbour {
  // Of the capture: ".cleanup", ".cleanup-masq".
  const char* capture;
  // What the program reports: 1.31, and 1.34.
  bool ok_before;
  bool ok_since;
  std::vector<Arguments> rules = {};
};

std::vector<Neighbour> Neighbours() {
  return {
      {"cleanup", true, true},
      {"cleanup-masq", true, false,
       List(Arguments{"-t", "nat", "-N", "CNI-OTHER"},
            Arguments{"-t", "nat", "-A", "CNI-OTHER", "-s", "10.180.0.0/16", "-d", "192.0.2.0/24",
                      "-j", "KUBE-MARK-MASQ"},
            Arguments{"-t", "nat", "-A", "PREROUTING", "-j", "CNI-OTHER"})},
      {"cleanup-nodeports", false, false,
       List(Arguments{"-t", "nat", "-A", "PREROUTING", "-i", "eth9", "-j", "KUBE-NODEPORTS"})},
      {"cleanup-oldinput", false, false,
       List(Arguments{"-I", "INPUT", "-m", "conntrack", "--ctstate", "NEW", "-m", "comment",
                      "--comment", "kubernetes service portals", "-j", "KUBE-SERVICES"})},
  };
}

class KubeProxyCleanupTest : public ActorTest {
 protected:
  static void StartBoth(int minor) {
    StartKubelet(minor);
    EXPECT_TRUE(Went(NewKubeProxy(As(minor))->Start(ServicesOf(Fixture::kA), {})));
  }
};

TEST_P(KubeProxyCleanupTest, LeavesWhatTheRealOneLeft) {
  for (const int minor : {31, 33, 34, 36}) {
    for (const Neighbour& neighbour : Neighbours()) {
      SCOPED_TRACE(absl::StrCat("1.", minor, " ", neighbour.capture));
      StartBoth(minor);
      for (const Arguments& rule : neighbour.rules) Run(V4(), rule);
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
      EXPECT_TRUE(Went(Flush(Choice())));
    }
  }
}

// The lock is of iptables-legacy; iptables-nft takes none.
TEST_P(KubeProxyCleanupTest, From1_33ItDoesNothingWhileAnotherHoldsTheLockAndReportsSuccess) {
  StartBoth(33);
  const testing::SavedRules before = Saved(V4());
  const testing::LockHolder holder("/run/xtables.lock", absl::Seconds(12));
  EXPECT_TRUE(Went(CleanUpKubeProxy(As(33))));
  EXPECT_EQ(Saved(V4()) == before, GetParam() == IptablesMode::kLegacy);
}

// Of IPv4: what is checked before it is deleted, emptied and deleted; without the wait flags.
std::vector<std::string> CallsOf(const Act& act) {
  std::vector<std::string> calls;
  for (const std::string& call : act.calls) {
    if (absl::StrContains(call, "\tip6tables")) continue;
    for (const char* operation : {" -C ", " -F ", " -X "}) {
      const size_t at = call.find(operation);
      if (at != std::string::npos) calls.push_back(call.substr(at + 1));
    }
  }
  return calls;
}

TEST_P(KubeProxyCleanupTest, Before1_31ItCallsWhatItsSourcesCall) {
  std::map<int, std::vector<std::string>> expected;
  const std::string captured = ReadOwnCapture("1.17-1.30.cleanup.calls");
  for (const absl::string_view line : absl::StrSplit(captured, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> fields =
        absl::StrSplit(line, absl::MaxSplits('\t', 1));
    expected[std::stoi(fields.first.substr(2))].push_back(fields.second);
  }
  EXPECT_EQ(expected.size(), 8U);
  for (int minor = 17; minor <= 30; ++minor) {
    StartBoth(minor);
    EXPECT_EQ(CallsOf(CleanUpKubeProxy(As(minor))), std::prev(expected.upper_bound(minor))->second)
        << minor;
    EXPECT_TRUE(Went(Flush(Choice())));
  }
}

class CleanupNextToTheAgentTest : public KubeProxyCleanupTest {
 protected:
  static std::unique_ptr<NodeAgent> GateOff() {
    return NewAgentDaemon(
        {.program = AgentProgram(), .version = KubeletOf(27, false), .mode = GetParam()});
  }
};

// Of kube-proxy nothing is left that could announce it. On nft the agent knows the writer, unless
// it has ended before the agent reads its parent: often, where the processors are busy.
TEST_P(CleanupNextToTheAgentTest, CanBeRepeatedOnNft) {
  const std::unique_ptr<NodeAgent> agent = GateOff();
  ASSERT_TRUE(Went(agent->Start()));
  const testing::SavedRules before = Saved(V4());
  const bool nft = GetParam() == IptablesMode::kNft;
  int went = 0;
  for (int times = 0; times < (nft ? 30 : 3) && went < 3; ++times) {
    const Act act = CleanUpKubeProxy(As(36));
    went += act.ok ? 1 : 0;
    EXPECT_TRUE(act.ok || absl::StrContains(act.error, "chain KUBE-POSTROUTING") || !nft)
        << act.error;
    EXPECT_TRUE(Went(agent->Settle()));
    EXPECT_EQ(Saved(V4()), before);
  }
  if (nft) {
    EXPECT_EQ(went, 3);
  }
}

// KUBE-PROXY-CANARY, which a cleanup leaves up to 1.33, claims kubelet's chains.
TEST_P(CleanupNextToTheAgentTest, LeavesAClaimUpTo1_33AndNoneLater) {
  for (const int minor : {33, 34}) {
    StartBoth(minor);
    EXPECT_TRUE(Went(CleanUpKubeProxy(As(minor))));
    const testing::ProgramResult audit =
        testing::RunProgram({AgentProgram(), "retire", "--emulated-version=1.27",
                             absl::StrCat("--iptables-mode=", testing::NameOf(GetParam()))});
    EXPECT_EQ(absl::StrContains(audit.out, "KUBE-PROXY-CANARY"), minor == 33) << audit;
    EXPECT_TRUE(Went(Flush(Choice())));
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, KubeProxyCleanupTest, ::testing::ValuesIn(testing::kBothModes),
                         ModeName);
INSTANTIATE_TEST_SUITE_P(Modes, CleanupNextToTheAgentTest, ::testing::ValuesIn(testing::kBothModes),
                         ModeName);

}  // namespace
}  // namespace kipt::skew
