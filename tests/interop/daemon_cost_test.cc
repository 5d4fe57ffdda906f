// SPDX-License-Identifier: Apache-2.0
//
// What the daemon costs a node, in brief: counts are exact, times have room for a busy machine and
// a build without optimisation. tests/bench/run has the figures. And a daemon for years: what it
// has lived through leaves nothing behind.
#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/foreign_writer.h"
#include "tests/support/process_cost.h"

namespace kipt::testing {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::Table;

// For what follows the last event: a look that was put off.
constexpr absl::Duration kSettling = absl::Milliseconds(500);
constexpr int kRules = 40000;
constexpr int kCommitsPerSecond = 200;

// Next to a program that commits as fast as can be.
class BesideAWriterTest : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    auto writer = ForeignWriter::Create();
    ASSERT_TRUE(writer.ok()) << writer.status();
    writer_ = *std::move(writer);
  }

  ForeignWriter& writer() { return *writer_; }

 private:
  std::unique_ptr<ForeignWriter> writer_;
};

class DaemonCostTest : public BesideAWriterTest {
 protected:
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

// ---- for years ----

// The same chain is damaged again when the second is over within which that would be a fight.
constexpr absl::Duration kRest = absl::Milliseconds(1100);

// Chains that nothing jumps to: taken away by one operation.
std::vector<ChainId> LooseChains() {
  std::vector<ChainId> chains;
  for (const Family family : netlink::kFamilies) {
    chains.push_back({family, Table::kMangle, "KUBE-IPTABLES-HINT"});
    for (const Table table : netlink::kTables) {
      chains.push_back({family, table, "KUBE-KUBELET-CANARY"});
    }
  }
  return chains;
}

struct Size {
  int64_t anonymous_kib = 0;
  int descriptors = 0;
  friend std::ostream& operator<<(std::ostream& stream, const Size& size) {
    return stream << size.anonymous_kib << " KiB, " << size.descriptors << " descriptors";
  }
};

class DaemonGrowthTest : public BesideAWriterTest {
 protected:
  // `commits` of somebody else's, with `incidents` spread among them.
  void LiveThrough(int commits, int incidents) {
    int damaged = 0;
    for (int i = 0; i < commits; ++i) {
      const absl::StatusOr<absl::Duration> took = writer().CommitChain();
      ASSERT_TRUE(took.ok()) << took.status();
      // 64 bits: a million times hundreds.
      if (int64_t{i} * incidents < int64_t{damaged} * commits) continue;
      ASSERT_NO_FATAL_FAILURE(Damage());
      ++damaged;
    }
    ASSERT_TRUE(MetricReaches("kube_iptables_agent_drift_detected_total", damages_));
  }

  Size SizeNow() {
    EXPECT_TRUE(ComesToRest(daemon().pid()));
    return {MemoryOf(daemon().pid()).anonymous_kib, DescriptorsOf(daemon().pid())};
  }

  void ExpectNoGrowth(int commits, int incidents) {
    // The mode with the canaries.
    Start({.ownership_cleanup = false}, {"--iptables-sync-period=1h"});
    LiveThrough(commits / 3, incidents / 3);
    if (HasFatalFailure()) return;
    const Size early = SizeNow();
    LiveThrough(commits - commits / 3, incidents - incidents / 3);
    if (HasFatalFailure()) return;
    const Size late = SizeNow();
    const double lost = Metric("kube_iptables_agent_events_overrun_total");
    std::cout << "after a third: " << early << "; at the end: " << late << "; "
              << Metric("kube_iptables_agent_syncs_total") << " rounds, " << lost
              << " events lost, CPU "
              << absl::FormatDuration(Spent({}, ThreadCosts(daemon().pid())).cpu) << "\n";
    // Its own commits may be among those that were lost.
    EXPECT_GE(Metric("kube_iptables_agent_external_changes_total") + lost, commits + damages_);
    if (lost == 0) {
      EXPECT_EQ(Metric("kube_iptables_agent_external_changes_total"), commits + damages_);
    }
    EXPECT_LE(late.anonymous_kib, early.anonymous_kib + 256);
    EXPECT_EQ(late.descriptors, early.descriptors);
    EXPECT_EQ(CountOf("OwnershipFight", daemon().Output()), 0);
  }

 private:
  // Takes away, of all the chains, the one that was damaged longest ago.
  void Damage() {
    const size_t next = static_cast<size_t>(damages_) % chains_.size();
    absl::SleepFor(damaged_[next] + kRest - absl::Now());
    const absl::StatusOr<absl::Duration> took =
        writer().Commit({netlink::DeleteChain{chains_[next]}});
    ASSERT_TRUE(took.ok()) << took.status();
    damaged_[next] = absl::Now();
    ++damages_;
  }

  const std::vector<ChainId> chains_ = LooseChains();
  std::vector<absl::Time> damaged_ = std::vector(chains_.size(), absl::InfinitePast());
  int damages_ = 0;
};

TEST_F(DaemonGrowthTest, DoesNotGrowOverThirtyThousandCommits) { ExpectNoGrowth(30000, 120); }

class DaemonMillionTest : public DaemonGrowthTest {};

TEST_F(DaemonMillionTest, DoesNotGrowOverAMillionCommits) { ExpectNoGrowth(1000000, 600); }

}  // namespace
}  // namespace kipt::testing
