// SPDX-License-Identifier: Apache-2.0
//
// ConnLabelMarking where only the match connlabel is missing: the rules of the packet marks are
// made, whether that was known before or learnt from a refusal.
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "agent/commands.h"
#include "agent/loop/reconciler.h"
#include "agent/node/node.h"
#include "agent/policy/diff.h"
#include "netlink/kernel_error.h"
#include "tests/agent/loop/control_loop_fixture.h"
#include "tests/agent/loop/reconciler_fixture.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {
namespace {

Clock StoppedClock() {
  return {.now = [] { return SteadyTime(); }, .sleep = [](absl::Duration) {}};
}

PolicyInput Labelled(Mode mode) { return Wanting(mode, netlink::kFamilies, {}, ConnLabels{}); }

std::vector<std::string> Conditions(const Diff& diff) {
  std::vector<std::string> names;
  for (const Finding& finding : diff.findings) {
    names.emplace_back(ConditionName(finding.condition));
  }
  return names;
}

// The ruleset where the gate is off.
std::string WithoutTheGate(Mode mode) {
  FakeBackend backend;
  const PolicyInput input = Wanting(mode, netlink::kFamilies, {});
  EXPECT_THAT(Reconciler(&backend, StoppedClock()).Sync(input).FirstError(), IsOk());
  return ToString(backend);
}

using LabelsRefusedTest = ReconcilerFixture;

TEST_F(LabelsRefusedTest, TheSameSyncMakesAllTheRest) {
  for (const Mode mode : {Mode::kLegacy, Mode::kCleanup}) {
    FakeBackend backend;
    backend.LoseExtension("connlabel");
    const SyncReport report = Reconciler(&backend, StoppedClock()).Sync(Labelled(mode));
    EXPECT_THAT(report.FirstError(), IsOk());
    EXPECT_THAT(report.labels_refused, StatusIs(absl::StatusCode::kNotFound));
    EXPECT_FALSE(report.LacksExtension()) << "only the labels are missing";
    EXPECT_THAT(backend.applied(), SizeIs(1)) << "both families in one transaction";
    EXPECT_EQ(report.checks, 2);
    EXPECT_THAT(Conditions(report.plan.diff), ElementsAre("ConnLabelsImpossible"));
    EXPECT_THAT(report.plan.diff.findings[0].message, HasSubstr("lacks the match connlabel"));
    EXPECT_EQ(ToString(backend), WithoutTheGate(mode));
  }
}

TEST_F(LabelsRefusedTest, TheTimeThatBothTransactionsTookIsReported) {
  kernel_.LoseExtension("connlabel");
  time_ = FakeTime(absl::Milliseconds(1));
  EXPECT_EQ(Reconciler(&kernel_, time_.clock()).Sync(Labelled(Mode::kLegacy)).applying,
            absl::Milliseconds(2));
}

// As where nft_compat is missing and only rules about labels are still to be made.
TEST_F(LabelsRefusedTest, AKernelWithoutAnyMatchLacksMoreThanLabels) {
  kernel_.LoseXt();
  const SyncReport report = Reconciler(&kernel_, StoppedClock()).Sync(Labelled(Mode::kLegacy));
  EXPECT_THAT(report.FirstError(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_TRUE(report.LacksExtension());
  EXPECT_THAT(kernel_.state().chains, IsEmpty());
}

TEST_F(LabelsRefusedTest, WhatWasDoneForOneFamilyBeforeItWasRefusedForTheOtherIsReported) {
  kernel_.FailNextApply(absl::FailedPreconditionError("something else"));
  // The first family alone is made; then connlabel vanishes.
  kernel_.AfterNextRead([](FakeBackend&) {});
  kernel_.AfterNextRead([](FakeBackend&) {});
  kernel_.AfterNextRead([](FakeBackend& kernel) { kernel.LoseExtension("connlabel"); });
  const SyncReport report = Reconciler(&kernel_, StoppedClock()).Sync(Labelled(Mode::kLegacy));
  EXPECT_THAT(report.FirstError(), IsOk());
  EXPECT_FALSE(report.labels_refused.ok());
  bool first_family = false;
  for (const Change& change : report.applied) {
    const netlink::ChainId& chain = netlink::ChainOf(change.operation);
    if (chain == Nat("KUBELET-MARK-MASQ")) first_family = true;
  }
  EXPECT_TRUE(first_family);
  EXPECT_NE(kernel_.state().Find(Nat("KUBE-MARK-MASQ")), nullptr);
}

// iptables-legacy commits mangle first. If that fails, connlabel has not been requested yet, and
// its module is not loaded.
TEST_F(LabelsRefusedTest, AFailureWithoutLabelsTooIsNotBlamedOnThem) {
  absl::Status blamed = absl::NotFoundError("refused; connlabel is not loaded");
  netlink::SetMissingExtension(blamed, netlink::kConnLabelExtension);
  kernel_.FailNextApply(blamed);
  for (int attempt = 0; attempt < 3; ++attempt) {  // both families, and each alone
    kernel_.FailNextApply(absl::FailedPreconditionError("mangle is refused"));
  }
  Reconciler reconciler(&kernel_, StoppedClock());
  const SyncReport report = reconciler.Sync(Labelled(Mode::kLegacy));
  EXPECT_THAT(report.FirstError(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(report.labels_refused, IsOk());
  EXPECT_THAT(reconciler.Sync(Labelled(Mode::kLegacy)).FirstError(), IsOk());
  EXPECT_NE(kernel_.state().Find(Nat("KUBELET-MARK-MASQ")), nullptr);
}

struct Outcome {
  ExitCode code = kExitOk;
  std::string out;
};

Outcome Invoke(ExitOrError (*command)(const CommandInput&), FakeBackend& backend,
               XtCompatReading known) {
  std::ostringstream out;
  const Subject subject = {
      .emulated_version = {1, 27}, .iptables_mode = "nft", .input = Labelled(Mode::kLegacy)};
  const auto support =
      std::make_shared<SupportSource>([] { return XtCompatReading(); }, [known] { return known; });
  const ExitOrError ended = command({.subject = subject,
                                     .backend = backend,
                                     .clock = StoppedClock(),
                                     .node = {.support = support},
                                     .out = out,
                                     .err = out});
  return {ended.value_or(kExitFailed), out.str()};
}

const XtCompatReading kMissing = {.compat = XtCompat::kAbsent, .reason = "xt_connlabel: none"};

TEST_F(LabelsRefusedTest, SyncMakesTheMarksAndAsksForAttention) {
  for (const XtCompatReading& known : {kMissing, XtCompatReading()}) {
    FakeBackend backend;
    backend.LoseExtension("connlabel");
    const Outcome sync = Invoke(RunSync, backend, known);
    EXPECT_EQ(sync.code, kExitDifferences);
    EXPECT_THAT(sync.out, HasSubstr("ConnLabelsImpossible (warning)"));
    EXPECT_THAT(sync.out, Not(AnyOf(HasSubstr("+ :KUBELET-"), HasSubstr("+ -A KUBELET-"))));
    // The refusal, in the kernel's or the program's words.
    EXPECT_EQ(absl::StrContains(sync.out, "no xtables connlabel"),
              known.compat != XtCompat::kAbsent);
    EXPECT_EQ(backend.apply_count(), known.compat != XtCompat::kAbsent ? 2 : 1)
        << "what is known is not tried";
    EXPECT_EQ(ToString(backend), WithoutTheGate(Mode::kLegacy));
  }
}

TEST_F(LabelsRefusedTest, PlanAndStatusKnowItFromFiles) {
  kernel_.LoseExtension("connlabel");
  EXPECT_THAT(Invoke(RunPlan, kernel_, kMissing).out, Not(HasSubstr("KUBELET-MARK-DROP")));
  Invoke(RunSync, kernel_, kMissing);
  for (const auto command : {RunPlan, RunStatus}) {
    const Outcome check = Invoke(command, kernel_, kMissing);
    EXPECT_EQ(check.code, kExitDifferences) << "it needs attention";
    EXPECT_THAT(check.out, HasSubstr("xt_connlabel: none"));
  }
  EXPECT_EQ(kernel_.apply_count(), 1);
}

TEST_F(LabelsRefusedTest, ANodeWithoutAnyMatchGetsTheNativeTable) {
  kernel_.LoseXt();
  const Outcome sync = Invoke(RunSync, kernel_, {});
  EXPECT_EQ(sync.code, kExitDifferences);
  EXPECT_THAT(sync.out, HasSubstr("LegacyModeImpossible"));
  EXPECT_THAT(sync.out, HasSubstr("+ table ip kube-iptables-agent"));
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
      if (!news.empty()) notices_.push_back(news);
    };
  }

  void StartNode() {
    node_ = std::make_unique<Node>(config_, sources_);
    EXPECT_THAT(node_->Open(/*read_only=*/false), IsOk());
    ControlLoopOptions options = node_->MakeLoopOptions();
    options.route_localnet = [] { return agent::RouteLocalnet(); };
    StartWith(std::move(options));
  }

  bool Exists(const netlink::ChainId& chain) const {
    const netlink::ObservedChain* found = kernel_.state().Find(chain);
    return found != nullptr && !found->rules.empty();
  }
  bool ReportsMissingLabels() const {
    const auto& findings = agent_->state().findings;
    return findings.size() == 1 && findings[0].condition == Condition::kConnLabelsImpossible;
  }

  XtCompatReading labels_ = {.compat = XtCompat::kUnknown, .reason = "no modules.dep"};
  ModeSources sources_;
  Config config_ = {
      .emulated_version = {1, 27},
      .gates = ResolveFeatureGates({1, 27}, {{.values = {{"ConnLabelMarking", true}}}}).value()};
  std::unique_ptr<Node> node_;
  std::vector<std::string> notices_;
};

TEST_F(AgentLabelsRefusedTest, TheFirstRoundMakesTheMarksAndLaterOnesDoNotTryAgain) {
  kernel_.LoseExtension("connlabel");
  StartNode();
  ASSERT_TRUE(TurnUntilRounds(1));
  EXPECT_THAT(rounds_[0].report.FirstError(), IsOk());
  EXPECT_TRUE(Exists(Nat("KUBE-MARK-MASQ")));
  EXPECT_TRUE(ReportsMissingLabels());
  EXPECT_EQ(kernel_.apply_count(), 2) << "with labels, and without";
  ASSERT_THAT(notices_, SizeIs(1));
  EXPECT_THAT(notices_[0], HasSubstr("connection labels are not available here"));
  EXPECT_THAT(notices_[0], HasSubstr("no xtables connlabel")) << "what the kernel reported";
  ASSERT_TRUE(TurnUntilRounds(5));
  EXPECT_EQ(kernel_.apply_count(), 2);
  EXPECT_THAT(notices_, SizeIs(1));
  EXPECT_TRUE(ReportsMissingLabels());
  for (const Round& round : rounds_) EXPECT_THAT(round.report.FirstError(), IsOk());
}

TEST_F(AgentLabelsRefusedTest, WhatFilesRuleOutIsNotTriedAndANewModuleIsFound) {
  kernel_.LoseExtension("connlabel");
  labels_ = {.compat = XtCompat::kAbsent, .reason = "xt_connlabel is not there"};
  StartNode();
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_EQ(kernel_.apply_count(), 1);
  EXPECT_TRUE(Exists(Nat("KUBE-MARK-MASQ")));
  EXPECT_FALSE(Exists(Nat("KUBELET-MARK-MASQ")));
  EXPECT_TRUE(ReportsMissingLabels());
  kernel_.GainExtension("connlabel");
  labels_ = {.compat = XtCompat::kPresent, .reason = "xt_connlabel is in modules.dep"};
  ASSERT_TRUE(TurnUntil([&] { return Exists(Nat("KUBELET-MARK-MASQ")); }));
  EXPECT_THAT(notices_, ElementsAre("connection labels are available now"));
  EXPECT_THAT(agent_->state().findings, IsEmpty());
  EXPECT_EQ(agent_->state().incidents, 0U) << "what could not be made was not damaged";
}

}  // namespace
}  // namespace kipt::agent
