// SPDX-License-Identifier: Apache-2.0
//
// Each mutant (tests/skew/mutants) differs from the real program in its one defect, and in nothing
// else that stands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/support/background_program.h"
#include "tests/support/generation_listener.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/private_run.h"
#include "tests/support/run_program.h"
#include "tests/support/temporary_tree.h"

namespace kipt::skew {
namespace {

using testing::BackgroundProgram;
using ::testing::ElementsAre;
using testing::IptablesMode;
using ::testing::IsEmpty;
using testing::ProgramResult;
using testing::RunProgram;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr char kReal[] = "";
constexpr char kReturn[] = "nat: -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN";
constexpr char kMartian[] =
    "filter: -A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block "
    "incoming "
    "localnet connections\" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP";
constexpr char kMarkedDrop[] =
    "filter: -A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping marked "
    "packets\" -m mark --mark 0x8000/0x8000 -j DROP";

using Lines = std::set<std::string>;

// Those of `lines` that `others` has not.
Lines Without(Lines lines, const Lines& others) {
  std::erase_if(lines, [&](const std::string& line) { return others.count(line) != 0; });
  return lines;
}

class MutantsTest : public testing::NetnsTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  void SetUp() override {
    NetnsTest::SetUp();
    if (!HasFatalFailure()) private_run_.emplace();
    no_cni_.Directory("net.d");
  }

  // Of `mutant`, or the real program.
  std::vector<std::string> Sync(const std::string& mutant, bool gate,
                                const std::vector<std::string>& more = {}) const {
    std::vector<std::string> argv = {
        mutant.empty() ? std::string(KIPT_AGENT_PROGRAM)
                       : absl::StrCat(KIPT_MUTANTS_DIR, "/kube-iptables-agent-", mutant),
        "sync", absl::StrCat("--iptables-mode=", NameOf(GetParam())),
        absl::StrCat("--feature-gates=IPTablesOwnershipCleanup=", gate ? "true" : "false"),
        "--cni-conf-dir=" + no_cni_.Path("net.d")};
    argv.insert(argv.end(), more.begin(), more.end());
    return argv;
  }

  // "TABLE: -A CHAIN ..." and "TABLE: :CHAIN -", built-in chains left out.
  Lines Saved() const {
    const ProgramResult saved =
        RunProgram({absl::StrCat("iptables-", NameOf(GetParam()), "-save")});
    EXPECT_EQ(saved.exit_code, 0) << saved;
    Lines lines;
    std::string table;
    for (absl::string_view line : absl::StrSplit(saved.out, '\n', absl::SkipEmpty())) {
      if (line[0] == '*') table = std::string(line.substr(1));
      if (line[0] == ':') line = line.substr(0, line.find(" ["));
      const bool user_chain = line[0] == ':' && absl::EndsWith(line, " -");
      if (user_chain || line[0] == '-') lines.insert(absl::StrCat(table, ": ", line));
    }
    return lines;
  }

  void Change(const std::vector<std::string>& arguments) const {
    const ProgramResult result = testing::Iptables{.mode = GetParam()}.Run(arguments);
    ASSERT_EQ(result.exit_code, 0) << result;
  }
  void StartOver() const {
    for (const char* table : {"mangle", "nat", "filter"}) {
      Change({"-t", table, "-F"});
      Change({"-t", table, "-X"});
    }
  }

  // What stands when `argv` has begun with nothing.
  Lines AloneAfter(const std::vector<std::string>& argv) const {
    StartOver();
    const ProgramResult result = RunProgram(argv);
    EXPECT_EQ(result.exit_code, 0) << result;
    return Saved();
  }

  // What stands when the gate was off, somebody jumped to both chains that mark, a kube-proxy came,
  // and the gate went on with --stale-chains=retire.
  Lines RetiredBy(const std::string& mutant) const {
    AloneAfter(Sync(kReal, /*gate=*/false));
    Change({"-t", "nat", "-N", "KUBE-SERVICES"});
    Change({"-t", "nat", "-N", "USER"});
    Change({"-t", "nat", "-A", "USER", "-j", "KUBE-MARK-MASQ"});
    Change({"-t", "nat", "-A", "USER", "-j", "KUBE-MARK-DROP"});
    const ProgramResult result = RunProgram(Sync(mutant, /*gate=*/true, {"--stale-chains=retire"}));
    EXPECT_EQ(result.exit_code, 0) << result;
    return Saved();
  }

  // How many of kubelet's drop rules stood in the saves that were taken while a program started on
  // a node where nothing was amiss.
  std::set<int> DropsWhileStarting(const std::string& mutant) const {
    std::set<int> seen;
    BackgroundProgram starting(Sync(mutant, /*gate=*/false));
    do {
      const Lines saved = Saved();
      seen.insert(static_cast<int>(saved.count(kMartian) + saved.count(kMarkedDrop)));
    } while (starting.Running());
    EXPECT_EQ(starting.Wait(), 0) << starting.Output();
    return seen;
  }

 private:
  std::optional<testing::PrivateRun> private_run_;
  testing::TemporaryTree no_cni_;
};

TEST_P(MutantsTest, NoReturnLacksTheRuleThatLetsGoWhatIsNotMarked) {
  const Lines real = AloneAfter(Sync(kReal, /*gate=*/false));
  const Lines mutant = AloneAfter(Sync("no-return", /*gate=*/false));
  EXPECT_THAT(Without(real, mutant), ElementsAre(kReturn));
  EXPECT_THAT(Without(mutant, real), IsEmpty());
}

TEST_P(MutantsTest, NoReturnRemovesThatRuleWhereAnotherWroteIt) {
  const Lines real = AloneAfter(Sync(kReal, /*gate=*/false));
  const ProgramResult result = RunProgram(Sync("no-return", /*gate=*/false));
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(Without(real, Saved()), ElementsAre(kReturn));
}

TEST_P(MutantsTest, InvertedMartianDropsWhatComesFromLoopback) {
  for (const bool gate : {false, true}) {
    const Lines real = AloneAfter(Sync(kReal, gate));
    const Lines mutant = AloneAfter(Sync("inverted-martian", gate));
    EXPECT_THAT(Without(real, mutant), ElementsAre(kMartian));
    std::string inverted = kMartian;
    inverted.erase(inverted.find("! -s"), 2);
    EXPECT_THAT(Without(mutant, real), ElementsAre(inverted));
  }
}

TEST_P(MutantsTest, NoClaimsRemovesWhatActsOnMarksThatOthersSet) {
  const Lines real = RetiredBy(kReal);
  const Lines mutant = RetiredBy("no-claims");
  EXPECT_THAT(
      Without(real, mutant),
      UnorderedElementsAre(
          kMarkedDrop, "nat: :KUBE-POSTROUTING -", kReturn,
          "nat: -A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0",
          "nat: -A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring "
          "SNAT\" -j MASQUERADE --random-fully",
          "nat: -A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j "
          "KUBE-POSTROUTING"));
  EXPECT_THAT(Without(mutant, real), IsEmpty());
}

TEST_P(MutantsTest, WindowRemovesTheDropRulesForAMomentWhenItStarts) {
  const Lines before = AloneAfter(Sync(kReal, /*gate=*/false));
  for (int i = 0; i < 3; ++i) EXPECT_THAT(DropsWhileStarting(kReal), ElementsAre(2));
  // The window is 50 ms wide, and a save takes a tenth of that on an idle machine.
  std::set<int> seen;
  EXPECT_TRUE(testing::WaitUntil([&] {
    seen.merge(DropsWhileStarting("window"));
    return seen.count(0) != 0;
  }));
  EXPECT_EQ(Saved(), before);
}

// The kernel tells who listens of transactions of nf_tables only.
class MutantsNftTest : public MutantsTest {};

TEST_P(MutantsNftTest, WindowWritesTwiceWhereTheRealProgramWritesNothing) {
  AloneAfter(Sync(kReal, /*gate=*/false));
  auto listener = testing::GenerationListener::Create();
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ(RunProgram(Sync(kReal, /*gate=*/false)).exit_code, 0);
  EXPECT_THAT((*listener)->Drain().value(), IsEmpty());
  EXPECT_EQ(RunProgram(Sync("window", /*gate=*/false)).exit_code, 0);
  EXPECT_THAT((*listener)->Drain().value(), SizeIs(2));
}

TEST_P(MutantsTest, WindowEndsWhereItBegan) {
  const Lines real = AloneAfter(Sync(kReal, /*gate=*/false));
  EXPECT_EQ(AloneAfter(Sync("window", /*gate=*/false)), real);
}

TEST_P(MutantsTest, NoLabelForwardLacksTheJumpFromForward) {
  const std::vector<std::string> labels = {"--feature-gates=ConnLabelMarking=true"};
  const Lines real = AloneAfter(Sync(kReal, /*gate=*/true, labels));
  const Lines mutant = AloneAfter(Sync("no-label-forward", /*gate=*/true, labels));
  EXPECT_THAT(Without(real, mutant), ElementsAre("filter: -A FORWARD -j KUBELET-FIREWALL"));
  EXPECT_THAT(Without(mutant, real), IsEmpty());
  EXPECT_EQ(AloneAfter(Sync("no-label-forward", /*gate=*/true)),
            AloneAfter(Sync(kReal, /*gate=*/true)));
}

TEST_P(MutantsNftTest, LateWritesTheSameAndTakesLongerThanARepairMay) {
  const Lines real = AloneAfter(Sync(kReal, /*gate=*/false));
  const absl::Time start = absl::Now();
  EXPECT_EQ(AloneAfter(Sync("late", /*gate=*/false)), real);
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(300));
}

INSTANTIATE_TEST_SUITE_P(Of, MutantsTest,
                         ::testing::Values(IptablesMode::kNft, IptablesMode::kLegacy),
                         [](const auto& row) {
                           return row.param == IptablesMode::kNft ? "Nft" : "Legacy";
                         });
INSTANTIATE_TEST_SUITE_P(Of, MutantsNftTest, ::testing::Values(IptablesMode::kNft),
                         [](const auto&) { return "Nft"; });

}  // namespace
}  // namespace kipt::skew
