// SPDX-License-Identifier: Apache-2.0
//
// A node on which a security module refuses what the agent writes, although no capability is
// missing: that is WriteRefused, reported once and retried less and less often.
#include <cerrno>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/matchers.h"
#include "tests/support/write_guard.h"

namespace kipt::testing {
namespace {

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
  static void ForeignCommit(int number) {
    const Iptables ipv4 = {.mode = GetParam()};
    const std::string chain = absl::StrCat("FOREIGN-", number);
    EXPECT_EQ(ipv4.Run({"-t", "nat", "-N", chain}).exit_code, 0);
  }
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

TEST_P(WriteRefusedTest, ChangesByOthersMakeNeitherItsLogNorItsAttemptsAFlood) {
  WriteGuard guard;
  WithWriteGuard(guard, [&] {
    StartRefused(guard);
    // Long enough for waits of a second and more.
    absl::SleepFor(absl::Seconds(3));
    const int before = guard.refused;
    for (int i = 0; i < 60; ++i) ForeignCommit(i);
    // A round of attempts has at most one for both families, each family and each table twice.
    EXPECT_LE(guard.refused - before, 4 * 15);
    EXPECT_EQ(CountOf("is failed: WriteRefused", daemon().Output()), 2) << daemon().Output();
    EXPECT_LE(CountOf("\n", daemon().Output()), 25) << daemon().Output();
  });
}

TEST_P(WriteRefusedTest, AFlushThatMustNotBeRepairedIsReportedAndRepairedLater) {
  WriteGuard guard;
  guard.refuses = false;
  WithWriteGuard(guard, [&] {
    Start(Settings());
    guard.refuses = true;
    const Iptables ipv4 = {.mode = GetParam()};
    EXPECT_EQ(ipv4.Run({"-t", "nat", "-F", "POSTROUTING"}).exit_code, 0);
    ASSERT_TRUE(daemon().Prints("ip is failed: WriteRefused: ")) << daemon().Output();
    EXPECT_FALSE(IsReady());
    guard.refuses = false;
    EXPECT_TRUE(BecomesReady()) << Readyz();
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

class ReadRefusedTest : public DaemonTest {};

// A rougher guard: a system call filter knows no messages.
TEST_F(ReadRefusedTest, AGuardThatRefusesQuestionsTooIsTheSameFinding) {
  WriteGuard guard;
  guard.reads_too = true;
  WithWriteGuard(guard, [&] {
    StartOnly({"--iptables-mode=nft"});
    ASSERT_TRUE(daemon().Prints("ip is failed: WriteRefused: ")) << daemon().Output();
    EXPECT_THAT(Readyz(), NamesTheGuard());
    EXPECT_TRUE(MetricReaches(kFinding, 2, kRefused));
    absl::SleepFor(absl::Seconds(2));
    EXPECT_LE(CountOf("\n", daemon().Output()), 20) << daemon().Output();
    guard.reads_too = false;
    guard.refuses = false;
    EXPECT_TRUE(BecomesReady()) << Readyz();
    EXPECT_EQ(Metric(kFinding, kRefused), 0);
  });
}

class MissingCapabilityTest : public AgentTest,
                              public ::testing::WithParamInterface<IptablesMode> {};

TEST_P(MissingCapabilityTest, WithoutTheCapabilityThatIsWhatIsReported) {
  const AgentSettings settings = {.iptables = GetParam()};
  std::vector<std::string> argv = {"/usr/bin/setpriv", "--inh-caps=-all",
                                   "--bounding-set=-net_admin", AgentProgram(), "sync"};
  for (const std::string& flag : settings.Flags()) argv.push_back(flag);
  // A table that exists has to be read.
  Output({"iptables-legacy", "-t", "nat", "-N", "FOREIGN"});
  const ProgramResult sync = RunProgram(argv);
  EXPECT_EQ(sync.exit_code, kExitFailed) << sync;
  EXPECT_THAT(sync.err, AllOf(HasSubstr("CAP_NET_ADMIN"), Not(HasSubstr("security module"))));
  EXPECT_THAT(sync.out, Not(HasSubstr("WriteRefused")));
}

INSTANTIATE_TEST_SUITE_P(Modes, MissingCapabilityTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& test) { return TestNameOf(test.param); });

}  // namespace
}  // namespace kipt::testing
