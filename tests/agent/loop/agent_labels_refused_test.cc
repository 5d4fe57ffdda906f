// SPDX-License-Identifier: Apache-2.0
//
// The daemon's loop with ConnLabelMarking on a node that lacks the match connlabel, over the kernel
// in memory: what a round found out becomes what the next ones want.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/node/node.h"
#include "tests/agent/loop/agent_fixture.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {
namespace {

featuregates::FeatureGates Gates() {
  return ResolveFeatureGates({1, 27}, {{.values = {{"ConnLabelMarking", true}}}}).value();
}

class AgentLabelsRefusedTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    sources_.xt_compat = [](KernelSymbols) {
      return XtCompatReading{.compat = XtCompat::kPresent};
    };
    sources_.conn_label_match = [this](KernelSymbols) { return labels_; };
    sources_.open_nft = [this]() -> BackendOrError {
      return std::make_unique<BorrowedBackend>(&kernel_);
    };
    config_.iptables_mode = IptablesMode::kNft;
    config_.mode = Mode::kLegacy;
    config_.families = {netlink::kFamilies.begin(), netlink::kFamilies.end()};
    config_.iptables_sync_period = absl::Milliseconds(200);
    // As NodeAgent does.
    door_ = [this] { return *node_->Open(/*read_only=*/false); };
    at_round_ = [this] {
      const std::string news = node_->support().TakeNews();
      if (!news.empty()) told_.push_back(news);
    };
  }

  void StartNode() {
    node_ = std::make_unique<Node>(config_, sources_);
    EXPECT_THAT(node_->Open(/*read_only=*/false), IsOk());
    AgentOptions options = node_->MakeAgentOptions();
    options.route_localnet = [] { return agent::RouteLocalnet(); };
    StartWith(std::move(options));
  }

  bool Stands(const netlink::ChainId& chain) const {
    const netlink::ObservedChain* found = kernel_.state().Find(chain);
    return found != nullptr && !found->rules.empty();
  }
  bool SaysThatLabelsAreMissing() const {
    const auto& findings = agent_->state().findings;
    return findings.size() == 1 && findings[0].condition == Condition::kConnLabelsImpossible;
  }

  XtCompatReading labels_ = {.compat = XtCompat::kUnknown, .reason = "no modules.dep"};
  ModeSources sources_;
  Config config_ = {.emulated_version = {1, 27}, .gates = Gates()};
  std::unique_ptr<Node> node_;
  std::vector<std::string> told_;
};

TEST_F(AgentLabelsRefusedTest, TheFirstRoundMakesTheMarksAndLaterOnesDoNotTryAgain) {
  kernel_.LoseExtension("connlabel");
  StartNode();
  ASSERT_TRUE(TurnUntilRounds(1));
  EXPECT_THAT(rounds_[0].report.FirstError(), IsOk());
  EXPECT_TRUE(Stands(Nat("KUBE-MARK-MASQ")));
  EXPECT_TRUE(SaysThatLabelsAreMissing());
  EXPECT_EQ(kernel_.apply_count(), 2) << "with labels, and without";
  ASSERT_THAT(told_, SizeIs(1));
  EXPECT_THAT(told_[0], HasSubstr("connection labels are not available here"));
  EXPECT_THAT(told_[0], HasSubstr("no xtables connlabel")) << "what the kernel said";
  ASSERT_TRUE(TurnUntilRounds(5));
  EXPECT_EQ(kernel_.apply_count(), 2);
  EXPECT_THAT(told_, SizeIs(1));
  EXPECT_TRUE(SaysThatLabelsAreMissing());
  for (const Round& round : rounds_) EXPECT_THAT(round.report.FirstError(), IsOk());
}

TEST_F(AgentLabelsRefusedTest, WhatFilesTellIsNotTriedAndAModuleThatComesIsFound) {
  kernel_.LoseExtension("connlabel");
  labels_ = {.compat = XtCompat::kAbsent, .reason = "xt_connlabel is not there"};
  StartNode();
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_EQ(kernel_.apply_count(), 1);
  EXPECT_TRUE(Stands(Nat("KUBE-MARK-MASQ")));
  EXPECT_FALSE(Stands(Nat("KUBELET-MARK-MASQ")));
  EXPECT_TRUE(SaysThatLabelsAreMissing());
  kernel_.GainExtension("connlabel");
  labels_ = {.compat = XtCompat::kPresent, .reason = "xt_connlabel is in modules.dep"};
  ASSERT_TRUE(TurnUntil([&] { return Stands(Nat("KUBELET-MARK-MASQ")); }));
  EXPECT_THAT(told_, ElementsAre("connection labels are available now"));
  EXPECT_THAT(agent_->state().findings, IsEmpty());
  EXPECT_EQ(agent_->state().incidents, 0U) << "what could not be made was not damaged";
}

}  // namespace
}  // namespace kipt::agent
