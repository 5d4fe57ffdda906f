// SPDX-License-Identifier: Apache-2.0
//
// What every Monitor promises, held against those of the fake, nf_tables and legacy iptables.
#include <poll.h>

#include <memory>
#include <utility>

#include "netlink/backend.h"
#include "tests/kernel/backend_world.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using netlink::CreateChain;
using netlink::Monitor;
using netlink::RulesetChanges;
using netlink::WatchMode;

class MonitorContractTest : public BackendContractTest {
 protected:
  void SetUp() override {
    BackendContractTest::SetUp();
    if (HasFatalFailure()) return;
    monitor_ = Watch();
  }
  // The monitor before its backend.
  void TearDown() override { monitor_.reset(); }

  std::unique_ptr<Monitor> Watch(WatchMode mode = WatchMode::kEvents) {
    auto monitor = backend().Watch(mode);
    EXPECT_THAT(monitor, IsOk());
    return monitor.ok() ? *std::move(monitor) : nullptr;
  }

  bool IsReadable() const {
    pollfd file = {.fd = monitor_->fd(), .events = POLLIN, .revents = 0};
    return poll(&file, 1, 0) == 1;
  }

  uint64_t Drain() {
    absl::StatusOr<RulesetChanges> changes = monitor_->Drain();
    EXPECT_THAT(changes, IsOk());
    return changes.ok() ? changes->count : 0;
  }

  std::unique_ptr<Monitor> monitor_;
};

TEST_P(MonitorContractTest, HasNothingToDrainAtFirst) {
  EXPECT_FALSE(IsReadable());
  EXPECT_EQ(Drain(), 0) << "and does not block";
}

TEST_P(MonitorContractTest, IsReadableOnceSomebodyElseHasCommittedUntilItIsDrained) {
  world().Touch();
  EXPECT_TRUE(IsReadable());
  EXPECT_TRUE(IsReadable()) << "level-triggered";
  EXPECT_GT(Drain(), 0);
  EXPECT_FALSE(IsReadable());
  EXPECT_EQ(Drain(), 0);
  world().Touch();
  EXPECT_TRUE(IsReadable());
  EXPECT_GT(Drain(), 0);
}

TEST_P(MonitorContractTest, DoesNotHearUsRead) {
  Read();
  EXPECT_FALSE(IsReadable());
  world().AppendOpaqueJump("INPUT");
  Drain();
  Read();
  EXPECT_FALSE(IsReadable());
}

class OwnCommitsContractTest : public MonitorContractTest {};

TEST_P(OwnCommitsContractTest, AreNotCounted) {
  ASSERT_THAT(Apply({CreateChain{kUser}, Append(kUser, drop_)}), IsOk());
  EXPECT_EQ(Drain(), 0);
  EXPECT_FALSE(IsReadable());
}

TEST_P(MonitorContractTest, CountsWhatSomebodyElseDidBesideUs) {
  ASSERT_THAT(Apply({CreateChain{kUser}}), IsOk());
  world().Touch();
  ASSERT_THAT(Apply({CreateChain{kOther}}), IsOk());
  EXPECT_GT(Drain(), 0);
}

TEST_P(MonitorContractTest, HearsNothingOfWhatWasBeforeIt) {
  monitor_.reset();
  world().Touch();
  monitor_ = Watch();
  EXPECT_FALSE(IsReadable());
  EXPECT_EQ(Drain(), 0);
  world().Touch();
  EXPECT_GT(Drain(), 0);
}

INSTANTIATE_TEST_SUITE_P(Monitors, MonitorContractTest, ::testing::ValuesIn(AllSubjects()),
                         [](const auto& param_info) { return param_info.param.name; });
INSTANTIATE_TEST_SUITE_P(Monitors, OwnCommitsContractTest,
                         ::testing::ValuesIn(SubjectsThatKnowTheirCommits()),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace kipt::testing
