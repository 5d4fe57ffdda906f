// SPDX-License-Identifier: Apache-2.0
//
// The daemon's loop with ConnLabelMarking on a node that lacks the match connlabel, over the kernel
// in memory: what a round found out becomes what the next ones want.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "agent/loop/agent.h"
#include "agent/node/node.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"
#include "tests/support/turn_loop.h"

namespace kipt::agent {
namespace {

featuregates::FeatureGates Gates(bool labels) {
  return ResolveFeatureGates({1, 27}, {{.values = {{"ConnLabelMarking", labels}}}}).value();
}

class AgentLabelsRefusedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    sources_.xt_compat = [this](KernelSymbols) { return xt_; };
    sources_.conn_label_match = [this](KernelSymbols) {
      ++labels_read_;
      return labels_;
    };
    sources_.open_nft = [this]() -> BackendOrError {
      return std::make_unique<BorrowedBackend>(&kernel_);
    };
    config_.iptables_mode = IptablesMode::kNft;
    config_.mode = Mode::kLegacy;
    config_.families = {netlink::kFamilies.begin(), netlink::kFamilies.end()};
    config_.iptables_sync_period = absl::Milliseconds(200);
  }

  // With the configuration as it is by now.
  Node& node() {
    if (node_ == nullptr) {
      node_ = std::make_unique<Node>(config_, sources_);
    } else {
      node_->SetConfig(config_);
    }
    if (!node_->mode()) EXPECT_THAT(node_->Open(/*read_only=*/false), IsOk());
    return *node_;
  }

  AgentOptions Make() {
    AgentOptions options = node().MakeAgentOptions();
    options.route_localnet = [] { return agent::RouteLocalnet(); };
    return options;
  }

  // As NodeAgent does.
  void Start() {
    absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
    ASSERT_THAT(loop, IsOk());
    loop_ = *std::move(loop);
    absl::StatusOr<std::unique_ptr<Agent>> agent = Agent::Create(
        *loop_, Make(), [this] { return node_->Open(/*read_only=*/false); },
        [this](const Round& round) {
          rounds_.push_back(round);
          const std::string news = node_->support().TakeNews();
          if (!news.empty()) told_.push_back(news);
        });
    ASSERT_THAT(agent, IsOk());
    agent_ = *std::move(agent);
  }

  bool TurnUntil(absl::FunctionRef<bool()> done) { return kipt::testing::TurnUntil(*loop_, done); }
  bool TurnUntilRounds(size_t count) {
    return TurnUntil([&] { return rounds_.size() >= count; });
  }

  bool Stands(const netlink::ChainId& chain) const {
    const netlink::ObservedChain* found = kernel_.state().Find(chain);
    return found != nullptr && !found->rules.empty();
  }
  bool SaysThatLabelsAreMissing() const {
    const auto& findings = agent_->state().findings;
    return findings.size() == 1 && findings[0].condition == Condition::kConnLabelsImpossible;
  }

  FakeBackend kernel_;
  XtCompatReading xt_ = {.compat = XtCompat::kPresent};
  XtCompatReading labels_ = {.compat = XtCompat::kUnknown, .reason = "no modules.dep"};
  int labels_read_ = 0;
  ModeSources sources_;
  Config config_ = {.emulated_version = {1, 27}, .gates = Gates(true)};
  std::unique_ptr<Node> node_;
  std::vector<Round> rounds_;
  std::vector<std::string> told_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Agent> agent_;
};

TEST_F(AgentLabelsRefusedTest, TheFirstRoundMakesTheMarksAndLaterOnesDoNotTryAgain) {
  kernel_.LoseExtension("connlabel");
  Start();
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
  Start();
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

TEST_F(AgentLabelsRefusedTest, AModuleThatIsLoadedAfterARefusalIsFound) {
  kernel_.LoseExtension("connlabel");
  Start();
  ASSERT_TRUE(TurnUntilRounds(3));
  kernel_.GainExtension("connlabel");
  labels_ = {.compat = XtCompat::kPresent, .reason = "xt_connlabel is loaded"};
  ASSERT_TRUE(TurnUntil([&] { return Stands(Nat("KUBELET-MARK-MASQ")); }));
  EXPECT_TRUE(TurnUntil([&] { return agent_->state().findings.empty(); }));
}

TEST_F(AgentLabelsRefusedTest, NobodyLooksForTheMatchWhereTheGateIsOff) {
  config_.gates = Gates(false);
  kernel_.LoseExtension("connlabel");
  Start();
  ASSERT_TRUE(TurnUntilRounds(3));
  EXPECT_EQ(labels_read_, 0);
  EXPECT_THAT(agent_->state().findings, IsEmpty());
  EXPECT_EQ(kernel_.apply_count(), 1);
}

// As at a daemon's start with --stale-chains=retire.
TEST_F(AgentLabelsRefusedTest, ARefusalBeforeTheFirstRoundIsRemembered) {
  kernel_.LoseExtension("connlabel");
  config_.stale_chains = StaleChains::kRetire;
  // Of legacy iptables there is nothing.
  sources_.table_names_path = "/proc/thread-self/net/no_%s_tables_names";
  sources_.open_legacy = []() -> BackendOrError { return absl::UnavailableError("none"); };
  EXPECT_THAT(node().RetireOtherFirst(kernel_), IsOk());
  EXPECT_EQ(kernel_.apply_count(), 2);
  config_.stale_chains = StaleChains::kKeep;
  Start();
  ASSERT_TRUE(TurnUntilRounds(1));
  EXPECT_EQ(kernel_.apply_count(), 2) << "all that can be had stands";
  EXPECT_TRUE(SaysThatLabelsAreMissing());
}

TEST_F(AgentLabelsRefusedTest, ARefusalOfAllMatchesBeforeTheFirstRoundIsAnAnswer) {
  kernel_.LoseXt();
  xt_ = {.compat = XtCompat::kUnknown, .reason = "no modules.dep"};
  config_.gates = Gates(false);
  config_.mode = Mode::kCleanup;
  config_.stale_chains = StaleChains::kRetire;
  sources_.table_names_path = "/proc/thread-self/net/no_%s_tables_names";
  sources_.open_legacy = []() -> BackendOrError { return absl::UnavailableError("none"); };
  EXPECT_THAT(node().RetireOtherFirst(kernel_), IsOk());
  EXPECT_FALSE(node_->support().known().xt);
}

// Files that say that iptables can hold no rule are wrong where one stands.
TEST_F(AgentLabelsRefusedTest, ARuleThatStandsOutweighsWhatFilesTellOfAllMatches) {
  config_.gates = Gates(false);
  config_.mode = Mode::kCleanup;
  Start();
  ASSERT_TRUE(TurnUntilRounds(1));
  agent_.reset();
  xt_ = {.compat = XtCompat::kAbsent, .reason = "nft_compat is not built in"};
  kernel_.FlushChain(Filter("INPUT"));
  const size_t rounds = rounds_.size();
  Start();
  ASSERT_TRUE(TurnUntilRounds(rounds + 3));
  EXPECT_TRUE(Stands(Filter("INPUT")));
  EXPECT_THAT(agent_->state().findings, IsEmpty());
  EXPECT_THAT(told_, ElementsAre("iptables can hold rules now"));
}

}  // namespace
}  // namespace kipt::agent
