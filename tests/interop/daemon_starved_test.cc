// SPDX-License-Identifier: Apache-2.0
//
// Others commit so often that no check reads all of a long chain at one generation.
#include <iostream>
#include <stop_token>
#include <thread>

#include "netlink/backend.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/foreign_writer.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

class DaemonStarvedTest : public DaemonTest {
 protected:
  // So many DROPs of another program at the end of ip filter INPUT, in one commit.
  static void FillInput(int rules) {
    std::string batch;
    for (int i = 0; i < rules; ++i) {
      absl::StrAppend(&batch, "add rule ip filter INPUT ip saddr 10.", i >> 16, ".", i >> 8 & 255,
                      ".", i & 255, " drop\n");
    }
    ASSERT_EQ(RunProgram({"/usr/sbin/nft", "-f", "-"}, batch).exit_code, 0);
  }

  // The thread inherits this one's network namespace.
  void OthersCommitAllTheTime(absl::Duration pause = absl::Milliseconds(20)) {
    others_ = std::jthread([pause](const std::stop_token& stop) {
      const auto writer = ForeignWriter::Create();
      while (writer.ok() && !stop.stop_requested()) {
        (void)(*writer)->CommitChain();
        absl::SleepFor(pause);
      }
    });
  }
  void OthersStop() { others_ = std::jthread(); }

 private:
  std::jthread others_;
};

TEST_F(DaemonStarvedTest, WhatIsDeletedComesBackAndOnceOnly) {
  const AgentSettings settings{.ownership_cleanup = false};
  Start(settings);
  auto writer = ForeignWriter::Create();
  ASSERT_THAT(writer, IsOk());
  const auto backend = netlink::NewNftBackend();
  ASSERT_THAT(backend, IsOk());
  const ChainId input{Family::kIPv4, Table::kFilter, "INPUT"};
  const ChainId firewall{Family::kIPv4, Table::kFilter, "KUBE-FIREWALL"};
  const ChainQuery queries[] = {{.chain = input}, {.chain = firewall}};
  const auto before = (*backend)->Read(queries);
  ASSERT_THAT(before, IsOk());
  ASSERT_NO_FATAL_FAILURE(FillInput(100'000));
  OthersCommitAllTheTime();
  Output({"/usr/sbin/nft", "flush chain ip filter KUBE-FIREWALL"});
  const auto jump = before->Find(input)->rules.at(0);
  ASSERT_THAT((*writer)->Commit({netlink::DeleteRule{
                  .chain = input, .handle = jump.handle, .number = 1, .rule = *jump.rule()}}),
              IsOk());
  const auto jumps_first = [&](const netlink::ObservedChain& chain) {
    const std::string* target = JumpTarget(chain.rules[0]);
    return target != nullptr && *target == firewall.name;
  };
  EXPECT_TRUE(WaitUntil([&] {
    const auto now = (*backend)->ReadTorn(queries, nullptr);
    return now.ok() && !now->Find(input)->rules.empty() && jumps_first(*now->Find(input)) &&
           now->Find(firewall)->rules.size() == before->Find(firewall)->rules.size();
  })) << daemon().Output();
  OthersStop();
  EXPECT_TRUE(BecomesClean(settings)) << daemon().Output();
  EXPECT_EQ(CountOf("-j KUBE-FIREWALL\n", Output({"/usr/sbin/iptables-nft", "-S", "INPUT"})), 1);
}

TEST_F(DaemonStarvedTest, SyncEndsAndItsRepairIsWhole) {
  const AgentSettings settings{.ownership_cleanup = false};
  Sync(settings);
  ASSERT_NO_FATAL_FAILURE(FillInput(20'000));
  OthersCommitAllTheTime(absl::Milliseconds(2));
  Output({"/usr/sbin/iptables-nft", "-t", "nat", "-F", "POSTROUTING"});
  const ProgramResult sync = Agent("sync", settings);
  EXPECT_EQ(sync.exit_code, kExitOk) << sync;
  const ProgramResult plan = Agent("plan", settings);
  EXPECT_EQ(plan.exit_code, kExitOk) << plan;
}

class DaemonStarvedLongTest : public DaemonStarvedTest {};

// Prints the table that netlink/README.md shows.
TEST_F(DaemonStarvedLongTest, RepairsInTimeHoweverOftenOthersCommitAndHowManyRulesTheyHave) {
  const AgentSettings settings{.ownership_cleanup = false};
  for (const int rules : {0, 1'000, 20'000, 100'000}) {
    Output({"/usr/sbin/nft", "flush", "ruleset"});
    Start(settings);
    ASSERT_NO_FATAL_FAILURE(FillInput(rules));
    for (const int per_second : {0, 14, 100, 500}) {
      if (per_second > 0) OthersCommitAllTheTime(absl::Seconds(1) / per_second);
      absl::SleepFor(absl::Seconds(3));
      absl::Duration slowest;
      for (int i = 0; i < 5; ++i) {
        const double before = Metric("kube_iptables_agent_repair_latency_seconds_count");
        const absl::Time damaged = absl::Now();
        Output({"/usr/sbin/iptables-nft", "-t", "nat", "-F", "POSTROUTING"});
        ASSERT_TRUE(MetricReaches("kube_iptables_agent_repair_latency_seconds_count", before + 1));
        slowest = std::max(slowest, absl::Now() - damaged);
      }
      std::cout << rules << " rules, " << per_second << " commits/s: slowest of 5 repairs "
                << slowest << "\n";
      // The first after they came takes as long as they take to be read once.
      EXPECT_LT(slowest, per_second == 0 ? absl::Seconds(6) : absl::Seconds(1));
      OthersStop();
    }
    EXPECT_EQ(Stop(SIGTERM), kExitOk);
  }
}

}  // namespace
}  // namespace kipt::testing
