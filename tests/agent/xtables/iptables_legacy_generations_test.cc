// SPDX-License-Identifier: Apache-2.0
//
// The backend of iptables-legacy: which reads a transaction may be made from, and that both
// families are worked on at the same time.
#include <sys/syscall.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "agent/xtables/iptables_legacy_programs.h"
#include "tests/agent/xtables/iptables_legacy_fixture.h"
#include "tests/support/failing_call.h"
#include "tests/support/fake_command_runner.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/surveyed.h"

namespace kipt::testing::iptables_legacy_generations_test {
namespace {

using netlink::ChainId;
using netlink::CreateChain;
using netlink::Family;
using netlink::RuleCounters;
using netlink::Survey;
using netlink::Table;
using netlink::TableId;

using LegacyGenerationsTest = OpenLegacyFixture;

const ChainId kUser{Family::kIPv4, Table::kFilter, "USER"};
constexpr char kNat[] = "*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n";
constexpr char kFilter[] = "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n";
constexpr char kFilterWithUser[] = "*filter\n:INPUT ACCEPT [0:0]\n:USER - [0:0]\nCOMMIT\n";

TEST_F(LegacyGenerationsTest, OnlyTheLastSixteenContentsAreKept) {
  std::vector<uint32_t> generations;
  for (int i = 0; i < 17; ++i) {
    Saves("iptables", absl::StrCat("*filter\n:INPUT ACCEPT [0:0]\n:C", i, " - [0:0]\nCOMMIT\n"));
    generations.push_back(Read(*backend_, {kUser}).generation);
  }
  const auto apply = [&](uint32_t generation) {
    return backend_->Apply({.generation = generation, .operations = {CreateChain{kUser}}});
  };
  EXPECT_THAT(apply(generations[0]),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("was not read recently")));
  EXPECT_THAT(apply(generations[1]),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("have changed since")));
}

// It was planned from both tables.
TEST_F(LegacyGenerationsTest, AfterAWriteTheSameReadIsNoBasisForAnotherTable) {
  Saves("iptables", absl::StrCat(kNat, kFilter));
  const uint32_t generation = Read(*backend_, {kUser}).generation;
  EXPECT_THAT(backend_->Apply({.generation = generation, .operations = {CreateChain{kUser}}}),
              IsOk());
  Saves("iptables", absl::StrCat(kNat, kFilterWithUser));
  const ChainId in_nat{Family::kIPv4, Table::kNat, "USER"};
  EXPECT_THAT(backend_->Apply({.generation = generation, .operations = {CreateChain{in_nat}}}),
              StatusIs(absl::StatusCode::kAborted));
}

TEST_F(LegacyGenerationsTest, ATableThatIsPrintedTwiceIsNotRead) {
  Saves("iptables", absl::StrCat(kFilter, kFilterWithUser));
  const auto twice = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("second time"));
  EXPECT_THAT(backend_->Read({{.chain = kUser}}).status(), twice);
  EXPECT_THAT(backend_->TakeSurvey(nullptr).status(), twice);
}

TEST_F(LegacyGenerationsTest, TheChainsOnTheWayAreReadHoweverFarTheyAre) {
  Saves("iptables",
        "*filter\n:INPUT ACCEPT [0:0]\n:A - [0:0]\n:B - [0:0]\n:USER - [0:0]\n"
        "-A INPUT -j A\n-A INPUT -j USER\n-A A -j B\n-A B -j DROP\nCOMMIT\n");
  const ChainId input{Family::kIPv4, Table::kFilter, "INPUT"};
  const auto snapshot = backend_->Read({{.chain = input, .follow = true}, {.chain = kUser}});
  ASSERT_THAT(snapshot, IsOk());
  for (const char* name : {"A", "B"}) {
    const auto* chain = snapshot->Find({Family::kIPv4, Table::kFilter, name});
    ASSERT_NE(chain, nullptr) << name;
    EXPECT_THAT(chain->rules, SizeIs(1)) << name;
  }
}

using LegacyWithoutProgramsTest = LegacyFixture;

TEST_F(LegacyWithoutProgramsTest, ThereIsNoBackend) {
  EXPECT_THAT(agent::NewIptablesLegacyBackend(&runner_, Options()).status(), Not(IsOk()));
}

// Answers a save when both families' have begun.
class MeetingRunner : public agent::CommandRunner {
 public:
  explicit MeetingRunner(agent::CommandRunner& runner) : runner_(runner) {}

  absl::StatusOr<agent::CommandResult> Run(const agent::CommandRequest& request) override {
    if (absl::EndsWith(request.program, "-save")) {
      std::unique_lock<std::mutex> lock(mutex_);
      ++begun_;
      met_.notify_all();
      if (!met_.wait_for(lock, std::chrono::seconds(20), [this] { return begun_ >= 2; })) {
        return absl::DeadlineExceededError("the other family waits for this one");
      }
    }
    return runner_.Run(request);
  }

 private:
  agent::CommandRunner& runner_;
  std::mutex mutex_;
  std::condition_variable met_;
  int begun_ = 0;
};

TEST_F(LegacyGenerationsTest, BothFamiliesAreReadAtTheSameTime) {
  Open("1.8.9");
  Saves("iptables", kFilter);
  Saves("ip6tables", kFilter);
  MeetingRunner meeting(runner_);
  const auto backend = agent::NewIptablesLegacyBackend(&meeting, Options());
  ASSERT_THAT(backend, IsOk());
  EXPECT_THAT((*backend)->Read({}), IsOk());
}

TEST_F(LegacyGenerationsTest, BothFamiliesAreReadWhereNoThreadCanBeMade) {
  // sizeof(clone_args) of the kernel that glibc was built for.
  const FailingCall no_thread = {.number = SYS_clone3, .argument = 1, .value = 88, .error = EAGAIN};
  Saves("iptables", kFilter);
  Saves("ip6tables", kFilter);
  WithFailingCall(no_thread, [&] { EXPECT_THAT(backend_->Read({}), IsOk()); });
  EXPECT_THAT(runner_.RequestsOf(Program("ip6tables", "save")), SizeIs(1));
}

// Surveys of the legacy backend over programs that are never run:
// tests/kernel/iptables_legacy_backend_test.cc has the real ones.

constexpr char kSave[] =
    "# Generated by iptables-save v1.8.9 on Sat Nov 21 02:49:38 2026\n"
    "*raw\n:PREROUTING ACCEPT [9:9]\n[1:2] -A PREROUTING -j NOTRACK\nCOMMIT\n"
    "*filter\n:INPUT DROP [7:420]\n:USER - [0:0]\n[3:4] -A INPUT -p tcp -j USER\n"
    "[0:0] -A USER -j MARK --set-xmark 0x1/0x1\nCOMMIT\n";
constexpr char kSave6[] = "*nat\n:USER - [0:0]\n[5:6] -A USER -d fd00::1/128 -j DROP\nCOMMIT\n";

const ChainId kUser6{Family::kIPv6, Table::kFilter, "USER"};

class LegacySurveyTest : public OpenLegacyFixture {
 protected:
  static Survey Take(netlink::Backend& backend, const netlink::SurveyFilter& keep = {}) {
    absl::StatusOr<Survey> survey = backend.TakeSurvey(keep);
    EXPECT_THAT(survey, IsOk());
    return survey.ok() ? *std::move(survey) : Survey{};
  }
};

TEST_F(LegacySurveyTest, HasAllTablesOfBothFamilies) {
  Saves("iptables", kSave);
  Saves("ip6tables", kSave6);
  const Survey survey = Take(*backend_);
  EXPECT_EQ(survey.mode, "legacy");
  EXPECT_THAT(survey.tables,
              UnorderedElementsAre(Key(TableId{"ip", "raw"}), Key(TableId{"ip", "filter"}),
                                   Key(TableId{"ip6", "nat"})));
  const netlink::SurveyChain& input = survey.tables.at({"ip", "filter"}).at("INPUT");
  EXPECT_TRUE(input.base);
  EXPECT_EQ(input.policy, "DROP");
  ASSERT_THAT(input.rules, SizeIs(1));
  EXPECT_EQ(TextOf(input.rules[0]), "-p tcp -j USER");
  EXPECT_EQ(JumpOf(input.rules[0]), "USER");
  EXPECT_EQ(input.rules[0].counters, (RuleCounters{.packets = 3, .bytes = 4}));
  EXPECT_EQ(MarksSet(survey.tables.at({"ip", "filter"}).at("USER").rules.at(0)), 1U);
  const auto& ip6 = survey.tables.at({"ip6", "nat"}).at("USER").rules;
  ASSERT_THAT(ip6, SizeIs(1));
  EXPECT_EQ(TextOf(ip6[0], "ip6"), "-d fd00::1/128 -j DROP");
}

TEST_F(LegacySurveyTest, FailsWhereAFamilyCannotBeRead) {
  Saves("iptables", kSave);
  Saves("ip6tables", "*filter\n");
  EXPECT_THAT(backend_->TakeSurvey({}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 2: the end")));
  runner_.On(Program("ip6tables", "save"), Exits(4));
  EXPECT_THAT(backend_->TakeSurvey({}), StatusIs(absl::StatusCode::kUnavailable));
  runner_.On(Program("ip6tables", "save"), Fails(absl::DeadlineExceededError("it hangs")));
  EXPECT_THAT(backend_->TakeSurvey({}),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("it hangs")));
}

// What other iptables mode has chains is decided by this.
TEST_F(LegacySurveyTest, ListsTheChainsOfAFamilyWithItsOwnProgram) {
  Open("1.8.9");
  Saves("iptables", kSave);
  agent::IptablesLegacyOptions options = Options();
  options.command_deadline = absl::Seconds(7);
  const auto chains = agent::ListIptablesLegacyChains(Family::kIPv4, runner_, options);
  ASSERT_THAT(chains, IsOk());
  EXPECT_EQ(chains->count(kUser), 1U);
  const auto requests = runner_.RequestsOf(Program("iptables", "save"));
  ASSERT_THAT(requests, SizeIs(1));
  EXPECT_EQ(requests[0].deadline, absl::Seconds(7));
  EXPECT_THAT(requests[0].environment, Contains(HasSubstr("PATH=")));
}

}  // namespace
}  // namespace kipt::testing::iptables_legacy_generations_test
