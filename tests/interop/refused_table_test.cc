// SPDX-License-Identifier: Apache-2.0
//
// A table that only its owner can write, or that refuses our chain: the other tables of its family
// are made and repaired all the same.
#include <cerrno>

#include "tests/interop/daemon_fixture.h"
#include "tests/support/write_guard.h"

namespace kipt::testing {
namespace {

constexpr char kHint[] = "KUBE-IPTABLES-HINT";

struct Refusal {
  std::string name;
  IptablesMode iptables = IptablesMode::kNft;
  // The table that is refused, and one whose rules must be there.
  std::string refused;
  std::string other_table;
  std::string other_chain;
  // A base chain is found before anything is written.
  int sync_exit = kExitFailed;
};

void PrintTo(const Refusal& row, std::ostream* out) { *out << row.name; }

class RefusedTableTest : public DaemonTest, public ::testing::WithParamInterface<Refusal> {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    if (HasFatalFailure()) return;
    if (GetParam().iptables == IptablesMode::kLegacy) {
      // As where the kernel refuses table nat of IPv4.
      replaced_ = PutBeforeLegacyPrograms(directory_, R"(
          if [ $name = iptables-legacy-restore ]; then
            text=$(cat)
            case $text in *'*nat'*) echo refused >&2; exit 1;; esac
            printf '%s\n' "$text" | exec "$dir/real/$name" "$@"
          fi)");
    } else if (GetParam().refused == "nat") {
      owner_ = std::make_unique<BackgroundProgram>(
          std::vector<std::string>{"/bin/bash", "-c",
                                   "exec nft -i < <(echo 'add table ip nat { flags owner; }'; exec "
                                   "tail --pid=$$ -f /dev/null)"});
      ASSERT_TRUE(WaitUntil([] {
        return RunProgram({"/usr/sbin/nft", "list", "table", "ip", "nat"}).exit_code == 0;
      })) << owner_->Output();
    } else {
      Output({"/usr/sbin/nft",
              "add table ip filter; add chain ip filter KUBE-FIREWALL { type filter "
              "hook input priority 10; }"});
    }
  }

  static AgentSettings Settings() {
    return {.ownership_cleanup = false, .iptables = GetParam().iptables};
  }
  static Iptables Ipv4() { return {.mode = GetParam().iptables}; }
  static std::string Saved(const std::string& table) { return Ipv4().Save(table).out; }
  static void ExpectTheOthers() {
    EXPECT_THAT(Saved("mangle"), HasSubstr(kHint));
    EXPECT_THAT(Saved(GetParam().other_table),
                HasSubstr(absl::StrCat(":", GetParam().other_chain)));
    const Iptables ipv6 = {.family = IpFamily::kIpv6, .mode = GetParam().iptables};
    EXPECT_THAT(ipv6.Save("nat").out, HasSubstr(":KUBE-MARK-DROP"));
  }

  const TemporaryTree directory_;
  std::unique_ptr<InPlaceOf> replaced_;
  std::unique_ptr<BackgroundProgram> owner_;
};

TEST_P(RefusedTableTest, ASyncMakesAndRepairsTheOthersAndReportsIt) {
  for (int i = 0; i < 2; ++i) {
    const ProgramResult sync = Agent("sync", Settings());
    EXPECT_EQ(sync.exit_code, GetParam().sync_exit) << sync;
    ExpectTheOthers();
    Change(Ipv4(), {"-t", "mangle", "-X", kHint});
    const std::string& chain = GetParam().other_chain;
    Change(Ipv4(), {"-t", GetParam().other_table, "-F", chain});
  }
}

TEST_P(RefusedTableTest, ADaemonRepairsTheOthersAtOnceAndIsNotReady) {
  std::vector<std::string> flags = Settings().Flags();
  flags.push_back("--iptables-sync-period=60s");
  StartOnly(flags);
  ASSERT_TRUE(daemon().Prints("ip is failed: ")) << daemon().Output();
  ASSERT_TRUE(daemon().Prints("ip6 is in place")) << daemon().Output();
  for (int i = 1; i <= 3; ++i) {
    Change(Ipv4(), {"-t", "mangle", "-X", kHint});
    ASSERT_TRUE(WaitUntil([] { return Saved("mangle").find(kHint) != std::string::npos; },
                          absl::Seconds(5)))
        << i << daemon().Output();
  }
  EXPECT_FALSE(IsReady());
  ExpectTheOthers();
  EXPECT_GE(Metric("kube_iptables_agent_drift_detected_total", "chain=\"KUBE-IPTABLES-HINT\""), 3);
}

INSTANTIATE_TEST_SUITE_P(
    Refusals, RefusedTableTest,
    ::testing::Values(Refusal{"OwnedNat", IptablesMode::kNft, "nat", "filter", "KUBE-FIREWALL"},
                      Refusal{"FirewallIsABaseChain", IptablesMode::kNft, "filter", "nat",
                              "KUBE-MARK-DROP", kExitDifferences},
                      Refusal{"LegacyNat", IptablesMode::kLegacy, "nat", "filter",
                              "KUBE-FIREWALL"}),
    [](const auto& row) { return row.param.name; });

// A node on which a security module refuses what the agent writes, although no capability is
// missing: that is WriteRefused, reported once and retried less and less often.

constexpr char kFinding[] = "kube_iptables_agent_findings";
constexpr char kRefused[] = "condition=\"WriteRefused\"";

// What to do, and not what is not the reason.
auto NamesTheGuard() {
  return AllOf(HasSubstr("a security module (SELinux, a BPF LSM)"),
               Not(HasSubstr("needs CAP_NET_ADMIN")), Not(HasSubstr("missing")));
}

class WriteRefusedTest : public DaemonTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static AgentSettings Settings() { return {.ownership_cleanup = false, .iptables = GetParam()}; }
  void StartRefused(WriteGuard& guard) {
    StartOnly(Settings().Flags());
    ASSERT_TRUE(daemon().Prints("ip is failed: WriteRefused: ")) << daemon().Output();
    ASSERT_TRUE(daemon().Prints("ip6 is failed: WriteRefused: ")) << daemon().Output();
    EXPECT_GT(guard.refused, 0);
  }
};

TEST_P(WriteRefusedTest, ADaemonReportsItOnceAndWritesWhenItMay) {
  WriteGuard guard;
  WithWriteGuard(guard, [&] {
    StartRefused(guard);
    // The log comes before what the endpoints show.
    EXPECT_TRUE(MetricReaches(kFinding, 2, kRefused)) << "in each family";
    EXPECT_THAT(Readyz(), AllOf(HasSubstr("[-]ip failed: "), NamesTheGuard()));
    EXPECT_THAT(HttpGet(kMetricsPort, "/statusz").body, HasSubstr("[critical] WriteRefused in ip"));
    guard.refuses = false;
    EXPECT_TRUE(BecomesReady()) << Readyz();
    EXPECT_EQ(Metric(kFinding, kRefused), 0);
    ExpectNothingPlanned(Settings());
  });
}

TEST_P(WriteRefusedTest, ASyncEndsWithAnErrorThatNamesTheGuard) {
  for (const int error : {EPERM, EACCES}) {
    WriteGuard guard;
    guard.error = error;
    WithWriteGuard(guard, [&] {
      const ProgramResult sync = Agent("sync", Settings());
      EXPECT_EQ(sync.exit_code, kExitFailed) << sync;
      EXPECT_THAT(sync.err, NamesTheGuard());
      EXPECT_THAT(sync.out, HasSubstr("WriteRefused"));
    });
    EXPECT_GT(guard.refused, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, WriteRefusedTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& test) { return TestNameOf(test.param); });

}  // namespace
}  // namespace kipt::testing
