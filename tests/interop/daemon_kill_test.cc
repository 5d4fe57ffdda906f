// SPDX-License-Identifier: Apache-2.0
//
// kill -9 at any moment: what stood stands, what is missing can be named, and a sync mends it.
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

// From the start of the daemon, or of the damaging program: covers either's whole work.
constexpr int kLongestMicros = 30000;

struct Damage {
  std::string name;
  std::string script;  // IPT stands for the iptables program
};

constexpr char kForeignRules[] =
    "IPT -A INPUT -p tcp --dport 22 -j ACCEPT; IPT -t nat -N CNI-HOSTPORT-DNAT; "
    "IPT -t nat -A CNI-HOSTPORT-DNAT -p tcp --dport 80 -j RETURN; "
    "IPT -t nat -A PREROUTING -j CNI-HOSTPORT-DNAT; ";

std::vector<Damage> Damages() {
  // While the daemon repairs, -X finds chains in use: whatever comes of that is a moment like
  // others.
  std::string wipe;
  for (const char* table : kIptablesTables) {
    absl::StrAppend(&wipe, "IPT -t ", table, " -F; IPT -t ", table, " -X; ");
  }
  return {{"Nothing", "true"},
          {"Hint", "IPT -t mangle -X KUBE-IPTABLES-HINT"},
          {"Jump", "IPT -D INPUT -j KUBE-FIREWALL"},
          {"Firewall", "IPT -F KUBE-FIREWALL"},
          {"Postrouting", "IPT -t nat -F KUBE-POSTROUTING"},
          {"Everything", absl::StrCat(wipe, kForeignRules)}};
}

// KIPT_SEED repeats the moments of an earlier run.
uint32_t Seed() {
  const char* given = std::getenv("KIPT_SEED");
  const uint32_t seed = given == nullptr ? std::random_device{}()
                                         : static_cast<uint32_t>(std::strtoul(given, nullptr, 10));
  std::cout << "KIPT_SEED=" << seed << "\n";
  return seed;
}

class DaemonKillTest : public DaemonTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  // IPv4 first.
  using State = std::vector<SavedRules>;

  void SetUp() override {
    DaemonTest::SetUp();
    settings_.ownership_cleanup = false;
    settings_.iptables = GetParam();
  }

  State Saved() const {
    State state;
    for (const IpFamily family : kBothFamilies) {
      state.push_back(SavedRules::Of({.family = family, .mode = GetParam()}));
    }
    return state;
  }

  // "TABLE: LINE" of what `now` lacks of `expected`.
  static std::vector<std::string> Missing(const State& expected, const State& now) {
    std::vector<std::string> all;
    for (size_t i = 0; i < expected.size(); ++i) {
      const std::vector<std::string> lines = expected[i].LinesMissingIn(now[i]);
      all.insert(all.end(), lines.begin(), lines.end());
    }
    return all;
  }

  // The program that does it to IPv4, which is where most of ours is.
  std::vector<std::string> Command(const std::string& script) const {
    const std::string program = absl::StrCat("iptables-", NameOf(GetParam()), " -w 60");
    return {"sh", "-c", absl::StrReplaceAll(script, {{"IPT", program}})};
  }

  // What stands when all is well, and after each damage where nobody repairs it.
  void LearnStates() {
    ASSERT_EQ(RunProgram(Command(kForeignRules)).exit_code, 0);
    Sync(settings_);
    whole_ = Saved();
    for (const Damage& damage : damages_) {
      RunProgram(Command(damage.script));
      damaged_.push_back(Saved());
      Sync(settings_);
    }
    ASSERT_THAT(Missing(whole_, Saved()), IsEmpty());
    ASSERT_THAT(Missing(whole_, damaged_.back()), Not(IsEmpty()));
  }

  void KillWhileItStarts(const Damage& damage, absl::Duration after) {
    RunProgram(Command(damage.script));
    StartOnly(settings_.Flags());
    absl::SleepFor(after);
    Stop(SIGKILL);
  }

  void KillWhileItRepairs(const Damage& damage, absl::Duration after) {
    Start(settings_);
    BackgroundProgram damaging(Command(damage.script));
    absl::SleepFor(after);
    Stop(SIGKILL);
    EXPECT_NE(damaging.Wait(), -1);
  }

  void ExpectMendable(const State& left) {
    const ProgramResult plan = Agent("plan", settings_);
    // Behind the plan: a program that the daemon had started may still be adding.
    const State now = Saved();
    EXPECT_THAT(Missing(left, now), IsEmpty()) << "not damaged, and gone";
    const std::vector<std::string> missing = Missing(whole_, now);
    EXPECT_TRUE(plan.exit_code == kExitOk || plan.exit_code == kExitDifferences) << plan;
    if (!missing.empty()) {
      ++half_done_;
      EXPECT_EQ(plan.exit_code, kExitDifferences) << plan;
    }
    for (const std::string& line : missing) {
      // "nat: -A CHAIN ..." or "nat: :CHAIN - ..."
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      const std::string chain = words[1] == "-A" ? words[2] : words[1].substr(1);
      EXPECT_TRUE(absl::StrContains(plan.out, chain)) << line << " is not in " << plan;
    }
    Sync(settings_);
    ExpectNothingPlanned(settings_);
    const State repaired = Saved();
    EXPECT_THAT(Missing(whole_, repaired), IsEmpty());
    for (const SavedRules& family : repaired) EXPECT_THAT(family.DoubledRules(), IsEmpty());
  }

  void KillManyTimes(int times) {
    ASSERT_NO_FATAL_FAILURE(LearnStates());
    std::mt19937 random(Seed());
    for (int i = 0; i < times && !HasFailure(); ++i) {
      const size_t which = random() % damages_.size();
      const bool starting = random() % 2 == 0;
      const absl::Duration after = absl::Microseconds(random() % kLongestMicros);
      SCOPED_TRACE(absl::StrCat(damages_[which].name, starting ? " at its start" : " when it runs",
                                ", killed after ", absl::FormatDuration(after)));
      if (starting) {
        KillWhileItStarts(damages_[which], after);
      } else {
        KillWhileItRepairs(damages_[which], after);
      }
      ExpectMendable(damaged_[which]);
    }
    std::cout << times << " kills, " << half_done_ << " of them before all was repaired\n";
    // Else the moments that matter were not met at all.
    EXPECT_GT(half_done_, 0);
  }

 private:
  AgentSettings settings_;
  const std::vector<Damage> damages_ = Damages();
  State whole_;
  std::vector<State> damaged_;
  int half_done_ = 0;
};

TEST_P(DaemonKillTest, NeverLeavesWhatSyncCannotMend) { KillManyTimes(20); }

class DaemonKillOftenTest : public DaemonKillTest {};

TEST_P(DaemonKillOftenTest, NeverLeavesWhatSyncCannotMend) { KillManyTimes(200); }

INSTANTIATE_TEST_SUITE_P(Modes, DaemonKillTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& mode) { return TestNameOf(mode.param); });
INSTANTIATE_TEST_SUITE_P(Modes, DaemonKillOftenTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& mode) { return TestNameOf(mode.param); });

}  // namespace
}  // namespace kipt::testing
