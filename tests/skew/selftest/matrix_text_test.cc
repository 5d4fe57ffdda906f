// SPDX-License-Identifier: Apache-2.0
//
// The matrix as people and CI systems read it without a browser.

#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/skew/report/matrix_report.h"
#include "tests/skew/selftest/sample_matrix.h"
#include "tests/support/matchers.h"

namespace kipt::skew {
namespace {

MatrixReport SmallMatrix() {
  MatrixReport report{.kernel = "6.18.5",
                      .iptables = "1.8.9",
                      .b = {"agent", "kube-iptables-agent 0.4.0"},
                      .seconds = 75};
  report.cells = {
      SampleCell("boot/kubelet-1.24/proxy-1.24/nft/kubelet", Verdict::kSound),
      SampleCell("boot/kubelet-1.24/proxy-1.24/nft/agent", Verdict::kSound),
      SampleCell("boot/kubelet-1.27/proxy-1.24/nft/kubelet", Verdict::kKnown),
      SampleCell("boot/kubelet-1.27/proxy-1.24/nft/agent", Verdict::kUnexpected),
      SampleCell("boot/kubelet-1.27/proxy-1.27-ipvs/nft/agent", Verdict::kBroken),
  };
  report.cells[2].allowed = report.cells[3].allowed = false;
  report.cells[3].about = "kube-proxy marks packets that no rule drops";
  report.compared = {.cells = 2, .checks = 30, .streams = 40};
  return report;
}

TEST(MatrixTextTest, IsATableALegendAndTheCellsThatAreNotAsExpected) {
  EXPECT_EQ(MatrixText(SmallMatrix(), false),
            R"(Linux 6.18.5, iptables 1.8.9
A, kubelet: the kubelet of each cell
B, agent: kube-iptables-agent 0.4.0

fresh boot, iptables nft
  kubelet   1.24   1.27
                   ipvs
  1.24      +|+     .
  1.27     (~1|!1) .|#

Each cell is kubelet|agent: who keeps kubelet's chains. Columns are kube-proxy's generations.
  +  sound          every packet did what it does on a sound node
  ~  known failure  something failed that is known to fail in these versions
  !  unexpected     something differs from what is expected
  #  broken         the cell could not be run
  .  not run      ( )  the version skew policy does not allow the pair
  -  no kubelet can do this step; only the agent can
  A number counts the checks and streams that were not sound, over all steps.

unexpected  boot/kubelet-1.27/proxy-1.24/nft/agent
  kube-proxy marks packets that no rule drops
  at: kube-proxy starts
    - lb-refused/tcp/ipv4: expected dropped, got reached the host (from refused client to
      1.2.3.4:80, tcp; received by node 1; packets sent 1, received 1).

broken  boot/kubelet-1.27/proxy-1.27-ipvs/nft/agent
  could not be run: unshare: Operation not permitted

B (agent) is in no cell worse than A (kubelet): 2 cells, 30 checks and 40 streams compared
5 cells: 2 sound, 1 known failure, 1 unexpected, 1 broken, 0 left out; 1 min 15 s
)");
}

struct TextRow {
  const char* name;
  // What is changed in SmallMatrix().
  void (*change)(MatrixReport& report);
  std::vector<std::string> has;
};

const TextRow kTexts[] = {
    {"what no kubelet has differs from what was not run",
     [](MatrixReport& report) {
       report.cells = {SampleCell("label-flip/kubelet-1.27/proxy-1.27/nft/agent", Verdict::kSound),
                       SampleCell("boot/kubelet-1.27/proxy-1.27/nft/agent", Verdict::kSound)};
       report.cells[0].agent_only = true;
     },
     {"label-flip, iptables nft\n  kubelet   1.27\n  1.27      -|+\n",
      "fresh boot, iptables nft\n  kubelet   1.27\n  1.27      .|+\n"}},
    {"cells that were left out are counted by their reasons",
     [](MatrixReport& report) {
       report.left_out = {{.id = "boot/x/nft/kubelet", .path = "fresh boot", .why = "no bullseye"},
                          {.id = "boot/x/nft/agent", .path = "fresh boot", .why = "no bullseye"},
                          {.id = "to-nft/y/nft/agent", .path = "to nft", .why = "no <trixie>"}};
     },
     {"\nLeft out:\n  - 1 cell: no <trixie>\n  - 2 cells: no bullseye\n",
      "1 broken, 3 left out; 1 min 15 s\n"}},
    {"a stream that is not explained is unexpected",
     [](MatrixReport& report) {
       report.cells[0].steps[0].streams = {SampleStream(12, 9)};
       report.cells[0].steps[0].streams[0].afterwards = true;
     },
     {"    - stream stream-refused-afterwards/ipv4: none may reach the host: broken by 12 of 400 "
      "packets, 9\n      of which are explained; the longest gap was 400.\n"}},
    {"what is wrong with the whole",
     [](MatrixReport& report) { report.problems = {"agent is worse than kubelet in x"}; },
     {"\nThe matrix as a whole:\n  - agent is worse than kubelet in x\n",
      "\nB (agent) is worse than A (kubelet): 2 cells, 30 checks and 40 streams compared\n"}},
    {"who is compared",
     [](MatrixReport& report) {
       report.a = {"agent-a", "kube-iptables-agent 0.6.0, /old"};
       report.b = {"agent-b", "kube-iptables-agent 0.7.0, /new"};
     },
     {"\nA, agent-a: kube-iptables-agent 0.6.0, /old\n"
      "B, agent-b: kube-iptables-agent 0.7.0, /new\n",
      "\nEach cell is agent-a|agent-b: who keeps",
      "\nB (agent-b) is in no cell worse than A (agent-a): "}},
    {"that nothing was compared",
     [](MatrixReport& report) { report.compared = {}; },
     {"\nNothing was compared: no cell was run on both sides.\n5 cells"}},
    {"how many checks are not shown",
     [](MatrixReport& report) { report.cells[3].steps[0].checks.assign(20, SampleLeak("")); },
     {"\n    and 12 more\n"}},
};

TEST(MatrixTextTest, SaysWhatWasFound) {
  for (const TextRow& row : kTexts) {
    MatrixReport report = SmallMatrix();
    row.change(report);
    const std::string text = MatrixText(report, false);
    for (const std::string& part : row.has) EXPECT_THAT(text, HasSubstr(part)) << row.name;
  }
}

TEST(MatrixTextTest, IsNeverWiderThan100Columns) {
  MatrixReport report = SmallMatrix();
  report.cells[4].problem = std::string(250, 'x') + " " + std::string(90, 'y');
  report.cells[3].about = std::string(60, 'a') + " " + std::string(60, 'b');
  for (int minor = 10; minor < 40; ++minor) {
    report.cells.push_back(SampleCell(
        absl::StrCat("boot/kubelet-1.25-gate-on/proxy-1.", minor, "/nft/agent"), Verdict::kSound));
  }
  const std::string text = MatrixText(report, false);
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(line.size(), 100U) << line;
  }
  EXPECT_THAT(text, HasSubstr("1.39"));
}

TEST(MatrixTextTest, HasColoursOnlyWhenAskedAndNoOtherControlCharacters) {
  MatrixReport report = SmallMatrix();
  report.cells[4].problem =
      "a \x1b[2J\x07 b \xC2\x9B"
      "2J";
  EXPECT_THAT(MatrixText(report, false), HasSubstr("a \\x1b[2J\\a b \\u009b2J"));
  EXPECT_THAT(MatrixText(report, false), Not(HasSubstr("\x1b")));
  const std::string coloured = MatrixText(report, true);
  EXPECT_THAT(coloured, HasSubstr("\x1b[1;31m!1\x1b[0m"));
  EXPECT_EQ(std::regex_replace(coloured, std::regex("\x1b\\[[0-9;]*m"), ""),
            MatrixText(report, false));
}

TEST(ProgressLineTest, SaysWhichCellIsDone) {
  const CellReport cell = SampleCell("boot/kubelet-1.24/proxy-1.27/nft/agent", Verdict::kSound);
  EXPECT_EQ(ProgressLine(cell, 17, 120, false),
            "[ 17/120] sound          fresh boot  kubelet 1.24  proxy 1.27  nft  agent  1.9 s");
  EXPECT_THAT(ProgressLine(cell, 17, 120, true), HasSubstr("\x1b[32msound        \x1b[0m"));
}

}  // namespace
}  // namespace kipt::skew
