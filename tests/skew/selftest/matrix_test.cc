// SPDX-License-Identifier: Apache-2.0
//
// The program as a user runs it: a sample of the matrix, and all of it (long).
#include <signal.h>

#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/interop/agent_fixture.h"
#include "tests/skew/selftest/matrix_run.h"
#include "tests/support/background_program.h"
#include "tests/support/matchers.h"
#include "tests/support/run_program.h"
#include "tests/support/temporary_tree.h"

namespace kipt::skew {
namespace {

using testing::ProgramResult;

struct SampleRow {
  const char* name;
  // A regular expression that begins with the path, both actors.
  const char* cells;
  // Of kubelet's cell, and of the agent's.
  const char* kubelet;
  const char* agent;
};
constexpr SampleRow kSample[] = {
    {"AFreshNodeOfTheNewestIsSound", "^boot/kubelet-1.27/proxy-1.27/nft/", "sound", "sound"},
    {"AndOnLegacyIptables", "^boot/kubelet-1.27/proxy-1.27/legacy/", "sound", "sound"},
    {"Kubelet127With124FailsOpen", "^boot/kubelet-1.27/proxy-1.24/nft/", "known failure",
     "known failure"},
    {"TheDropOfAGateOffKubeletIsWipedAndTheAgentsIsNot",
     "^boot/kubelet-1.26/proxy-1.27/third-parties/nft/", "known failure", "sound"},
    {"AndOnLegacyIptablesToo", "^boot/kubelet-1.26/proxy-1.27/third-parties/legacy/",
     "known failure", "sound"},
    {"AnUpgradeInPlaceIsSound", "^upgrade-kubelet-first/kubelet-1.27/proxy-1.27/nft/", "sound",
     "sound"},
    {"AFlushIsRepaired", "^flush/kubelet-1.24/proxy-1.24/legacy/", "known failure",
     "known failure"},
    {"NftablesModeServesAndRefuses", "^boot/kubelet-1.36/proxy-1.36-nftables/nft/", "sound",
     "sound"},
    {"KubeProxyMovesToNftablesNextToAChainThatBothHave",
     "^to-nftables/kubelet-1.27-gate-off/proxy-1.36-nftables/legacy/", "known failure",
     "known failure"},
    {"WhatAuditReportedBeforeNftablesModeFails",
     "^to-nftables/kubelet-1.36/proxy-1.36-nftables/third-parties/nft/", "known failure",
     "known failure"},
    {"AndOfACleanNodeItReportsNoMoreThanFails",
     "^to-nftables/kubelet-1.33/proxy-1.33-nftables/legacy/", nullptr, nullptr},
    {"AndBack", "^from-nftables/kubelet-1.31/proxy-1.31/nft/", "known failure", "known failure"},
    {"ACleanupTakesServicesAndNothingOfKubelets", "^proxy-cleanup/kubelet-1.33/proxy-1.33/nft/",
     "known failure", "known failure"},
    {"ACleanupThatAForeignJumpStops",
     "^proxy-cleanup/kubelet-1.27-gate-off/proxy-1.36/third-parties/nft/", "known failure",
     "known failure"},
    {"AfterACleanupTheAgentPutsBackWhatItShares",
     "^proxy-cleanup/kubelet-1.27-gate-off/proxy-1.27/nft/", "known failure", "known failure"},
    {"MovingToNftLosesNothingWithTheAgent", "^to-nft/kubelet-1.26/proxy-1.26/nft/", nullptr,
     "sound"},
};

class SampleTest : public ::testing::TestWithParam<SampleRow> {};

TEST_P(SampleTest, IsAsExpected) {
  const SampleRow& row = GetParam();
  const std::string cells = row.cells;
  const std::string path = cells.substr(1, cells.find('/') - 1);
  const Matrix matrix({"--cells=" + cells, "--paths=" + path}, KIPT_AGENT_PROGRAM);
  EXPECT_EQ(matrix.exit_code(), 0) << matrix.output();
  const std::map<std::string, std::string> verdicts = matrix.Verdicts();
  EXPECT_EQ(verdicts.size(), 2U);
  for (const auto& [id, verdict] : verdicts) {
    const char* expected = absl::EndsWith(id, "/agent") ? row.agent : row.kubelet;
    if (expected != nullptr) {
      EXPECT_EQ(verdict, expected) << id << "\n" << matrix.output();
    }
  }
  const auto [sent, received] = matrix.Packets();
  EXPECT_GT(sent, 200U);
  EXPECT_GT(received, 50U);
  EXPECT_LE(received, sent);
}

INSTANTIATE_TEST_SUITE_P(Cells, SampleTest, ::testing::ValuesIn(kSample),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(WholeMatrixLongTest, IsAsExpected) {
  const Matrix matrix({"--paths=all"}, KIPT_AGENT_PROGRAM);
  EXPECT_EQ(matrix.exit_code(), 0) << matrix.output();
  EXPECT_GT(matrix.Verdicts().size(), 600U);
}

// 1.24 drops what kube-proxy 1.24 marks, and 1.27 does not.
TEST(SidesTest, FindTheWorseOfTwoKubeletsOnEveryPath) {
  const Matrix worse({"--a=kubelet:1.24", "--b=kubelet:1.27", "--paths=boot,upgrade-kubelet-first",
                      "--cells=/kubelet-1.24/proxy-1.24/nft/"},
                     "/nonexistent");
  EXPECT_EQ(worse.exit_code(), 2) << worse.output();
  EXPECT_THAT(
      worse.Verdicts(),
      UnorderedElementsAre(
          Pair("boot/kubelet-1.24/proxy-1.24/nft/kubelet-1.24", "known failure"),
          Pair("boot/kubelet-1.24/proxy-1.24/nft/kubelet-1.27", "known failure"),
          Pair("upgrade-kubelet-first/kubelet-1.24/proxy-1.24/nft/kubelet-1.24", "known failure"),
          Pair("upgrade-kubelet-first/kubelet-1.24/proxy-1.24/nft/kubelet-1.27", "known failure")))
      << worse.output();
  EXPECT_THAT(worse.Problems(),
              Contains(HasSubstr("kubelet-1.27 is worse than kubelet-1.24 in boot/")));
}

TEST(SkewProgramTest, LeavesNothingBehindWhenItIsKilled) {
  // Of the harness, its workers and the agents in them.
  const auto commands = [] {
    return testing::RunProgram({"pgrep", "-a", "-f", "kipt-skew-killed-[m]arker"}).out;
  };
  // In the command lines of all of them.
  const testing::TemporaryTree tree;
  tree.Link("kipt-skew-killed-marker", KIPT_AGENT_PROGRAM);
  testing::BackgroundProgram program({KIPT_SKEW_PROGRAM,
                                      "--agent=" + tree.Path("kipt-skew-killed-marker"),
                                      "--cells=^boot/kubelet-1.2[4-8]/.*agent", "--jobs=2"});
  ASSERT_TRUE(program.Prints("] "));
  ASSERT_TRUE(testing::WaitUntil([&] { return absl::StrContains(commands(), "--stale-chains"); }));
  program.Signal(SIGKILL);
  program.Wait();
  EXPECT_TRUE(testing::WaitUntil([&] { return commands().empty(); })) << commands();
}

TEST(SkewProgramTest, ReportsWhatItCannotDo) {
  const ProgramResult no_agent =
      testing::RunProgram({KIPT_SKEW_PROGRAM, "--agent=/nonexistent", "--cells=^boot/"});
  EXPECT_EQ(no_agent.exit_code, 1) << no_agent;
  EXPECT_THAT(no_agent.err, HasSubstr("--agent"));
  const ProgramResult no_report = testing::RunProgram(
      {KIPT_SKEW_PROGRAM, absl::StrCat("--agent=", KIPT_AGENT_PROGRAM), "--html=/nonexistent/x"});
  EXPECT_EQ(no_report.exit_code, 1) << no_report;
  EXPECT_THAT(no_report.err, HasSubstr("/nonexistent/x"));
  const ProgramResult usage = testing::RunProgram({KIPT_SKEW_PROGRAM, "--cells=("});
  EXPECT_EQ(usage.exit_code, 64) << usage;
}

// Before the first cell, and not once per cell.
TEST(SkewProgramTest, NamesTheMissingProgramAndRunsNoCell) {
  const ProgramResult result = testing::RunProgram(
      {"unshare", "--mount", "sh", "-c", "mount --bind /dev/null /usr/sbin/ipset && exec \"$@\"",
       "sh", KIPT_SKEW_PROGRAM, absl::StrCat("--agent=", KIPT_AGENT_PROGRAM), "--cells=ipvs"});
  EXPECT_EQ(result.exit_code, 1) << result;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(
      result.err,
      "Error: the chosen cells run programs that are missing: /usr/sbin/ipset (Debian package "
      "ipset). Install them, or choose other cells with --cells\n");
}

TEST(SkewProgramTest, ListsItsCellsAsNobodyToo) {
  const ProgramResult listed = testing::RunProgram({KIPT_SKEW_PROGRAM, "list"});
  EXPECT_EQ(listed.exit_code, 0);
  EXPECT_THAT(listed.out, HasSubstr("boot/kubelet-1.27/proxy-1.24/nft/agent"));
  EXPECT_THAT(listed.out, Not(HasSubstr("to-nft/"))) << "not one of the main paths";
}

}  // namespace
}  // namespace kipt::skew
