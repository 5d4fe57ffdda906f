// SPDX-License-Identifier: Apache-2.0
//
// Fights, over the kernel in memory: when they keep the agent from being ready, and who is named.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/loop/agent.h"
#include "tests/agent/loop/agent_fixture.h"
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
    if (!JumpStands()) return;
    kernel_.ActAs(4'194'306, "rival");
    DeleteJump(Filter("INPUT"));
  }
  bool JumpStands() const {
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

// ---- readiness ----

// No packet comes to the rules of a dormant table: it is as if they were missing.
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

// ---- who is named ----

TEST_F(AgentFightTest, NamesWhoUndidItAndNotWhoWroteWhileTheRepairWaited) {
  ASSERT_TRUE(FightUntilItWaits(absl::Milliseconds(400)));
  const size_t rounds = rounds_.size();
  uint32_t number = 0;
  ASSERT_TRUE(TurnUntil([&] {
    if (!JumpStands()) WriteAsBystander(++number);
    return rounds_.size() > rounds && !rounds_.back().report.applied.empty();
  }));
  ASSERT_GT(number, 1U);
  EXPECT_THAT(LastIncident().by.writers, ElementsAre(Called("rival")));
  EXPECT_FALSE(LastIncident().by.others);
  EXPECT_THAT(agent_->state().fights[0].by.writers, ElementsAre(Called("rival")));
}

TEST_F(AgentFightTest, SaysThatAnotherMayHaveDoneItWhereWatchingHadFailed) {
  kernel_.FailNextDrain(absl::InternalError("broken"));
  Undo();
  kernel_.AfterNextRead([this](auto&) { WriteAsBystander(); });
  ASSERT_TRUE(TurnUntil([&] { return agent_->state().incidents == 1; }));
  EXPECT_THAT(LastIncident().by.writers, IsEmpty());
  EXPECT_TRUE(LastIncident().by.others);
}

// ---- a commit whose effect can be read before the kernel reports it ----

// Reports commits of "rival" only once it is told to, or with the next transaction of ours.
class Delays : public BorrowedBackend {
 public:
  struct Held {
    bool holding = false;
    // Told to drain, and has more than it gave.
    netlink::RulesetChanges kept;
  };
  Delays(netlink::Backend* backend, Held* held) : BorrowedBackend(backend), held_(held) {}
  absl::Status Apply(const netlink::Transaction& transaction) override {
    held_->holding = false;
    return BorrowedBackend::Apply(transaction);
  }
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> Watch(netlink::WatchMode mode) override {
    absl::StatusOr<std::unique_ptr<netlink::Monitor>> monitor = BorrowedBackend::Watch(mode);
    if (!monitor.ok()) return monitor;
    return std::make_unique<Delaying>(*std::move(monitor), held_);
  }

 private:
  class Delaying : public netlink::Monitor {
   public:
    Delaying(std::unique_ptr<netlink::Monitor> monitor, Held* held)
        : monitor_(std::move(monitor)), held_(held) {}
    int fd() const override { return monitor_->fd(); }
    absl::StatusOr<netlink::RulesetChanges> Drain() override {
      absl::StatusOr<netlink::RulesetChanges> drained = monitor_->Drain();
      if (!drained.ok()) return drained;
      netlink::RulesetChanges& now = *drained;
      if (!held_->holding) {
        now.count += held_->kept.count;
        now.writers.insert(now.writers.begin(), held_->kept.writers.begin(),
                           held_->kept.writers.end());
        held_->kept = {};
        return now;
      }
      std::erase_if(now.writers, [this](const netlink::RulesetChange& change) {
        if (change.command != "rival") return false;
        ++held_->kept.count;
        held_->kept.writers.push_back(change);
        return true;
      });
      now.count = now.writers.size();
      return now;
    }

   private:
    std::unique_ptr<netlink::Monitor> monitor_;
    Held* held_;
  };

  Held* held_;
};

class AgentLateEventTest : public AgentFightTest {
 protected:
  void SetUp() override {
    door_ = [this] { return std::make_unique<Delays>(&kernel_, &held_); };
    AgentFightTest::SetUp();
  }
  Delays::Held held_;
};

TEST_F(AgentLateEventTest, WhoIsReportedWithOurRepairIsNamedTooAndCheckedAgain) {
  held_.holding = true;
  Undo();
  // This is what wakes the agent.
  WriteAsBystander();
  ASSERT_TRUE(TurnUntil([&] { return agent_->state().incidents == 1; }));
  EXPECT_THAT(LastIncident().by.writers,
              UnorderedElementsAre(Called("bystander"), Called("rival")));
  EXPECT_THAT(ToString(LastIncident()), HasSubstr("by one of bystander"));
  // The start, the repair, and once more: what was reported with the repair may be younger than the
  // check, and as it has been read it wakes nobody.
  ASSERT_TRUE(TurnUntilRounds(3));
  EXPECT_TRUE(rounds_[1].incident.has_value());
  EXPECT_EQ(rounds_.back().trigger, Trigger::kChange);
  EXPECT_EQ(rounds_.back().external_changes, 1U) << "counted once";
}

}  // namespace
}  // namespace kipt::agent
