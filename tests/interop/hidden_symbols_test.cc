// SPDX-License-Identifier: Apache-2.0
//
// /proc/kallsyms hidden by an empty file, as systemd and container engines do, or with nothing in
// it that tells: no proof that iptables can hold no rules.
#include <string>
#include <vector>

#include "tests/interop/daemon_fixture.h"
#include "tests/support/in_place_of.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

constexpr char kSymbols[] = "/proc/kallsyms";
class HiddenSymbolsTest : public DaemonTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static AgentSettings Settings() { return {.ownership_cleanup = false, .iptables = GetParam()}; }
};

TEST_P(HiddenSymbolsTest, AnEmptyFileProvesNothing) {
  const InPlaceOf hidden("/dev/null", kSymbols);
  std::vector<std::string> flags = Settings().Flags();
  flags[0] += ",ConnLabelMarking=true";
  flags.insert(flags.begin(), "plan");
  const ProgramResult plan = Agent(flags);
  EXPECT_THAT(plan.out, HasSubstr("KUBE-MARK-MASQ"));
  EXPECT_THAT(plan.out, HasSubstr("KUBELET-MARK-MASQ"));
  EXPECT_THAT(plan.out, Not(HasSubstr("Impossible")));
  Sync(Settings());
  ExpectNothingPlanned(Settings());
}

TEST_P(HiddenSymbolsTest, ADaemonThatObservesDoesNotTakeItForProofEither) {
  Sync(Settings());
  ASSERT_EQ(Iptables{.mode = GetParam()}.Run({"-D", "INPUT", "-j", "KUBE-FIREWALL"}).exit_code, 0);
  const InPlaceOf hidden("/dev/null", kSymbols);
  std::vector<std::string> flags = Settings().Flags();
  flags.push_back("--observe");
  StartOnly(flags);
  ASSERT_TRUE(daemon().Prints("ip is observed: ")) << daemon().Output();
  EXPECT_THAT(Readyz(), Not(HasSubstr("Impossible")));
}

INSTANTIATE_TEST_SUITE_P(IptablesModes, HiddenSymbolsTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

// Only nft needs nft_compat.
class MisleadingSymbolsTest : public HiddenSymbolsTest {
 protected:
  const TemporaryFile none_{"ffffffff81000000 T nothing_that_tells\n"};
};

TEST_P(MisleadingSymbolsTest, ARuleThatStandsOutweighsThem) {
  Sync({});
  Output({"iptables-nft", "-D", "INPUT", "-j", "KUBE-FIREWALL"});
  const InPlaceOf misleading(none_.path(), kSymbols);
  const ProgramResult plan = Agent({"plan", "--stale-chains=retire"});
  EXPECT_EQ(plan.exit_code, kExitDifferences) << plan;
  EXPECT_THAT(plan.out, HasSubstr("-A INPUT -j KUBE-FIREWALL"));
  EXPECT_THAT(plan.out, Not(HasSubstr("NativeProtection")));
  EXPECT_THAT(plan.out, Not(HasSubstr("-X "))) << "nothing is retired";
  Start({}, {"--stale-chains=retire"});
  ExpectNothingPlanned({});
}

// It may take 40 ms to read them, and the kernel answers at once.
TEST_P(MisleadingSymbolsTest, ASyncTriesAndDoesNotReadThem) {
  const InPlaceOf misleading(none_.path(), kSymbols);
  Sync({});
  EXPECT_THAT(Output({"iptables-nft", "-S"}), HasSubstr("-A INPUT -j KUBE-FIREWALL"));
}

TEST_P(MisleadingSymbolsTest, ADaemonTriesToo) {
  const InPlaceOf misleading(none_.path(), kSymbols);
  Start({});
  EXPECT_THAT(Output({"iptables-nft", "-S"}), HasSubstr("-A INPUT -j KUBE-FIREWALL"));
}

INSTANTIATE_TEST_SUITE_P(IptablesModes, MisleadingSymbolsTest,
                         ::testing::Values(IptablesMode::kNft),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
