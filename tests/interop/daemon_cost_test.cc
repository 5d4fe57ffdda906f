// SPDX-License-Identifier: Apache-2.0
//
// What the daemon costs a node, in brief: counts are exact, times have room for a busy machine and
// a build without optimisation. tests/bench/run has the figures. And a daemon for years: its memory
// and descriptors do not grow.
#include <cstdint>

#include "netlink/ruleset.h"
#include "netlink/transaction.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/foreign_writer.h"
#include "tests/support/process_cost.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

constexpr int kRules = 40000;

class DaemonCostTest : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    auto writer = ForeignWriter::Create();
    ASSERT_TRUE(writer.ok()) << writer.status();
    writer_ = *std::move(writer);
  }
  std::map<pid_t, ThreadCost> Costs() { return ThreadCosts(daemon().pid()); }

  // A program that commits as fast as can be.
  std::unique_ptr<ForeignWriter> writer_;
};

TEST_F(DaemonCostTest, WakesOnceForFortyThousandRulesInOneTransactionAndStaysSmall) {
  Start({}, {"--iptables-sync-period=1h"});
  EXPECT_TRUE(ComesToRest(daemon().pid()));
  const auto before = Costs();
  ASSERT_THAT(writer_->CommitRules(kRules), IsOk());
  // A delayed check would follow the last event.
  absl::SleepFor(absl::Milliseconds(500));
  const auto after = Costs();
  EXPECT_EQ(Spent(before, after).wakeups, 1) << WakeupsText(before, after);
  EXPECT_LT(Spent(before, after).cpu, absl::Milliseconds(20));
  EXPECT_EQ(Metric("kube_iptables_agent_external_changes_total"), 1);
  const Memory memory = MemoryOf(daemon().pid());
  EXPECT_GT(memory.anonymous_kib, 0);
  EXPECT_LT(memory.anonymous_kib, 4 * 1024);
  EXPECT_LT(memory.resident_kib, 16 * 1024);
}

TEST_F(DaemonCostTest, IdleWakesForItsTimerOnly) {
  // Three syncs, and at most one of them in addition to those that are due.
  Start({}, {"--iptables-sync-period=2s"});
  EXPECT_TRUE(ComesToRest(daemon().pid()));
  const auto before = Costs();
  absl::SleepFor(absl::Seconds(5));
  const auto after = Costs();
  EXPECT_GE(Spent(before, after).wakeups, 2) << WakeupsText(before, after);
  EXPECT_LE(Spent(before, after).wakeups, 3) << WakeupsText(before, after);
}

// The same chain is damaged again when the second is over within which that would be a fight.
constexpr absl::Duration kRest = absl::Milliseconds(1100);

class DaemonGrowthTest : public DaemonCostTest {
 protected:
  void SetUp() override {
    DaemonCostTest::SetUp();
    // Chains that nothing jumps to: taken away by one operation.
    for (const Family family : netlink::kFamilies) {
      chains_.push_back({family, Table::kMangle, "KUBE-IPTABLES-HINT"});
      for (const Table table : netlink::kTables) {
        chains_.push_back({family, table, "KUBE-KUBELET-CANARY"});
      }
    }
    damaged_.resize(chains_.size(), absl::InfinitePast());
  }
  // `commits` of another program's, with `incidents` spread among them.
  void LiveThrough(int commits, int incidents) {
    int damaged = 0;
    for (int i = 0; i < commits; ++i) {
      ASSERT_THAT(writer_->CommitChain(), IsOk());
      // 64 bits: a million times hundreds.
      if (int64_t{i} * incidents < int64_t{damaged} * commits) continue;
      // Of all the chains, the one that was damaged longest ago.
      const size_t next = static_cast<size_t>(damages_++) % chains_.size();
      absl::SleepFor(damaged_[next] + kRest - absl::Now());
      ASSERT_THAT(writer_->Commit({netlink::DeleteChain{chains_[next]}}), IsOk());
      damaged_[next] = absl::Now();
      ++damaged;
    }
    ASSERT_TRUE(MetricReaches("kube_iptables_agent_drift_detected_total", damages_));
    EXPECT_TRUE(ComesToRest(daemon().pid()));
  }

  std::vector<ChainId> chains_;
  std::vector<absl::Time> damaged_;
  int damages_ = 0;
};

TEST_F(DaemonGrowthTest, DoesNotGrowOverThirtyThousandCommits) {
  constexpr int kCommits = 30000;
  // The mode with the canaries.
  Start({.ownership_cleanup = false}, {"--iptables-sync-period=1h"});
  ASSERT_NO_FATAL_FAILURE(LiveThrough(kCommits / 3, 40));
  const int64_t early_kib = MemoryOf(daemon().pid()).anonymous_kib;
  const int early_descriptors = DescriptorsOf(daemon().pid());
  ASSERT_NO_FATAL_FAILURE(LiveThrough(kCommits - kCommits / 3, 80));
  EXPECT_LE(MemoryOf(daemon().pid()).anonymous_kib, early_kib + 256);
  EXPECT_EQ(DescriptorsOf(daemon().pid()), early_descriptors);
  const double lost = Metric("kube_iptables_agent_events_overrun_total");
  const double counted = Metric("kube_iptables_agent_external_changes_total");
  // Its own commits may be among those that were lost.
  EXPECT_GE(counted + lost, kCommits + damages_);
  if (lost == 0) {
    EXPECT_EQ(counted, kCommits + damages_);
  }
  EXPECT_EQ(CountOf("OwnershipFight", daemon().Output()), 0);
}

}  // namespace
}  // namespace kipt::testing
