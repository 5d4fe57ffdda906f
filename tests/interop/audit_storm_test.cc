// SPDX-License-Identifier: Apache-2.0
//
// Damage and repairs while an audit reads all rules: no repair is later for it, and audits end.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "netlink/transaction.h"
#include "tests/interop/audited_host.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/figures.h"
#include "tests/support/foreign_writer.h"
#include "tests/support/generation_listener.h"
#include "tests/support/process_cost.h"
#include "tests/support/service_rules.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::Table;

// The same chain is damaged again when the second is over within which that would be a fight.
constexpr absl::Duration kRest = absl::Milliseconds(1100);
constexpr char kEnded[] = "kube_iptables_agent_audits_total";
// The daemon's comm: 15 characters of its name.
constexpr char kDaemonComm[] = "kube-iptables-a";

class AuditStormTest : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    auto writer = ForeignWriter::Create();
    ASSERT_THAT(writer, IsOk());
    writer_ = *std::move(writer);
  }

  // With the canaries, because nothing jumps to them: one operation takes one of them away.
  void StartAuditing(const std::string& period) {
    std::vector<std::string> flags = host_.Flags(period);
    flags.emplace_back("--iptables-sync-period=1h");
    Start({.ownership_cleanup = false}, flags);
    auto listener = GenerationListener::Create();
    ASSERT_THAT(listener, IsOk());
    listener_ = *std::move(listener);
  }

  // Takes away the chain that was damaged longest ago. From before that commit to the repair's.
  absl::StatusOr<absl::Duration> DamageUntilRepaired() {
    absl::SleepFor(damaged_[next_] + kRest - absl::Now());
    if (const auto before = listener_->Drain(); !before.ok()) return before.status();
    const absl::Time start = damaged_[next_] = absl::Now();
    const auto took = writer_->Commit({netlink::DeleteChain{kChains[next_]}});
    if (!took.ok()) return took.status();
    next_ = (next_ + 1) % kChains.size();
    while (absl::Now() < start + kPatience) {
      pollfd readable = {.fd = listener_->fd(), .events = POLLIN, .revents = 0};
      poll(&readable, 1, 100);
      const absl::Time now = absl::Now();
      const auto changes = listener_->Drain();
      if (!changes.ok()) return changes.status();
      for (const GenerationChange& change : *changes) {
        if (change.process == kDaemonComm) return now - start;
      }
    }
    return absl::DeadlineExceededError("a chain was not repaired:\n" + daemon().Output());
  }

  size_t Threads() { return ThreadCosts(daemon().pid()).size(); }

  static double Ended() { return Metric(kEnded); }
  static double Done() { return Metric(kEnded, "result=\"done\""); }

 private:
  static inline const std::array<ChainId, 8> kChains = {
      {{Family::kIPv4, Table::kMangle, "KUBE-IPTABLES-HINT"},
       {Family::kIPv4, Table::kMangle, "KUBE-KUBELET-CANARY"},
       {Family::kIPv4, Table::kNat, "KUBE-KUBELET-CANARY"},
       {Family::kIPv4, Table::kFilter, "KUBE-KUBELET-CANARY"},
       {Family::kIPv6, Table::kMangle, "KUBE-IPTABLES-HINT"},
       {Family::kIPv6, Table::kMangle, "KUBE-KUBELET-CANARY"},
       {Family::kIPv6, Table::kNat, "KUBE-KUBELET-CANARY"},
       {Family::kIPv6, Table::kFilter, "KUBE-KUBELET-CANARY"}}};

  const AuditedHost host_;
  std::unique_ptr<ForeignWriter> writer_;
  std::unique_ptr<GenerationListener> listener_;
  std::array<absl::Time, 8> damaged_ = {};
  size_t next_ = 0;
};

TEST_F(AuditStormTest, AuditsEndWhileDamageAndRepairsGoOn) {
  ASSERT_NO_FATAL_FAILURE(StartAuditing("1s"));
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  int repairs = 0;
  while ((Done() < 3 || repairs < 20) && absl::Now() < deadline) {
    ASSERT_THAT(DamageUntilRepaired(), IsOk());
    ++repairs;
  }
  EXPECT_GE(Done(), 3) << daemon().Output();
  EXPECT_EQ(Metric("kube_iptables_agent_drift_detected_total"), repairs);
  EXPECT_EQ(CountOf("OwnershipFight", daemon().Output()), 0);
}

class AuditStormTimeTest : public AuditStormTest {};

// In turns, so that a slow minute of the machine is everybody's.
TEST_F(AuditStormTimeTest, NoRepairIsLaterBecauseAnAuditReadsAHundredThousandRules) {
  ASSERT_THAT(LoadServices(IptablesMode::kNft, 5000), IsOk());
  Figures without;
  Figures with;
  double ended = 0;
  for (int turn = 0; turn < 10; ++turn) {
    ASSERT_NO_FATAL_FAILURE(StartAuditing("1h"));
    for (int i = 0; i < 6; ++i) {
      const auto took = DamageUntilRepaired();
      ASSERT_THAT(took, IsOk());
      without.Add(*took);
    }
    const size_t at_rest = Threads();
    ASSERT_NO_FATAL_FAILURE(StartAuditing("1s"));
    ASSERT_TRUE(WaitUntil([&] { return Threads() > at_rest; })) << "no audit begins";
    for (int i = 0; i < 12; ++i) {
      const auto took = DamageUntilRepaired();
      ASSERT_THAT(took, IsOk());
      // Only the one audit since the start: the next begins much later.
      if (Threads() == at_rest) break;
      with.Add(*took);
    }
    ASSERT_TRUE(MetricReaches(kEnded, 1)) << daemon().Output();
    ended += Ended();
  }
  EXPECT_EQ(ended, 10) << "each audit has ended";
  ASSERT_GE(with.count(), 20U);
  std::cout << "damage to repaired in ms, " << without.count() << " without an audit: median "
            << InMilliseconds(without.Median()) << ", p90 " << InMilliseconds(without.Quantile(0.9))
            << "; " << with.count() << " during one: median " << InMilliseconds(with.Median())
            << ", p90 " << InMilliseconds(with.Quantile(0.9)) << "\n";
  EXPECT_LE(with.Median(), without.Median() + absl::Milliseconds(1));
  EXPECT_LE(with.Quantile(0.9), without.Quantile(0.9) + absl::Milliseconds(5));
}

}  // namespace
}  // namespace kipt::testing
