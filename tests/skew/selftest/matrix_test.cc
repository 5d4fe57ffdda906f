// SPDX-License-Identifier: Apache-2.0
//
// The program as a user runs it: a sample of the matrix, all of it (long), and with agents that are
// broken on purpose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "tests/interop/agent_fixture.h"
#include "tests/support/background_program.h"
#include "tests/support/run_program.h"
#include "tests/support/temporary_tree.h"

namespace kipt::skew {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using testing::ProgramResult;
using ::testing::UnorderedElementsAre;

// One run of the program, and what it reported.
class Matrix {
 public:
  Matrix(const std::vector<std::string>& flags, const std::string& agent) {
    const testing::TemporaryTree tree;
    std::vector<std::string> command = {KIPT_SKEW_PROGRAM, "--agent=" + agent,
                                        "--json=" + tree.Path("report.json")};
    command.insert(command.end(), flags.begin(), flags.end());
    testing::BackgroundProgram program(command);
    // RunProgram's minute is too short for all of it.
    exit_code_ = program.Wait(absl::Hours(1));
    output_ = program.Output();
    std::ifstream file(tree.Path("report.json"));
    report_ = nlohmann::json::parse(file, nullptr, false);
    if (report_.is_discarded())
      report_ = {{"cells", nlohmann::json::array()}, {"problems", nlohmann::json::array()}};
  }

  int exit_code() const { return exit_code_; }
  const std::string& output() const { return output_; }

  // By id, the verdict.
  std::map<std::string, std::string> Verdicts() const {
    std::map<std::string, std::string> verdicts;
    for (const auto& cell : report_["cells"]) verdicts[cell["id"]] = cell["verdict"];
    return verdicts;
  }
  // Of a cell, the names of the probes and streams that went otherwise than expected.
  std::set<std::string> Unexpected(const std::string& id) const {
    std::set<std::string> names;
    for (const auto& cell : report_["cells"]) {
      if (cell["id"] != id) continue;
      for (const auto& step : cell["steps"]) {
        for (const auto& check : step["checks"]) {
          if (check["result"]["outcome"] != check["expected"]) names.insert(check["probe"]["name"]);
        }
        for (const auto& stream : step["streams"]) {
          if (stream["bad"] > stream["allowed"]) names.insert(stream["count"]["probe"]);
        }
      }
    }
    return names;
  }
  // What is wrong with it as a whole.
  std::vector<std::string> Problems() const { return report_["problems"]; }
  // Of a cell, what became of each probe, step by step.
  std::map<std::string, std::vector<std::string>> Outcomes(const std::string& id) const {
    std::map<std::string, std::vector<std::string>> outcomes;
    for (const auto& cell : report_["cells"]) {
      if (cell["id"] != id) continue;
      for (const auto& step : cell["steps"]) {
        for (const auto& check : step["checks"]) {
          outcomes[check["probe"]["name"]].push_back(check["result"]["outcome"]);
        }
      }
    }
    return outcomes;
  }
  // Packets that were sent, and of these the ones somebody received.
  std::pair<uint64_t, uint64_t> Packets() const {
    uint64_t sent = 0;
    uint64_t received = 0;
    for (const auto& cell : report_["cells"]) {
      for (const auto& step : cell["steps"]) {
        for (const auto& check : step["checks"]) {
          sent += check["result"]["sent"].get<uint64_t>();
          received += check["result"]["received"].get<uint64_t>();
        }
      }
    }
    return {sent, received};
  }

 private:
  int exit_code_ = -1;
  std::string output_;
  nlohmann::json report_;
};

std::string Mutant(const std::string& name) {
  return absl::StrCat(KIPT_MUTANTS_DIR, "/kube-iptables-agent-", name);
}

std::string Chroots() {
  return std::filesystem::path(testing::ChrootDir("bullseye")).parent_path().string();
}

// ---- the sample ----

struct SampleRow {
  const char* name;
  // A regular expression, both actors.
  const char* cells;
  const char* paths;
  // Of kubelet's cell, and of the agent's.
  const char* kubelet;
  const char* agent;
};
constexpr SampleRow kSample[] = {
    {"AFreshNodeOfTheNewestIsSound", "^boot/kubelet-1.27/proxy-1.27/nft/", "boot", "sound",
     "sound"},
    {"AndOnLegacyIptables", "^boot/kubelet-1.27/proxy-1.27/legacy/", "boot", "sound", "sound"},
    {"Kubelet127Beside124FailsOpen", "^boot/kubelet-1.27/proxy-1.24/nft/", "boot", "known failure",
     "known failure"},
    {"TheDropOfAGateOffKubeletIsWipedAndTheAgentsIsNot",
     "^boot/kubelet-1.26/proxy-1.27/third-parties/nft/", "boot", "known failure", "sound"},
    {"AnUpgradeInPlaceIsSound", "^upgrade-kubelet-first/kubelet-1.27/proxy-1.27/nft/",
     "upgrade-kubelet-first", "sound", "sound"},
    {"AFlushIsRepaired", "^flush/kubelet-1.24/proxy-1.24/legacy/", "flush", "known failure",
     "known failure"},
    {"AnOldIptablesTurnsKubeletsRulesIntoADropAndNotTheAgents",
     "^boot/kubelet-1.26/proxy-1.26/round-trip-1.8.7/nft/", "boot", "known failure", "sound"},
    {"NftablesModeServesAndRefuses", "^boot/kubelet-1.36/proxy-1.36-nftables/nft/", "boot", "sound",
     "sound"},
    {"KubeProxyMovesToNftablesNextToAChainThatBothHave",
     "^to-nftables/kubelet-1.27-gate-off/proxy-1.36-nftables/legacy/", "to-nftables",
     "known failure", "known failure"},
    {"AndBack", "^from-nftables/kubelet-1.31/proxy-1.31/nft/", "from-nftables", "known failure",
     "known failure"},
    {"ACleanupTakesServicesAndNothingOfKubelets", "^proxy-cleanup/kubelet-1.33/proxy-1.33/nft/",
     "proxy-cleanup", "known failure", "known failure"},
    {"ACleanupThatAForeignJumpStops",
     "^proxy-cleanup/kubelet-1.27-gate-off/proxy-1.36/third-parties/nft/", "proxy-cleanup",
     "known failure", "known failure"},
    {"MovingToNftLosesNothingWithTheAgent", "^to-nft/kubelet-1.26/proxy-1.26/nft/", "to-nft",
     nullptr, "sound"},
};

class SampleTest : public ::testing::TestWithParam<SampleRow> {};

TEST_P(SampleTest, IsAsExpected) {
  const SampleRow& row = GetParam();
  const Matrix matrix({absl::StrCat("--cells=", row.cells), absl::StrCat("--paths=", row.paths),
                       absl::StrCat("--iptables-chroots=", Chroots())},
                      KIPT_AGENT_PROGRAM);
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

// ---- ConnLabelMarking ----

TEST(LabelFlipTest, LabelsWhatItIsLedToAndTouchesNothingElse) {
  const Matrix matrix({"--cells=kubelet-1.27/.*/nft/", "--paths=label-flip"}, KIPT_AGENT_PROGRAM);
  EXPECT_EQ(matrix.exit_code(), 0) << matrix.output();
  const std::string flip = "label-flip/kubelet-1.27/proxy-1.27/nft/agent";
  const std::string stays = "label-flip/kubelet-1.27/proxy-1.27/user-stays/nft/agent";
  EXPECT_THAT(matrix.Verdicts(), UnorderedElementsAre(Pair(flip, "sound"), Pair(stays, "sound")));
  EXPECT_THAT(matrix.Outcomes(flip)["label-drop-forwarded/tcp/ipv6"],
              ElementsAre("served", "served", "dropped", "dropped", "served", "served", "served"));
  EXPECT_THAT(matrix.Outcomes(flip)["label-drop-to-node/udp/ipv4"],
              ElementsAre("reached the host", "reached the host", "dropped", "dropped",
                          "reached the host", "reached the host", "reached the host"));
  EXPECT_THAT(matrix.Outcomes(stays)["label-masq-forwarded/udp/ipv4"],
              ElementsAre("served", "served", "masqueraded", "masqueraded", "masqueraded",
                          "masqueraded", "served", "served", "served"));
  for (const std::string& cell : {flip, stays}) {
    std::set<std::string> others;
    for (const auto& [probe, outcomes] : matrix.Outcomes(cell)) {
      if (absl::StartsWith(probe, "label-")) continue;
      others.insert(probe);
      EXPECT_THAT(outcomes, Each(outcomes.front())) << cell << " " << probe;
    }
    EXPECT_GT(others.size(), 60U) << cell;
  }
}

// ---- all of it ----

TEST(WholeMatrixLongTest, IsAsExpected) {
  const Matrix matrix({"--paths=all", absl::StrCat("--iptables-chroots=", Chroots())},
                      KIPT_AGENT_PROGRAM);
  EXPECT_EQ(matrix.exit_code(), 0) << matrix.output();
  EXPECT_GT(matrix.Verdicts().size(), 600U);
}

// ---- broken agents ----

struct MutantRow {
  const char* mutant;
  const char* paths;
  const char* cells;
  // Where it shows, and in what.
  std::vector<std::pair<std::string, std::string>> red;
  // Where the defect makes no difference to a packet.
  std::vector<std::string> green;
  // In what the agent is then found worse than kubelet: parts of a problem of the matrix.
  std::vector<std::string> worse = {};
  // Of a defect that only takes time: on a busy machine that much may be the machine's.
  int attempts = 1;
};
const MutantRow kMutants[] = {
    {"no-return",
     "boot,flush",
     "^(boot/kubelet-1.27/proxy-1.27/nft/agent|flush/kubelet-1.2(4/proxy-1.24/nft/|7/proxy-1.27/"
     "nft/"
     "agent))",
     {{"flush/kubelet-1.24/proxy-1.24/nft/agent", "pod-directly/tcp/ipv4"},
      {"flush/kubelet-1.24/proxy-1.24/nft/agent", "pod-directly/udp/ipv6"}},
     {"boot/kubelet-1.27/proxy-1.27/nft/agent", "flush/kubelet-1.27/proxy-1.27/nft/agent",
      "flush/kubelet-1.24/proxy-1.24/nft/kubelet"}},
    {"inverted-martian",
     "boot",
     "^boot/kubelet-1.26/proxy-1.26/(nft|legacy)/",
     {{"boot/kubelet-1.26/proxy-1.26/nft/agent", "martian/tcp/ipv4"},
      {"boot/kubelet-1.26/proxy-1.26/nft/agent", "martian/udp/ipv4"},
      {"boot/kubelet-1.26/proxy-1.26/legacy/agent", "martian/udp/ipv4"}},
     {"boot/kubelet-1.26/proxy-1.26/nft/kubelet", "boot/kubelet-1.26/proxy-1.26/legacy/kubelet"}},
    {"no-claims",
     "boot,upgrade-kubelet-first",
     "^(boot|upgrade-kubelet-first)/kubelet-1.2[67]/proxy-1.2[46]/nft/agent",
     {{"upgrade-kubelet-first/kubelet-1.27/proxy-1.24/nft/agent", "load-balancer-refused/tcp/ipv4"},
      {"upgrade-kubelet-first/kubelet-1.27/proxy-1.24/nft/agent",
       "node-port-local-elsewhere/udp/ipv6"},
      {"upgrade-kubelet-first/kubelet-1.27/proxy-1.24/nft/agent", "hairpin/tcp/ipv4"},
      {"boot/kubelet-1.27/proxy-1.24/nft/agent", "stream-service/ipv4"}},
     {"boot/kubelet-1.26/proxy-1.26/nft/agent",
      "upgrade-kubelet-first/kubelet-1.26/proxy-1.26/nft/agent"}},
    {"window",
     "boot,upgrade-kubelet-first",
     "^(boot/kubelet-1.27/proxy-1.27/nft/agent|upgrade-kubelet-first/kubelet-1.2(4/proxy-1.24/(nft|"
     "legacy)/agent|7/proxy-1.27/(nft/|legacy/agent)))",
     {{"upgrade-kubelet-first/kubelet-1.27/proxy-1.27/nft/agent", "stream-martian/ipv4"},
      {"upgrade-kubelet-first/kubelet-1.24/proxy-1.24/nft/agent", "stream-refused/ipv6"},
      {"upgrade-kubelet-first/kubelet-1.24/proxy-1.24/legacy/agent", "stream-martian/ipv4"}},
     {"boot/kubelet-1.27/proxy-1.27/nft/agent"},
     {"upgrade-kubelet-first/kubelet-1.27/proxy-1.27/nft/agent", "stream-martian/ipv4",
      "reached the host, with kubelet 0 of"},
     3},
    {"late",
     "flush",
     "^flush/kubelet-1.27/proxy-1.27/nft/agent",
     {{"flush/kubelet-1.27/proxy-1.27/nft/agent", "stream-martian/ipv4"}},
     {}},
    {"no-label-forward",
     "boot,label-flip",
     "^(boot|label-flip)/kubelet-1.27/proxy-1.27/nft/agent",
     {{"label-flip/kubelet-1.27/proxy-1.27/nft/agent", "label-drop-forwarded/tcp/ipv4"},
      {"label-flip/kubelet-1.27/proxy-1.27/nft/agent", "label-drop-between-pods/udp/ipv6"},
      {"label-flip/kubelet-1.27/proxy-1.27/nft/agent", "stream-label-drop/ipv4"}},
     {"boot/kubelet-1.27/proxy-1.27/nft/agent"}},
};

std::vector<std::string> Flags(const MutantRow& row) {
  return {absl::StrCat("--cells=", row.cells), absl::StrCat("--paths=", row.paths)};
}

// So that what the rows below show is the mutants' doing.
TEST(SoundAgentTest, IsGreenInAllCellsOfTheBrokenOnes) {
  std::set<std::string> paths;
  std::set<std::string> cells;
  for (const MutantRow& row : kMutants) {
    for (absl::string_view path : absl::StrSplit(row.paths, ',')) paths.emplace(path);
    cells.emplace(row.cells);
  }
  const Matrix sound({absl::StrCat("--cells=", absl::StrJoin(cells, "|")),
                      absl::StrCat("--paths=", absl::StrJoin(paths, ","))},
                     KIPT_AGENT_PROGRAM);
  EXPECT_EQ(sound.exit_code(), 0) << sound.output();
  for (const MutantRow& row : kMutants) {
    for (const auto& [cell, probe] : row.red) EXPECT_TRUE(sound.Verdicts().contains(cell)) << cell;
    for (const std::string& cell : row.green) EXPECT_TRUE(sound.Verdicts().contains(cell)) << cell;
  }
}

class BrokenAgentTest : public ::testing::TestWithParam<MutantRow> {};

TEST_P(BrokenAgentTest, IsSeenInTheRightCells) {
  const MutantRow& row = GetParam();
  const auto shows = [&row](const Matrix& matrix) {
    return std::all_of(row.red.begin(), row.red.end(), [&matrix](const auto& red) {
      return matrix.Unexpected(red.first).contains(red.second);
    });
  };
  Matrix broken(Flags(row), Mutant(row.mutant));
  for (int attempt = 1; attempt < row.attempts && !shows(broken); ++attempt) {
    broken = Matrix(Flags(row), Mutant(row.mutant));
  }
  EXPECT_EQ(broken.exit_code(), 2) << broken.output();
  std::map<std::string, std::string> verdicts = broken.Verdicts();
  for (const auto& [cell, probe] : row.red) {
    EXPECT_EQ(verdicts[cell], "unexpected") << cell << "\n" << broken.output();
    EXPECT_THAT(broken.Unexpected(cell), Contains(probe)) << cell << "\n" << broken.output();
  }
  if (!row.worse.empty()) {
    const std::vector<std::string> problems = broken.Problems();
    EXPECT_TRUE(std::any_of(problems.begin(), problems.end(), [&row](const std::string& problem) {
      return std::all_of(row.worse.begin(), row.worse.end(), [&problem](const std::string& part) {
        return absl::StrContains(problem, part);
      });
    })) << broken.output();
  }
  for (const std::string& cell : row.green) {
    EXPECT_THAT(verdicts[cell], AnyOf("sound", "known failure")) << cell << "\n" << broken.output();
    EXPECT_THAT(broken.Unexpected(cell), IsEmpty()) << cell;
  }
}

INSTANTIATE_TEST_SUITE_P(Mutants, BrokenAgentTest, ::testing::ValuesIn(kMutants),
                         [](const auto& row) {
                           std::string name = row.param.mutant;
                           std::erase(name, '-');
                           return name;
                         });

// ---- as a program ----

// A broken agent against the sound one, either way round.
TEST(SidesTest, FindTheWorseOfTwoAgents) {
  const std::string broken = absl::StrCat("agent:", Mutant("inverted-martian"));
  const std::string cells = "--cells=^boot/kubelet-1.26/proxy-1.26/nft/";
  const Matrix worse({"--b=" + broken, "--a=agent", "--paths=boot", cells}, KIPT_AGENT_PROGRAM);
  EXPECT_THAT(worse.Problems(),
              Contains(HasSubstr("agent-b is worse than agent-a in "
                                 "boot/kubelet-1.26/proxy-1.26/nft/agent-b, after \"")));
  EXPECT_THAT(worse.output(), HasSubstr("B (agent-b) is worse than A (agent-a): 1 cells"));
  const Matrix better({"--a=" + broken, "--paths=boot", cells}, KIPT_AGENT_PROGRAM);
  EXPECT_THAT(better.Problems(), IsEmpty());
  EXPECT_THAT(better.output(),
              HasSubstr("B (agent-b) is in no cell worse than A (agent-a): 1 cells"));
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

TEST(SkewProgramTest, NeedsNoAgentWhereNoCellRunsIt) {
  const ProgramResult result =
      testing::RunProgram({KIPT_SKEW_PROGRAM, "--agent=/nonexistent", "--paths=boot",
                           "--cells=^boot/kubelet-1.27/proxy-1.27/nft/kubelet$"});
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out, HasSubstr("1 cells: 1 sound"));
  EXPECT_THAT(result.out, HasSubstr("Nothing was compared"));
}

TEST(SkewProgramTest, SaysWhatItCannotDo) {
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
TEST(SkewProgramTest, SaysWhichProgramIsMissingAndRunsNoCell) {
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

TEST(SkewProgramTest, SaysWhatItLeftOut) {
  const ProgramResult result = testing::RunProgram(
      {KIPT_SKEW_PROGRAM, absl::StrCat("--agent=", KIPT_AGENT_PROGRAM), "--paths=boot",
       "--cells=^boot/kubelet-1.27/proxy-1.27/(round-trip-1.8.11/)?nft/kubelet"});
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out,
              HasSubstr("Left out:\n  - 1 cell: no iptables of Debian's release trixie"));
  EXPECT_THAT(result.out, HasSubstr("1 cells: 1 sound, 0 known failure, 0 unexpected, 0 broken, 1 "
                                    "left out"));
}

TEST(SkewProgramTest, AdvisesByItsExitCode) {
  const auto advise = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {KIPT_SKEW_PROGRAM, "advise"});
    return testing::RunProgram(arguments);
  };
  const ProgramResult safe = advise({"--from=1.28", "--to=1.29"});
  EXPECT_EQ(safe.exit_code, 0) << safe;
  const ProgramResult unsafe = advise({"--from=1.24", "--to=1.27", "--proxy=1.24"});
  EXPECT_EQ(unsafe.exit_code, 2) << unsafe;
  EXPECT_THAT(unsafe.out, HasSubstr("KUBE-MARK-DROP"));
}

TEST(SkewProgramTest, ListsItsCellsAsNobodyToo) {
  const ProgramResult listed = testing::RunProgram({KIPT_SKEW_PROGRAM, "list"});
  EXPECT_EQ(listed.exit_code, 0);
  EXPECT_THAT(listed.out, HasSubstr("boot/kubelet-1.27/proxy-1.24/nft/agent"));
  EXPECT_THAT(listed.out, Not(HasSubstr("to-nft/"))) << "not one of the main paths";
}

}  // namespace
}  // namespace kipt::skew
