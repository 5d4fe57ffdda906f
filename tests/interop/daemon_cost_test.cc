// SPDX-License-Identifier: Apache-2.0
//
// What the daemon costs a node, in brief: counts are exact, times have room for a busy machine and
// a build without optimisation. tests/bench/run has the figures.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/foreign_writer.h"
#include "tests/support/process_cost.h"

namespace kipt::testing {
namespace {

// For what follows the last event: a look that was put off.
constexpr absl::Duration kSettling = absl::Milliseconds(500);
constexpr int kRules = 40000;
constexpr int kCommitsPerSecond = 200;

class DaemonCostTest : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    auto writer = ForeignWriter::Create();
    ASSERT_TRUE(writer.ok()) << writer.status();
    writer_ = *std::move(writer);
  }

  // Its costs, when it is at rest.
  std::map<pid_t, ThreadCost> Costs() {
    EXPECT_TRUE(ComesToRest(daemon().pid()));
    return ThreadCosts(daemon().pid());
  }

  void CommitChains(int commits) {
    const absl::Time start = absl::Now();
    for (int i = 0; i < commits; ++i) {
      const absl::StatusOr<absl::Duration> took = writer().CommitChain();
      ASSERT_TRUE(took.ok()) << took.status();
      absl::SleepFor(start + (i + 1) * absl::Seconds(1) / kCommitsPerSecond - absl::Now());
    }
  }

  ForeignWriter& writer() { return *writer_; }

 private:
  std::unique_ptr<ForeignWriter> writer_;
};

TEST_F(DaemonCostTest, WakesOnceForFortyThousandRulesInOneTransaction) {
  Start({}, {"--iptables-sync-period=1h"});
  const auto before = Costs();
  const absl::StatusOr<absl::Duration> took = writer().CommitRules(kRules);
  ASSERT_TRUE(took.ok()) << took.status();
  absl::SleepFor(kSettling);
  const auto after = ThreadCosts(daemon().pid());
  EXPECT_EQ(Spent(before, after).wakeups, 1) << WakeupsText(before, after);
  EXPECT_LT(Spent(before, after).cpu, absl::Milliseconds(20));
  EXPECT_EQ(Metric("kube_iptables_agent_external_changes_total"), 1);
}

TEST_F(DaemonCostTest, LooksAtMostTwentyTimesASecondWhateverOthersCommit) {
  constexpr int kSeconds = 3;
  Start({}, {"--iptables-sync-period=1h"});
  const double syncs_before = Metric("kube_iptables_agent_syncs_total");
  const auto before = Costs();
  CommitChains(kSeconds * kCommitsPerSecond);
  const auto after = Costs();
  // Ten at once, and ten a second: the second that begins with the burst sees twenty. One more
  // comes behind the last commit.
  EXPECT_LE(Metric("kube_iptables_agent_syncs_total") - syncs_before, 10 + 10 * kSeconds + 1);
  EXPECT_LT(Spent(before, after).cpu, 0.2 * absl::Seconds(kSeconds));
  EXPECT_EQ(Metric("kube_iptables_agent_external_changes_total"), kSeconds * kCommitsPerSecond);
}

TEST_F(DaemonCostTest, IdleWakesForItsTimerOnly) {
  // Three syncs, and never more than one of them beside those that are due.
  Start({}, {"--iptables-sync-period=2s"});
  const auto before = ThreadCosts(daemon().pid());
  absl::SleepFor(absl::Seconds(5));
  const auto after = ThreadCosts(daemon().pid());
  EXPECT_GE(Spent(before, after).wakeups, 2) << WakeupsText(before, after);
  EXPECT_LE(Spent(before, after).wakeups, 3) << WakeupsText(before, after);
}

TEST_F(DaemonCostTest, KeepsItsMemorySmallThroughAStorm) {
  Start({}, {"--iptables-sync-period=1s"});
  const absl::StatusOr<absl::Duration> took = writer().CommitRules(kRules);
  ASSERT_TRUE(took.ok()) << took.status();
  CommitChains(2 * kCommitsPerSecond);
  const Memory memory = MemoryOf(daemon().pid());
  EXPECT_GT(memory.anonymous_kib, 0);
  EXPECT_LT(memory.anonymous_kib, 4 * 1024);
  EXPECT_LT(memory.resident_kib, 16 * 1024);
}

}  // namespace
}  // namespace kipt::testing
