// SPDX-License-Identifier: Apache-2.0
//
// The page's script, run by node on a document of page_in_node.js.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/skew/report/matrix_report.h"
#include "tests/skew/selftest/sample_matrix.h"
#include "tests/support/run_program.h"
#include "tests/support/temporary_tree.h"

namespace kipt::skew {
namespace {

using ::testing::HasSubstr;

constexpr char kLeaks[] = "boot/kubelet-1.27/proxy-1.24/nft/agent";

MatrixReport Sample() {
  MatrixReport report{.kernel = "6.18.5", .iptables = "1.8.9"};
  report.cells = {SampleCell("boot/kubelet-1.24/proxy-1.24/nft/kubelet", Verdict::kSound),
                  SampleCell("boot/kubelet-1.24/proxy-1.24/nft/agent", Verdict::kSound),
                  SampleCell("boot/kubelet-1.27/proxy-1.24/nft/kubelet", Verdict::kKnown),
                  SampleCell(kLeaks, Verdict::kUnexpected),
                  SampleCell("flush/kubelet-1.27/proxy-1.27/legacy/agent", Verdict::kBroken)};
  report.cells[2].steps[0].streams = {SampleStream(12, 400)};
  report.cells[2].steps[0].rules = "# IPv4, nft\n*nat\n-A X\nCOMMIT\n";
  report.cells[3].steps[0].rules = "# IPv4, nft\n*nat\n-A Y\nCOMMIT\n";
  report.compared = {.cells = 2, .checks = 3, .streams = 1};
  return report;
}

// What page_in_node.js prints; an empty object where the script fails.
nlohmann::json Drawn(const MatrixReport& report, const std::string& cell) {
  const testing::TemporaryTree tree;
  tree.Write("page.html", MatrixHtml(report));
  const testing::ProgramResult result =
      testing::RunProgram({"node", KIPT_PAGE_IN_NODE, tree.Path("page.html"), cell});
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(result.err, "");
  const nlohmann::json drawn = nlohmann::json::parse(result.out, nullptr, false);
  return drawn.is_object() ? drawn : nlohmann::json::object();
}

TEST(PageScriptTest, DrawsEveryCellAndFilters) {
  const nlohmann::json drawn = Drawn(Sample(), "");
  EXPECT_EQ(drawn["halves"], 5);
  EXPECT_EQ(drawn["shown"], "3 of 3 pairs shown");
  EXPECT_EQ(drawn["only-unexpected"], "2 of 3 pairs shown");
  EXPECT_EQ(drawn["only-different"], "1 of 3 pairs shown");
  EXPECT_EQ(drawn["panel"], nullptr);
  EXPECT_THAT(drawn["machine"].dump(), HasSubstr("A, kubelet: the kubelet of each cell"));
  EXPECT_THAT(drawn["machine"].dump(), HasSubstr("compared: 2 cells, 3 checks, 1 stream"));
}

TEST(PageScriptTest, OpensTheCellOfTheAddressAndClosesIt) {
  const nlohmann::json drawn = Drawn(Sample(), kLeaks);
  const std::string panel = drawn["panel"].dump();
  EXPECT_THAT(panel, HasSubstr("kubelet 1.27 beside kube-proxy 1.24"));
  EXPECT_THAT(panel, HasSubstr("agent is better: with kubelet 2 not sound (1 check, 1 stream), "
                               "with agent 1 check not sound."));
  EXPECT_THAT(panel, HasSubstr("No known reason."));
  EXPECT_THAT(panel, HasSubstr("Rules with kubelet, and what is different with agent: +1"));
  EXPECT_THAT(panel, HasSubstr("+ -A Y"));
  EXPECT_EQ(drawn["sides"], nlohmann::json({"with kubelet", "with agent"}));
  EXPECT_EQ(drawn["closed"], true);
}

TEST(PageScriptTest, NamesTheSidesAndOpensABrokenCell) {
  MatrixReport report = Sample();
  report.a = {"agent-a", "kube-iptables-agent 0.6.0"};
  report.b = {"agent-b", "kube-iptables-agent 0.7.0"};
  report.problems = {"agent-b is worse than agent-a in x"};
  const nlohmann::json drawn = Drawn(report, report.cells[4].id);
  EXPECT_EQ(drawn["names"], nlohmann::json({"agent-a", "agent-b"}));
  EXPECT_THAT(drawn["problems"].dump(), HasSubstr("agent-b is worse than agent-a in x"));
  EXPECT_THAT(
      drawn["panel"].dump(),
      HasSubstr("The node with agent-b could not be run: unshare: Operation not permitted"));
}

}  // namespace
}  // namespace kipt::skew
