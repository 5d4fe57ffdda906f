// SPDX-License-Identifier: Apache-2.0
//
// Fights, over the kernel in memory: when they keep the agent from being ready, and who is named.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "agent/loop/control_loop.h"
#include "agent/policy/rule_forms.h"
#include "tests/agent/loop/control_loop_fixture.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

auto Called(const std::string& command) { return Field(&Writer::command, ::testing::Eq(command)); }

class AgentFightTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    Start(Mode::kCleanup);
    ASSERT_TRUE(TurnUntilRounds(1));
  }
  bool FightUntilItWaits(absl::Duration wait) {
    return AgentTest::FightUntilItWaits(Filter("INPUT"), wait);
  }
  void Undo() {
    if (!JumpExists()) return;
    kernel_.ActAs(4'194'306, "rival");
    DeleteJump(Filter("INPUT"));
  }
  bool JumpExists() const {
    const netlink::ObservedChain* chain = kernel_.state().Find(Filter("INPUT"));
    return chain != nullptr && !chain->rules.empty();
  }
  // A commit to something that is not ours.
  void WriteAsBystander(uint32_t number = 0) {
    kernel_.ActAs(4'194'400 + number, "bystander");
    kernel_.Touch();
  }
  const FamilyState& Ip() const { return agent_->state().families[0]; }
  // Of the last round that had one; an empty one where none had.
  Incident LastIncident() const {
    const auto found = std::find_if(rounds_.rbegin(), rounds_.rend(),
                                    [](const Round& round) { return round.incident.has_value(); });
    EXPECT_NE(found, rounds_.rend());
    return found == rounds_.rend() ? Incident() : *found->incident;
  }
};

// No packet reaches the rules of a dormant table, so they count as missing.
TEST_F(AgentFightTest, IsNotReadyWhileATableIsMadeDormantAgainAndAgain) {
  ASSERT_TRUE(TurnUntil([&] {
    if (kernel_.state().dormant.empty()) {
      kernel_.MakeDormant(netlink::Family::kIPv4, netlink::Table::kFilter);
    }
    return !agent_->state().fights.empty() &&
           agent_->state().fights[0].wait >= absl::Milliseconds(200);
  }));
  EXPECT_FALSE(IsReady(agent_->state()));
  EXPECT_EQ(Ip().phase, FamilyPhase::kFailed);
}

// Packets still get the old mark while the rule that sets it is fought over.
TEST_F(AgentFightTest, KeepsADropByAnotherBitWhileWhatMayMarkPacketsWaits) {
  const netlink::ChainId marks = Nat("KUBE-MARK-DROP");
  const netlink::ChainId firewall = Filter("KUBE-FIREWALL");
  agent_->SetDesired(Options(Mode::kLegacy));
  ASSERT_TRUE(TurnUntil([&] { return kernel_.state().Find(marks) != nullptr; }));
  const auto holds = [&](const netlink::ChainId& chain, const netlink::Rule& rule) {
    return absl::c_any_of(kernel_.state().Find(chain)->rules,
                          [&](const auto& each) { return each.rule() && *each.rule() == rule; });
  };
  const auto fight = [&] {
    if (holds(marks, SetBit(15))) {
      kernel_.RemoveRule(marks, kernel_.state().Find(marks)->rules[0].handle);
      kernel_.AppendRule(marks, SetBit(20));
    }
    return !agent_->state().fights.empty() &&
           agent_->state().fights[0].wait >= absl::Milliseconds(400);
  };
  ASSERT_TRUE(TurnUntil(fight));
  kernel_.AppendRule(firewall, DropMarked(20));
  const size_t rounds = rounds_.size();
  ASSERT_TRUE(TurnUntil([&] { return rounds_.size() > rounds; }));
  EXPECT_TRUE(holds(marks, SetBit(20)) && holds(firewall, DropMarked(20)));
  EXPECT_TRUE(
      TurnUntil([&] { return !holds(marks, SetBit(20)) && !holds(firewall, DropMarked(20)); }));
}

TEST_F(AgentFightTest, DoesNotKeepWhatItLeavesMissingFromBeingCalledDamaged) {
  ASSERT_TRUE(FightUntilItWaits(absl::Milliseconds(200)));
  const uint64_t incidents = agent_->state().incidents;
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT"));
  EXPECT_TRUE(TurnUntil([&] { return agent_->state().incidents > incidents; }));
}

// Another process commits so often that none of our transactions is in time, and stops.
TEST_F(AgentFightTest, WhatOthersKeptFromBeingWrittenWaitsNoLongerThanAFight) {
  for (int i = 0; i < 6; ++i) {
    kernel_.FailNextApply(absl::DeadlineExceededError("other programs kept changing the ruleset"));
  }
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT"));
  const size_t rounds = rounds_.size();
  std::vector<SteadyTime> ends;
  at_round_ = [&] { ends.push_back(SteadyNow()); };
  ASSERT_TRUE(kipt::testing::TurnUntil(
      *loop_, [&] { return rounds_.size() > rounds && InPlace(); }, absl::Seconds(20)));
  ASSERT_GE(ends.size(), 7U);
  // 20 % for the pauses' randomness.
  EXPECT_LT(ends.back() - ends[ends.size() - 2], absl::Seconds(2) * 1.2 + absl::Milliseconds(50));
}

TEST_F(AgentFightTest, NamesWhoUndidItAndNotWhoWroteWhileTheRepairWaited) {
  ASSERT_TRUE(FightUntilItWaits(absl::Milliseconds(400)));
  const size_t rounds = rounds_.size();
  uint32_t number = 0;
  ASSERT_TRUE(TurnUntil([&] {
    if (!JumpExists()) WriteAsBystander(++number);
    return rounds_.size() > rounds && !rounds_.back().report.applied.empty();
  }));
  ASSERT_GT(number, 1U);
  EXPECT_THAT(LastIncident().by.writers, ElementsAre(Called("rival")));
  EXPECT_FALSE(LastIncident().by.others);
  EXPECT_THAT(agent_->state().fights[0].by.writers, ElementsAre(Called("rival")));
}

TEST_F(AgentFightTest, OthersMayHaveDoneItWhereWatchingHadFailed) {
  kernel_.FailNextDrain(absl::InternalError("broken"));
  Undo();
  kernel_.AfterNextRead([this](auto&) { WriteAsBystander(); });
  ASSERT_TRUE(TurnUntil([&] { return agent_->state().incidents == 1; }));
  EXPECT_THAT(LastIncident().by.writers, IsEmpty());
  EXPECT_TRUE(LastIncident().by.others);
}

// Commits of "rival" are reported with the next transaction of ours.
class Delays : public FiltersChanges {
 public:
  Delays(netlink::Backend* backend, bool* holding)
      : FiltersChanges(backend, [this](netlink::RulesetChanges& now) { Hold(now); }),
        holding_(holding) {}
  absl::Status Apply(const netlink::Transaction& transaction) override {
    *holding_ = false;
    return BorrowedBackend::Apply(transaction);
  }

 private:
  void Hold(netlink::RulesetChanges& now) {
    now.writers.insert(now.writers.begin(), kept_.begin(), kept_.end());
    kept_.clear();
    if (*holding_) {
      const auto rivals =
          std::stable_partition(now.writers.begin(), now.writers.end(),
                                [](const auto& change) { return change.command != "rival"; });
      kept_.assign(rivals, now.writers.end());
      now.writers.erase(rivals, now.writers.end());
    }
    now.count = now.writers.size();
  }

  bool* holding_;
  std::vector<netlink::RulesetChange> kept_;
};

class AgentLateEventTest : public AgentFightTest {
 protected:
  void SetUp() override {
    door_ = [this] { return std::make_unique<Delays>(&kernel_, &holding_); };
    AgentFightTest::SetUp();
  }
  bool holding_ = false;
};

TEST_F(AgentLateEventTest, WhoIsReportedWithOurRepairIsNamedTooAndCheckedAgain) {
  holding_ = true;
  Undo();
  // This is what wakes the agent.
  WriteAsBystander();
  ASSERT_TRUE(TurnUntil([&] { return agent_->state().incidents == 1; }));
  EXPECT_THAT(LastIncident().by.writers,
              UnorderedElementsAre(Called("bystander"), Called("rival")));
  EXPECT_THAT(ToString(LastIncident()), HasSubstr("by one of bystander"));
  // The start, the repair, and a third round: a change that is reported with the repair may be
  // newer than the check, and no other event follows.
  ASSERT_TRUE(TurnUntilRounds(3));
  EXPECT_TRUE(rounds_[1].incident.has_value());
  EXPECT_EQ(rounds_.back().trigger, Trigger::kChange);
  EXPECT_EQ(rounds_.back().external_changes, 1U) << "counted once";
}

}  // namespace
}  // namespace kipt::agent
