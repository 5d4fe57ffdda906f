// SPDX-License-Identifier: Apache-2.0
//
// What the agent costs next to 10,000 services. All of kube-proxy's 220,000 rules have to be read
// to find the users of kubelet's chains. Before every change, next to a tenth of them.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/interop/daemon_fixture.h"
#include "tests/support/process_cost.h"
#include "tests/support/service_rules.h"

namespace kipt::testing {
namespace {

using nlohmann::json;

class ManyServicesTest : public DaemonTest {
 protected:
  static void Change(IptablesMode mode, const std::vector<std::string>& arguments) {
    for (const IpFamily family : kBothFamilies) {
      DaemonTest::Change({.family = family, .mode = mode}, arguments);
    }
  }
};

struct Row {
  IptablesMode mode;
  const char* name;
  int services;
  // The time: that of a busy machine, whose processors do half as much.
  absl::Duration longest;
  int64_t largest_kib;
};
constexpr Row kRows[] = {
    {IptablesMode::kNft, "NftAThousand", 1000, absl::Seconds(1), 60 * 1024},
    {IptablesMode::kLegacy, "LegacyAThousand", 1000, absl::Seconds(1), 60 * 1024},
    {IptablesMode::kNft, "NftTenThousand", 10000, absl::Seconds(3), 200 * 1024},
    {IptablesMode::kLegacy, "LegacyTenThousand", 10000, absl::Seconds(3), 200 * 1024},
};

class OwnershipCostTest : public ManyServicesTest, public ::testing::WithParamInterface<Row> {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    for (const IpFamily family : kBothFamilies) {
      Kubelet(KubeletForm::k1_27GateOff, {.family = family, .mode = GetParam().mode});
    }
    ASSERT_THAT(LoadServices(GetParam().mode, GetParam().services), IsOk());
  }

  std::vector<std::string> CommonFlags() const {
    return {"--cni-conf-dir=" + no_cni_.root(),
            absl::StrCat("--iptables-mode=", NameOf(GetParam().mode))};
  }
  // What a command prints. The cheapest of up to three counts, of the agent and of the programs
  // that it runs: others use this machine too, and its caches.
  json OfCheapCommand(const std::vector<std::string>& arguments, int exit_code) const {
    const Words argv = Words{AgentProgram()} + arguments + CommonFlags() + Words{"--output=json"};
    absl::Duration cpu = absl::InfiniteDuration();
    std::string output;
    for (int i = 0; i < 3 && cpu >= GetParam().longest; ++i) {
      const absl::Duration before = CpuOfChildren();
      int64_t peak_kib = 0;
      BackgroundProgram program(argv);
      while (program.Running()) {
        peak_kib = std::max(peak_kib, MemoryOf(program.pid()).peak_kib);
        absl::SleepFor(absl::Milliseconds(1));
      }
      EXPECT_EQ(program.Wait(), exit_code);
      cpu = std::min(cpu, CpuOfChildren() - before);
      EXPECT_GT(peak_kib, 0);
      EXPECT_LT(peak_kib, GetParam().largest_kib);
      output = program.Output();
    }
    EXPECT_LT(cpu, GetParam().longest);
    return json::parse(output, nullptr, /*allow_exceptions=*/false);
  }
  int64_t Anonymous() { return MemoryOf(daemon().pid()).anonymous_kib; }

  const NoCniUser no_cni_;
  const TemporaryFile file_{kConfigHead};
};

TEST_P(OwnershipCostTest, AuditAndExplainOfManyServicesAreQuickAndSmall) {
  const json report = OfCheapCommand({"audit"}, kExitDifferences);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["kubeProxy"].size(), 2);
  EXPECT_EQ(report["kubeProxy"][0]["mode"], "iptables");
  const json families = OfCheapCommand({"explain", "nat/KUBE-MARK-MASQ"}, kExitOk);
  ASSERT_EQ(families.size(), 2);
  // Of each service, in each family: its own chain, and those of its three endpoints.
  for (const json& family : families) EXPECT_EQ(family["users"], 4 * GetParam().services);
}

TEST_P(OwnershipCostTest, TheDaemonStaysSmallAfterItHasReadEverything) {
  constexpr int64_t kLargestDaemonKib = 16 * 1024;
  const auto write_config = [&](const std::string& period) {
    std::ofstream(file_.path()) << kConfigHead << "iptablesSyncPeriod: " << period << "\n";
  };
  // This kube-proxy (1.25) needs no KUBE-MARK-DROP, so that only the third party claims it.
  Change(GetParam().mode, {"-t", "filter", "-N", "KUBE-PROXY-FIREWALL"});
  Change(GetParam().mode, {"-t", "nat", "-N", "THIRD-PARTY"});
  Change(GetParam().mode, {"-t", "nat", "-A", "THIRD-PARTY", "-p", "udp", "-j", "KUBE-MARK-DROP"});
  write_config("1h");
  StartOnly(CommonFlags() + Words{"--config=" + file_.path(), "--stale-chains=retire"});
  ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  // Each new configuration triggers a check.
  for (int i = 1; i <= 5; ++i) {
    write_config(absl::StrCat(i, "h30m"));
    ASSERT_TRUE(daemon().Prints("Using the new configuration", i)) << daemon().Output();
    ASSERT_TRUE(MetricReaches("kube_iptables_agent_syncs_total", i + 1));
  }
  EXPECT_EQ(Metric("kube_iptables_agent_foreign_references", "chain=\"KUBE-MARK-DROP\""), 2);
  EXPECT_EQ(
      Metric("kube_iptables_agent_stale_claims", "chain=\"KUBE-MARK-DROP\",claim=\"foreignJump\""),
      2);
  // Memory may be larger during a check.
  EXPECT_TRUE(WaitUntil([this] { return Anonymous() < kLargestDaemonKib; })) << Anonymous();
  EXPECT_GT(Anonymous(), 0);
}

INSTANTIATE_TEST_SUITE_P(Services, OwnershipCostTest, ::testing::ValuesIn(kRows),
                         [](const auto& row) { return row.param.name; });

// ---- for how long other programs wait for xtables.lock while the agent writes ----
//
// kubelet and kube-proxy wait for 5 s; from 1.34 on they then count their canary as lost, and write
// all their rules again.

struct LockRow {
  const char* name;
  int services;
  absl::Duration longest;
};
constexpr LockRow kLockRows[] = {
    // How fast a busy machine is, is not judged here.
    {"AThousand", 1000, absl::InfiniteDuration()},
    // `iptables -w 5` waits for twice that, which is how kubelet and kube-proxy run it.
    {"TenThousand", 10000, absl::Milliseconds(2500)},
};

struct LockCost {
  absl::Duration cpu;
  // The longest that another program waited for the lock.
  absl::Duration waited;
};

LockCost CostOf(const std::function<void()>& act) {
  std::atomic<bool> ended = false;
  LockCost cost;
  // As iptables does: by a flock(2) that blocks.
  std::thread other([&] {
    while (!ended) {
      const int fd = open("/run/xtables.lock", O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
      ASSERT_GE(fd, 0);
      const absl::Time start = absl::Now();
      ASSERT_EQ(flock(fd, LOCK_EX), 0);
      cost.waited = std::max(cost.waited, absl::Now() - start);
      close(fd);
      absl::SleepFor(absl::Milliseconds(1));
    }
  });
  const absl::Duration before = CpuOfChildren();
  act();
  cost.cpu = CpuOfChildren() - before;
  ended = true;
  other.join();
  return cost;
}

class LockHoldTest : public ManyServicesTest, public ::testing::WithParamInterface<LockRow> {};

TEST_P(LockHoldTest, NextToManyServicesItIsAtMostThreeCallsOfKubelets) {
  ASSERT_THAT(LoadServices(IptablesMode::kLegacy, GetParam().services), IsOk());
  const AgentSettings settings = {.ownership_cleanup = false, .iptables = IptablesMode::kLegacy};
  const auto change = [](const std::vector<std::string>& arguments) {
    Change(IptablesMode::kLegacy, arguments);
  };
  Sync(settings);
  // Of a check that writes nothing, so that it takes no lock.
  const absl::Duration check = CostOf([&] { Sync(settings); }).cpu;
  // One call of kubelet's in table nat reads and writes that table; the agent also reads it for its
  // last check, and understands it.
  const LockCost call = CostOf([&] { change({"-t", "nat", "-N", "ONE-CALL"}); });
  const absl::Duration longest = std::min(GetParam().longest, 3 * call.cpu);
  const std::vector<std::string> nat = {"-t", "nat", "-F", "KUBE-MARK-DROP"};
  const std::vector<std::string> filter = {"-t", "filter", "-F", "KUBE-FIREWALL"};
  const std::vector<std::string> mangle = {"-t", "mangle", "-X", "KUBE-IPTABLES-HINT"};
  for (const std::vector<std::vector<std::string>>& damage :
       std::vector<std::vector<std::vector<std::string>>>{{nat}, {filter}, {nat, filter, mangle}}) {
    SCOPED_TRACE(absl::StrCat(damage[0][1], " and more: ", damage.size()));
    // Where each runs alone the time that the lock is held is at most the CPU time of what runs
    // meanwhile, on one processor: the cheapest of three, for others use this machine too.
    absl::Duration best = absl::InfiniteDuration();
    for (int i = 0; i < 3 && best >= longest; ++i) {
      for (const std::vector<std::string>& one : damage) change(one);
      const LockCost cost = CostOf([&] { Sync(settings); });
      EXPECT_GT(cost.waited, absl::Milliseconds(1)) << "it wrote without the lock";
      best = std::min(best, cost.cpu - check);
    }
    ExpectNothingPlanned(settings);
    EXPECT_LT(best, longest);
  }
}

INSTANTIATE_TEST_SUITE_P(Services, LockHoldTest, ::testing::ValuesIn(kLockRows),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace kipt::testing
