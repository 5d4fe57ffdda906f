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

namespace kipt::testing::iptables_legacy_generations_test {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

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

TEST_F(LegacyGenerationsTest, ASurveyFailsWhereAFamilyCannotBeRead) {
  Saves("iptables", kFilter);
  Saves("ip6tables", "*filter\n");
  EXPECT_THAT(backend_->TakeSurvey({}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 2: the end")));
  runner_.On(Program("ip6tables", "save"), Exits(4));
  EXPECT_THAT(backend_->TakeSurvey({}), StatusIs(absl::StatusCode::kUnavailable));
}

// This decides whether the other iptables mode has chains.
TEST_F(LegacyGenerationsTest, ListsTheChainsOfAFamilyWithItsOwnProgram) {
  Open("1.8.9");
  Saves("iptables", kFilterWithUser);
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
