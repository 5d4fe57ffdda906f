// SPDX-License-Identifier: Apache-2.0
//
// LookAtNode in a network namespace of the test's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "tests/skew/advise/advise.h"
#include "tests/skew/report/page_data.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/private_run.h"
#include "tests/support/run_program.h"

namespace kipt::skew {
namespace {

using testing::Iptables;
using testing::IptablesMode;

const UpgradePlan kPlan = {.from = {{1, 26}, {}}, .to = {{1, 27}, {}}};

class LookAtNodeTest : public testing::NetnsTest,
                       public ::testing::WithParamInterface<IptablesMode> {
 protected:
  void SetUp() override {
    NetnsTest::SetUp();
    if (!HasFatalFailure()) private_run_.emplace();
  }

  static bool HasUserOfMarkDrop(const LiveNode& node) {
    for (const LiveNode::Fact& fact : node.facts) {
      if (fact.blocking && absl::StrContains(fact.what, "jump to nat/KUBE-MARK-DROP")) return true;
    }
    return false;
  }

 private:
  std::optional<testing::PrivateRun> private_run_;
};

TEST_P(LookAtNodeTest, FindsWhoUsesWhatTheUpgradeTakesAway) {
  const Iptables iptables = {.mode = GetParam()};
  const testing::KubeletRun run = RunKubelet(
      iptables, KubeletSequence(testing::KubeletForm::k1_27GateOff, testing::IpFamily::kIpv4));
  ASSERT_EQ(run.error, "");
  const absl::StatusOr<LiveNode> before = LookAtNode(kPlan);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_FALSE(HasUserOfMarkDrop(*before));
  EXPECT_EQ(Advise(kPlan, *before).kind, Advice::Kind::kSafe);

  ASSERT_EQ(iptables.Run({"-t", "nat", "-A", "PREROUTING", "-p", "tcp", "-j", "KUBE-MARK-DROP"})
                .exit_code,
            0);
  const std::vector<std::string> saved = RuleLines(iptables.Save().out);
  const absl::StatusOr<LiveNode> after = LookAtNode(kPlan);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE(HasUserOfMarkDrop(*after));
  EXPECT_EQ(Advise(kPlan, *after).kind, Advice::Kind::kUnsafe);
  EXPECT_FALSE(after->proxy_generation.has_value());
  EXPECT_EQ(RuleLines(iptables.Save().out), saved);
}

class LookAtBareNodeTest : public testing::NetnsTest {};

INSTANTIATE_TEST_SUITE_P(Of, LookAtNodeTest,
                         ::testing::Values(IptablesMode::kNft, IptablesMode::kLegacy),
                         [](const auto& row) {
                           return row.param == IptablesMode::kNft ? "Nft" : "Legacy";
                         });

TEST_F(LookAtBareNodeTest, LeavesABareNodeBare) {
  ASSERT_TRUE(LookAtNode(kPlan).ok());
  EXPECT_EQ(testing::RunProgram({"nft", "list", "ruleset"}).out, "");
  EXPECT_EQ(testing::RunProgram({"cat", "/proc/thread-self/net/ip_tables_names"}).out, "");
}

}  // namespace
}  // namespace kipt::skew
