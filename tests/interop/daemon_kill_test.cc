// SPDX-License-Identifier: Apache-2.0
//
// kill -9 at any moment: nothing existing is lost, `plan` names what is missing, and a sync repairs
// it.
#include <cstdint>
#include <random>

#include "tests/interop/daemon_fixture.h"

namespace kipt::testing {
namespace {

// From the start of the daemon, or of the damaging program: covers either's whole work.
constexpr int kLongestMicros = 30000;

constexpr char kForeignRules[] =
    "IPT -A INPUT -p tcp --dport 22 -j ACCEPT; IPT -t nat -N CNI-HOSTPORT-DNAT; "
    "IPT -t nat -A CNI-HOSTPORT-DNAT -p tcp --dport 80 -j RETURN; "
    "IPT -t nat -A PREROUTING -j CNI-HOSTPORT-DNAT; ";

// IPT is replaced by the iptables program. While the daemon repairs, -X finds chains in use:
// whatever comes of that is a moment like others.
const std::string kDamages[] = {
    "true", "IPT -t mangle -X KUBE-IPTABLES-HINT", "IPT -D INPUT -j KUBE-FIREWALL",
    "IPT -t nat -F KUBE-POSTROUTING",
    absl::StrCat(
        "IPT -t mangle -F; IPT -t mangle -X; IPT -t nat -F; IPT -t nat -X; IPT -F; IPT -X; ",
        kForeignRules)};

class DaemonKillTest : public DaemonTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  // "TABLE: LINE" of what exists in IPv4, where most of ours is.
  static SavedRules Saved() { return SavedRules::Of({.mode = GetParam()}); }
  static std::vector<std::string> Missing(const SavedRules& expected) {
    return expected.LinesMissingIn(Saved());
  }
  static std::vector<std::string> Command(const std::string& script) {
    const std::string program = absl::StrCat("iptables-", NameOf(GetParam()), " -w 60");
    return {"sh", "-c", absl::StrReplaceAll(script, {{"IPT", program}})};
  }

  void Kill(const std::string& damage, bool starting, absl::Duration after) {
    if (starting) RunProgram(Command(damage));
    if (starting) StartOnly(settings_.Flags());
    if (!starting) Start(settings_);
    BackgroundProgram damaging(Command(starting ? "true" : damage));
    absl::SleepFor(after);
    Stop(SIGKILL);
    EXPECT_NE(damaging.Wait(), -1);
  }

  // `left`: what exists after the damage where no program repairs it.
  void ExpectRepairable(const SavedRules& whole, const SavedRules& left) {
    const ProgramResult plan = Agent("plan", settings_);
    // Read after the plan: a program that the daemon had started may still be adding.
    EXPECT_THAT(Missing(left), IsEmpty()) << "not damaged, but missing";
    const std::vector<std::string> missing = Missing(whole);
    if (missing.empty()) {
      EXPECT_THAT(plan.exit_code, AnyOf(kExitOk, kExitDifferences)) << plan;
    } else {
      ++half_done_;
      EXPECT_EQ(plan.exit_code, kExitDifferences) << plan;
    }
    for (const std::string& line : missing) {
      // "nat: -A CHAIN ..." or "nat: :CHAIN - ..."
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      const std::string chain = words[1] == "-A" ? words[2] : words[1].substr(1);
      EXPECT_THAT(plan.out, HasSubstr(chain)) << line;
    }
    Sync(settings_);
    ExpectNothingPlanned(settings_);
    EXPECT_THAT(Missing(whole), IsEmpty());
    EXPECT_THAT(Saved().DoubledRules(), IsEmpty());
  }

  const AgentSettings settings_ = {.ownership_cleanup = false, .iptables = GetParam()};
  int half_done_ = 0;
};

TEST_P(DaemonKillTest, NeverLeavesWhatSyncCannotRepair) {
  ASSERT_EQ(RunProgram(Command(kForeignRules)).exit_code, 0);
  Sync(settings_);
  const SavedRules whole = Saved();
  std::vector<SavedRules> damaged;
  for (const std::string& damage : kDamages) {
    RunProgram(Command(damage));
    damaged.push_back(Saved());
    Sync(settings_);
  }
  ASSERT_THAT(Missing(whole), IsEmpty());
  ASSERT_THAT(whole.LinesMissingIn(damaged.back()), Not(IsEmpty()));
  const uint32_t seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    const size_t which = random() % std::size(kDamages);
    const bool starting = random() % 2 == 0;
    const absl::Duration after = absl::Microseconds(random() % kLongestMicros);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", kDamages[which],
                              starting ? ", at its start" : ", when it runs", ", killed after ",
                              absl::FormatDuration(after)));
    Kill(kDamages[which], starting, after);
    ExpectRepairable(whole, damaged[which]);
  }
  EXPECT_GT(half_done_, 0) << "the moments that matter were not met at all";
}

INSTANTIATE_TEST_SUITE_P(Modes, DaemonKillTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& mode) { return TestNameOf(mode.param); });

}  // namespace
}  // namespace kipt::testing
