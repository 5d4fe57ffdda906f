// SPDX-License-Identifier: Apache-2.0
//
// Beside others who keep the same rules: a second agent, a kubelet, a kube-proxy. Nothing is there
// twice, nothing of theirs is removed, and nobody undoes what another does.
#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/generation_listener.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

constexpr char kIncident[] = "Repaired in";

// For what needs a moment: two who repair at once may leave a rule twice until one of them looks.
bool NothingIsDoubled(IptablesMode mode) {
  return WaitUntil(
      [mode] {
        for (const IpFamily family : kBothFamilies) {
          if (!SavedRules::Of({.family = family, .mode = mode}).DoubledRules().empty())
            return false;
        }
        return true;
      },
      absl::Seconds(5));
}

// Deletes the jump to KUBE-POSTROUTING.
void StrikeJump(const Iptables& iptables) {
  const ProgramResult result =
      iptables.Run({"-w", "-t", "nat", "-D", "POSTROUTING", "-m", "comment", "--comment",
                    "kubernetes postrouting rules", "-j", "KUBE-POSTROUTING"});
  EXPECT_EQ(result.exit_code, 0) << result;
}

class TwoAgentsTest : public DaemonTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static AgentSettings Settings() { return {.ownership_cleanup = false, .iptables = GetParam()}; }
  static Iptables Of(IpFamily family) { return {.family = family, .mode = GetParam()}; }
};

TEST_P(TwoAgentsTest, RepairTheSameDamageWithoutDoublingOrUndoingEachOther) {
  Start(Settings());
  std::vector<std::string> second_argv = {AgentProgram(), "run",
                                          "--healthz-bind-address=127.0.0.1:10280",
                                          "--metrics-bind-address=127.0.0.1:10281"};
  for (const std::string& flag : Settings().Flags()) second_argv.push_back(flag);
  BackgroundProgram second(second_argv);
  ASSERT_TRUE(WaitUntil([] { return HttpGet(10280, "/readyz").status == 200; })) << second.Output();
  const SavedRules before_ip4 = SavedRules::Of(Of(IpFamily::kIpv4));
  const SavedRules before_ip6 = SavedRules::Of(Of(IpFamily::kIpv6));

  constexpr int kStrikes = 10;
  for (int i = 0; i < kStrikes; ++i) {
    const Iptables iptables = Of(i % 2 == 0 ? IpFamily::kIpv4 : IpFamily::kIpv6);
    switch (i % 3) {
      case 0:
        StrikeJump(iptables);
        break;
      case 1:
        EXPECT_EQ(iptables.Run({"-w", "-F", "KUBE-FIREWALL"}).exit_code, 0);
        break;
      default:
        EXPECT_EQ(iptables.Run({"-w", "-t", "nat", "-F"}).exit_code, 0);
    }
    // More would be a fight. On a busy machine repairs may take longer.
    absl::SleepFor(absl::Seconds(1));
    WaitUntil([&] {
      return SavedRules::Of(Of(IpFamily::kIpv4)) == before_ip4 &&
             SavedRules::Of(Of(IpFamily::kIpv6)) == before_ip6;
    });
    EXPECT_EQ(SavedRules::Of(Of(IpFamily::kIpv4)), before_ip4) << "strike " << i;
    EXPECT_EQ(SavedRules::Of(Of(IpFamily::kIpv6)), before_ip6) << "strike " << i;
  }
  const auto listener = GenerationListener::Create();
  ASSERT_THAT(listener, IsOk());
  const auto incidents = [&] {
    return CountOf(kIncident, daemon().Output()) + CountOf(kIncident, second.Output());
  };
  const int told = incidents();
  absl::SleepFor(absl::Seconds(2));
  const auto changes = (*listener)->Drain();
  ASSERT_THAT(changes, IsOk());
  EXPECT_THAT(*changes, IsEmpty()) << "somebody still writes";
  EXPECT_EQ(incidents(), told);
  // Whoever came second found it in place.
  EXPECT_GE(told, kStrikes);
  EXPECT_LE(told, 2 * kStrikes);
  EXPECT_EQ(Metric("kube_iptables_agent_duplicates_removed_total"), 0);
  EXPECT_EQ(CountOf("OwnershipFight", daemon().Output() + second.Output()), 0);
  second.Signal(SIGTERM);
  EXPECT_EQ(second.Wait(), kExitOk);
}

INSTANTIATE_TEST_SUITE_P(Modes, TwoAgentsTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

struct Company {
  std::string kube_proxy;
  KubeletForm kubelet;
  IptablesMode mode;
};

class DaemonCompanyTest : public DaemonTest, public ::testing::WithParamInterface<Company> {
 protected:
  static AgentSettings Settings() {
    return {.ownership_cleanup = false, .iptables = GetParam().mode};
  }
  static Iptables Of(IpFamily family) { return {.family = family, .mode = GetParam().mode}; }
  static std::vector<std::string> KubeProxy(const std::string& between) {
    return {KIPT_KUBE_PROXY_LIKE, NameOf(GetParam().mode), KIPT_KUBE_PROXY_INPUTS,
            GetParam().kube_proxy, between};
  }
  // What kube-proxy alone makes.
  static SavedRules OfKubeProxy() {
    const Netns netns = NewNetns();
    const InNetns inside(netns);
    const ProgramResult result = RunProgram(KubeProxy("never"));
    EXPECT_EQ(result.exit_code, 0) << result;
    return SavedRules::Of(Of(IpFamily::kIpv4));
  }
  // kubelet's monitor, once; and all of its sequence, as when it starts again. How much it had to
  // do.
  static int KubeletTurn() {
    int done = 0;
    for (const IpFamily family : kBothFamilies) {
      const Iptables iptables = Of(family);
      EXPECT_EQ(iptables.Run({"-w", "-t", "mangle", "-S", "KUBE-KUBELET-CANARY"}).exit_code, 0);
      const KubeletRun run = Kubelet(GetParam().kubelet, iptables);
      done += run.chains_created + run.rules_added;
    }
    return done;
  }
  void Live(absl::Duration how_long);
};

void DaemonCompanyTest::Live(absl::Duration how_long) {
  const SavedRules of_kube_proxy = OfKubeProxy();
  Start(Settings());
  BackgroundProgram kube_proxy(KubeProxy("0.5"));
  ASSERT_TRUE(WaitUntil([] {
    return SavedRules::Of(Of(IpFamily::kIpv4)).HasChain("filter", "KUBE-PROXY-CANARY");
  })) << kube_proxy.Output();
  const int incidents_before = CountOf(kIncident, daemon().Output());

  int strikes = 0;
  int done_by_kubelet = 0;
  const absl::Time start = absl::Now();
  for (int second = 1; absl::Now() < start + how_long; ++second) {
    absl::SleepFor(start + second * absl::Seconds(1) - absl::Now());
    done_by_kubelet += KubeletTurn();
    if (second % 5 == 0) {
      StrikeJump(Of(IpFamily::kIpv4));
      ++strikes;
      done_by_kubelet += KubeletTurn();
    }
    EXPECT_TRUE(NothingIsDoubled(GetParam().mode)) << "second " << second << daemon().Output();
    ASSERT_FALSE(HasFailure());
  }
  // A strike is one incident at most. What kubelet adds at the same moment as the agent stands
  // twice then, which is another one. kube-proxy ensures the jump to KUBE-POSTROUTING, too, and a
  // strike gives it one chance to.
  const double duplicates = Metric("kube_iptables_agent_duplicates_removed_total");
  EXPECT_LE(duplicates, done_by_kubelet + strikes) << daemon().Output();
  EXPECT_LE(CountOf(kIncident, daemon().Output()) - incidents_before, strikes + duplicates)
      << daemon().Output();
  EXPECT_EQ(CountOf("OwnershipFight", daemon().Output()), 0) << daemon().Output();
  EXPECT_TRUE(IsReady()) << Readyz();
  const double refills = Metric("kube_iptables_agent_refills_total");
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  if (GetParam().kube_proxy == "1.28") {
    EXPECT_GE(refills, seconds / 4);
    EXPECT_LE(refills, seconds + 2);
  } else {
    EXPECT_EQ(refills, 0);
    EXPECT_LE(done_by_kubelet, strikes) << "all but the jump stood always";
  }

  kube_proxy.Signal(SIGTERM);
  EXPECT_EQ(kube_proxy.Wait(), 0);
  EXPECT_TRUE(BecomesClean(Settings()));
  const auto listener = GenerationListener::Create();
  ASSERT_THAT(listener, IsOk());
  absl::SleepFor(absl::Seconds(2));
  const auto changes = (*listener)->Drain();
  ASSERT_THAT(changes, IsOk());
  EXPECT_THAT(*changes, IsEmpty()) << "somebody still writes";
  const SavedRules after = SavedRules::Of(Of(IpFamily::kIpv4));
  EXPECT_THAT(of_kube_proxy.LinesMissingIn(after), IsEmpty());
  EXPECT_EQ(KubeletTurn(), 0);
}

TEST_P(DaemonCompanyTest, NothingIsDoubledFoughtOverOrRemoved) { Live(absl::Seconds(20)); }

class DaemonCompanyLongTest : public DaemonCompanyTest {};

TEST_P(DaemonCompanyLongTest, NothingIsDoubledFoughtOverOrRemovedInTenMinutes) {
  Live(absl::Minutes(10));
}

const Company kCompanies[] = {
    {"1.24", KubeletForm::k1_24, IptablesMode::kNft},
    {"1.24", KubeletForm::k1_24, IptablesMode::kLegacy},
    {"1.28", KubeletForm::k1_27GateOff, IptablesMode::kNft},
    {"1.28", KubeletForm::k1_27GateOff, IptablesMode::kLegacy},
};

std::string NameOfRow(const ::testing::TestParamInfo<Company>& row) {
  return absl::StrCat("KubeProxy", row.param.kube_proxy == "1.24" ? "24" : "28",
                      TestNameOf(row.param.mode));
}

INSTANTIATE_TEST_SUITE_P(Versions, DaemonCompanyTest, ::testing::ValuesIn(kCompanies), NameOfRow);
INSTANTIATE_TEST_SUITE_P(Versions, DaemonCompanyLongTest, ::testing::ValuesIn(kCompanies),
                         NameOfRow);

}  // namespace
}  // namespace kipt::testing
