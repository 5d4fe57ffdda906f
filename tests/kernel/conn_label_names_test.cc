// SPDX-License-Identifier: Apache-2.0
//
// connlabel.conf as iptables itself reads it: every label, in both kinds of iptables, with and
// without names.
#include "agent/xtables/conn_label_names.h"

#include <sys/mount.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/process/command.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "netlink/backend.h"
#include "tests/support/matchers.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/run_program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/surveyed.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

constexpr char kNames[] = "/etc/xtables/connlabel.conf";
constexpr int kLabels = netlink::kMostConnLabel + 1;

// Strange names, except those that iptables would confuse when it reads its own save.
constexpr char kStrangeNames[] =
    "# 1 comment\n114 kubelet masq\n115\t\t  two  words \t\r\n0x10 hex\n010 oct\n  9 lead\n12abc\n"
    "13 -j DROP\n14 dup\n15 dup\n14 other\n16 again\n17 under_score\n18 quo\"te\n19\n20 \n-21 neg\n"
    "200 taken\n22 taken\n1024 free\n23 free\n24 0x19\n26 a\vb\n027 oct too\n127 last";

class ConnLabelNamesKernelTest : public PrivateRunTest {
 protected:
  void SetUp() override {
    PrivateRunTest::SetUp();
    if (HasFatalFailure()) return;
    // An /etc of the test's own: the machine's has no such directory.
    std::error_code error;
    std::filesystem::create_directories(etc_.Path("xtables"), error);
    for (const char* file : {"protocols", "services", "passwd", "group", "ethertypes"}) {
      std::filesystem::copy(absl::StrCat("/etc/", file), etc_.Path(file), error);
    }
    ASSERT_EQ(mount(etc_.root().c_str(), "/etc", nullptr, MS_BIND, nullptr), 0);
    runner_ = agent::NewCommandRunner();
    auto nft = netlink::NewNftBackend();
    ASSERT_THAT(nft, IsOk());
    auto legacy = agent::NewIptablesLegacyBackend(runner_.get());
    ASSERT_THAT(legacy, IsOk());
    backends_[0] = *std::move(nft);
    backends_[1] = *std::move(legacy);
  }
  void TearDown() override { umount("/etc"); }

  static std::vector<Rule> EveryLabel() {
    std::vector<Rule> rules;
    for (int label = 0; label < kLabels; ++label) {
      rules.push_back(Rule{
          .conn_label =
              netlink::ConnLabelMatch{
                  .label = static_cast<uint8_t>(label), .set = true, .negated = label % 2 == 1},
          .target = netlink::NoTarget{}});
    }
    return rules;
  }

  // Makes the chain of every label.
  void Write(netlink::Backend& backend) const {
    const auto before = backend.Read({{.chain = chain_}});
    ASSERT_THAT(before, IsOk());
    netlink::Transaction transaction{.generation = before->generation,
                                     .operations = {netlink::CreateChain{chain_}}};
    for (const Rule& rule : EveryLabel()) {
      transaction.operations.emplace_back(netlink::AddRule{.chain = chain_, .rule = rule});
    }
    ASSERT_THAT(backend.Apply(transaction), IsOk());
  }

  TemporaryTree etc_;
  std::unique_ptr<agent::CommandRunner> runner_;
  std::array<std::unique_ptr<netlink::Backend>, 2> backends_;  // nft, legacy
  const ChainId chain_{Family::kIPv4, Table::kNat, "LABELS"};
};

TEST_F(ConnLabelNamesKernelTest, EveryLabelIsReadAsItselfByItsNameAndByItsNumber) {
  for (const char* names : {"", kStrangeNames}) {
    if (*names != '\0') std::ofstream(kNames) << names;
    for (const auto& backend : backends_) {
      SCOPED_TRACE(netlink::BackendKindName(backend->kind()));
      const std::vector<Rule> expected = EveryLabel();
      if (*names == '\0') ASSERT_NO_FATAL_FAILURE(Write(*backend));
      const auto after = backend->Read({{.chain = chain_}});
      ASSERT_THAT(after, IsOk());
      const auto survey = backend->TakeSurvey({});
      ASSERT_THAT(survey, IsOk());
      const netlink::SurveyChain* surveyed = survey->Find({"ip", "nat"}, "LABELS");
      ASSERT_NE(surveyed, nullptr);
      ASSERT_EQ(surveyed->rules.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        const netlink::ObservedRule& read = after->Find(chain_)->rules.at(i);
        ASSERT_NE(read.rule(), nullptr) << read.opaque()->text;
        EXPECT_EQ(*read.rule(), expected[i]) << i;
        EXPECT_EQ(TextOf(surveyed->rules[i]), ToString(Family::kIPv4, expected[i]));
      }
    }
    const std::string saved = RunProgram({"iptables-legacy-save", "-t", "nat"}).out;
    EXPECT_EQ(absl::StrContains(saved, "--label \"kubelet masq\" --set"), *names != '\0') << saved;
  }
}

// Written while names exist, by number, as ever.
TEST_F(ConnLabelNamesKernelTest, RulesAreWrittenByNumberWhateverNamesThereAre) {
  std::ofstream(kNames) << "3 114\n114 masq\n5 6\n";
  netlink::Backend& legacy = *backends_[1];
  ASSERT_NO_FATAL_FAILURE(Write(legacy));
  const auto after = legacy.Read({{.chain = chain_}});
  ASSERT_THAT(after, IsOk());
  for (const int label : {3, 6, 114}) {
    const auto& read = after->Find(chain_)->rules.at(static_cast<size_t>(label));
    ASSERT_NE(read.rule(), nullptr);
    EXPECT_EQ(read.rule()->conn_label->label, label);
  }
  // A name that iptables itself confuses with a number is taken for the number.
  EXPECT_EQ(after->Find(chain_)->rules.at(5).rule()->conn_label->label, 6);
}

// Compared with both kinds of iptables, which print a rule with a label that no file names.
TEST_F(ConnLabelNamesKernelTest, LabelsAreForbiddenExactlyWhereIptablesCouldNotPrintThem) {
  const std::array<std::string, 2> kinds = {"iptables-nft", "iptables-legacy"};
  for (const std::string& kind : kinds) {
    const ProgramResult added = RunProgram(
        {kind, "-t", "nat", "-A", "OUTPUT", "-m", "connlabel", "--label", "115", "--set"});
    ASSERT_EQ(added.exit_code, 0) << added;
  }
  int forbidden = 0;
  const auto compare = [&](const std::string& what) {
    const bool allowed = agent::ConnLabelNamesProblem(kNames).empty();
    for (const std::string& kind : kinds) {
      const ProgramResult saved = RunProgram({kind + "-save"});
      EXPECT_EQ(saved.exit_code == 0, allowed) << kind << ": " << what << ": " << saved;
    }
    if (!allowed) ++forbidden;
  };
  compare("no file");
  for (const std::string text :
       {"", "\n", "# nothing\n", "nothing\n", "1\n", "1 \n", "1 under_score\n", "1,a\n", "1 a #b\n",
        "-1 a\n", "1024 a\n", "4294967297 a\n"}) {
    std::ofstream(kNames) << text;
    compare(text);
  }
  EXPECT_EQ(forbidden, 12);
  for (const std::string text :
       {"1 a", "115 masq\n", "# b\nc\n1000 a\n", "\t0x10 a b\n", "08 a\n"}) {
    std::ofstream(kNames) << text;
    compare(text);
  }
  std::filesystem::remove(kNames);
  std::filesystem::create_symlink(kNames, kNames);
  compare("a file that cannot be opened");
  EXPECT_EQ(forbidden, 12);
  std::filesystem::remove(kNames);
  std::filesystem::create_directory(kNames);
  compare("a directory");
  EXPECT_EQ(forbidden, 13);
}

}  // namespace
}  // namespace kipt::testing
