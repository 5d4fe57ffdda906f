// SPDX-License-Identifier: Apache-2.0
//
// What a reload changes in an agent that runs, and what it leaves unchanged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "agent/loop/agent.h"
#include "tests/agent/loop/agent_fixture.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

using ::kipt::testing::FamilyRefusal;
using ::kipt::testing::Filter;
using ::kipt::testing::RefusesFamily;
using netlink::Family;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class AgentReloadTest : public AgentTest {
 protected:
  // Another process deletes a jump until the agent calls that a fight and waits before each repair.
  // True where the jump is missing then.
  bool Fight(const netlink::ChainId& chain) {
    return TurnUntil([&] {
      const netlink::ObservedChain* found = kernel_.state().Find(chain);
      const bool stands = found != nullptr && !found->rules.empty();
      if (stands) kernel_.RemoveRule(chain, found->rules[0].handle);
      // The first wait is so short that it might pass unnoticed.
      return !stands && !agent_->state().fights.empty() &&
             agent_->state().fights[0].wait >= absl::Milliseconds(200);
    });
  }
};

TEST_F(AgentReloadTest, TheNewSyncPeriodHoldsFromTheReloadOn) {
  Start(Mode::kCleanup);
  ASSERT_TRUE(TurnUntilRounds(1));
  sync_period_ = absl::Milliseconds(20);
  agent_->SetDesired(Options(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(4));
  EXPECT_EQ(rounds_[1].trigger, Trigger::kConfig);
  EXPECT_EQ(rounds_[2].trigger, Trigger::kTimer);
  EXPECT_EQ(rounds_[3].trigger, Trigger::kTimer);
  EXPECT_EQ(opened_, 1) << "the backend is as good as before";
}

TEST_F(AgentReloadTest, TheNewSyncPeriodBoundsTheWaitsOfAFamilyThatFails) {
  FamilyRefusal refusal{.family = Family::kIPv6};
  door_ = [&] { return std::make_unique<RefusesFamily>(&kernel_, &refusal); };
  Start(Mode::kCleanup);
  ASSERT_TRUE(TurnUntilRounds(1));
  sync_period_ = absl::Milliseconds(20);
  agent_->SetDesired(Options(Mode::kCleanup));
  const int before = refusal.count;
  // The old bound would let the waits grow to 51 seconds each.
  EXPECT_TRUE(TurnUntil([&] { return refusal.count >= before + 10; }));
}

TEST_F(AgentReloadTest, AFightIsForgottenAndWhatItHeldBackIsRepairedAtOnce) {
  Start(Mode::kCleanup);
  ASSERT_TRUE(TurnUntilRounds(1));
  ASSERT_TRUE(Fight(Filter("INPUT")));
  const size_t rounds = rounds_.size();
  agent_->SetDesired(Options(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(rounds + 1));
  EXPECT_EQ(rounds_[rounds].trigger, Trigger::kConfig);
  EXPECT_THAT(rounds_[rounds].report.applied, Not(IsEmpty()));
  EXPECT_THAT(agent_->state().fights, IsEmpty());
  EXPECT_TRUE(InPlace());
}

TEST_F(AgentReloadTest, WhatStillFailsIsReportedAgain) {
  FamilyRefusal refusal{.family = Family::kIPv6};
  door_ = [&] { return std::make_unique<RefusesFamily>(&kernel_, &refusal); };
  Start(Mode::kCleanup);
  ASSERT_TRUE(TurnUntilRounds(1));
  agent_->SetDesired(Options(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_THAT(rounds_[1].changed_families,
              ElementsAre(::testing::Field(&FamilyState::family, Family::kIPv6)));
}

TEST_F(AgentReloadTest, AFamilyThatWaitedIsTriedAtOnce) {
  FamilyRefusal refusal{.family = Family::kIPv6};
  door_ = [&] { return std::make_unique<RefusesFamily>(&kernel_, &refusal); };
  Start(Mode::kCleanup);
  // Waits of 100 and 200 ms are over, and one of 400 ms has begun.
  ASSERT_TRUE(TurnUntilRounds(3));
  refusal.refusing = false;
  agent_->SetDesired(Options(Mode::kCleanup));
  ASSERT_TRUE(TurnUntilRounds(4));
  EXPECT_EQ(rounds_[3].trigger, Trigger::kConfig);
  EXPECT_TRUE(InPlace());
}

TEST_F(AgentReloadTest, HowToWatchStaysAsItWas) {
  Start(Mode::kCleanup);
  ASSERT_TRUE(TurnUntilRounds(1));
  AgentOptions options = Options(Mode::kCleanup);
  options.watch = netlink::WatchMode::kPoll;
  // Another backend is opened for observing, and is watched anew.
  options.observe = true;
  agent_->SetDesired(options);
  ASSERT_TRUE(TurnUntilRounds(2));
  EXPECT_EQ(opened_, 2);
  EXPECT_EQ(agent_->state().watching, "kernel events");
}

TEST_F(AgentReloadTest, AFamilyThatIsNoLongerWantedIsNoLongerReported) {
  Start(Mode::kCleanup);
  ASSERT_TRUE(TurnUntilRounds(1));
  const absl::Time since = agent_->state().families[0].since;
  AgentOptions options = Options(Mode::kCleanup);
  const Family ipv4[] = {Family::kIPv4};
  options.input = ::kipt::testing::Wanting(Mode::kCleanup, ipv4, {});
  agent_->SetDesired(options);
  ASSERT_THAT(agent_->state().families, SizeIs(1));
  EXPECT_EQ(agent_->state().families[0].phase, FamilyPhase::kInPlace) << "nothing has changed it";
  EXPECT_EQ(agent_->state().families[0].since, since);
}

}  // namespace
}  // namespace kipt::agent
