// SPDX-License-Identifier: Apache-2.0
//
// What is in the HTML page, what must not be, and what its script does in node.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "tests/skew/report/matrix_report.h"
#include "tests/skew/report/report_parts.h"
#include "tests/skew/selftest/sample_matrix.h"
#include "tests/support/background_program.h"
#include "tests/support/matchers.h"
#include "tests/support/run_program.h"
#include "tests/support/temporary_tree.h"

namespace kipt::skew {
namespace {

using testing::CountOf;
using Json = nlohmann::ordered_json;

constexpr char kOpening[] = "<script type=\"application/json\" id=\"data\">";

// What the script reads: all up to the first thing that ends the element.
std::string DataOf(const std::string& page) {
  const size_t from = page.find(kOpening) + std::size(kOpening) - 1;
  return page.substr(from, page.find("</", from) - from);
}

MatrixReport OneCell() {
  MatrixReport report{
      .kernel = "6.18.5", .iptables = "1.8.9", .b = {"agent", "kube-iptables-agent 0.4.0"}};
  report.cells = {CellWithEveryField()};
  return report;
}

TEST(MatrixHtmlTest, NamesNothingOutsideItself) {
  const std::string page = MatrixHtml({});
  const std::regex outside(
      R"(https?:|\bsrc=|\bhref=|url\(|@import|\bimport\b|fetch\(|XMLHttpRequest|WebSocket|sendBeacon)",
      std::regex::icase);
  std::smatch found;
  EXPECT_FALSE(std::regex_search(page, found, outside)) << found.str();
  // And were something let in, the browser would not fetch it.
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("@STYLE@")));
}

// Text becomes markup nowhere: that is what keeps names harmless once they are out of the JSON.
TEST(MatrixHtmlTest, MakesNoMarkupOutOfText) {
  const std::string page = MatrixHtml({});
  for (const char* way :
       {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("}) {
    EXPECT_THAT(page, Not(HasSubstr(way)));
  }
}

struct HostileRow {
  std::string name;
  std::string text;
  // As the page's script sees it.
  std::string read;
};
const HostileRow kHostile[] = {
    {"end of the script", "x</script><script>alert(1)</script>",
     "x</script><script>alert(1)</script>"},
    {"comment and script", "<!--<script>", "<!--<script>"},
    {"element", "<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"},
    {"end of a string", "\";alert(1)//\\", "\";alert(1)//\\"},
    {"entity", "&lt;b&gt;", "&lt;b&gt;"},
    {"line separator", "a\xE2\x80\xA8\xE2\x80\xA9z", "a\xE2\x80\xA8\xE2\x80\xA9z"},
    {"invalid UTF-8", "a\xFF\xC0z", "a\xEF\xBF\xBD\xEF\xBF\xBDz"},
    {"control characters", std::string("a\0\x1B\x7F", 4), std::string("a\0\x1B\x7F", 4)},
    {"marks of the frame", "@SCRIPT@ @DATA@", "@SCRIPT@ @DATA@"},
};

TEST(HostileTextTest, StaysText) {
  const std::string harmless = MatrixHtml(OneCell());
  for (const auto& [name, text, read] : kHostile) {
    SCOPED_TRACE(name);
    MatrixReport report = OneCell();
    CellReport& cell = report.cells[0];
    cell.id = cell.path = cell.kubelet = cell.about = text;
    cell.steps[0].name = cell.steps[0].rules = text;
    cell.steps[0].checks[0].probe.name = cell.steps[0].checks[0].result.detail = text;
    report.problems = {text};
    const std::string page = MatrixHtml(report);
    for (const char* part : {"<", ">", "&"}) {
      EXPECT_EQ(CountOf(part, page), CountOf(part, harmless)) << part;
    }
    const std::string data = DataOf(page);
    EXPECT_TRUE(
        std::all_of(data.begin(), data.end(), [](char c) { return c >= 0x20 && c < 0x7F; }));
    const Json json = Json::parse(data);
    EXPECT_EQ(json["cells"][0]["about"], read);
    EXPECT_EQ(json["problems"][0], read);
    EXPECT_EQ(json["grids"][0]["path"], read);
    EXPECT_EQ(json["probes"][0][0], read);
  }
}

constexpr char kLeaks[] = "boot/kubelet-1.27/proxy-1.24/nft/agent";

MatrixReport Sample() {
  MatrixReport report{.kernel = "6.18.5", .iptables = "1.8.9"};
  report.cells = {SampleCell("boot/kubelet-1.24/proxy-1.24/nft/kubelet", Verdict::kSound),
                  SampleCell("boot/kubelet-1.24/proxy-1.24/nft/agent", Verdict::kSound),
                  SampleCell("boot/kubelet-1.27/proxy-1.24/nft/kubelet", Verdict::kKnown),
                  SampleCell(kLeaks, Verdict::kUnexpected),
                  SampleCell("flush/kubelet-1.27/proxy-1.27/legacy/agent", Verdict::kBroken)};
  report.cells[2].steps[0].streams = {SampleStream(12, 400)};
  // Counters are no difference.
  report.cells[2].steps[0].rules = "# IPv4, nft\n*nat\n:X ACCEPT [5:300]\n-A X\nCOMMIT\n";
  report.cells[3].steps[0].rules = "# IPv4, nft\n*nat\n:X ACCEPT [1:60]\n-A X\n-A Y\nCOMMIT\n";
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
  EXPECT_THAT(panel, HasSubstr("kubelet 1.27 with kube-proxy 1.24"));
  EXPECT_THAT(panel, HasSubstr("agent is better: with kubelet 2 not sound (1 check, 1 stream), "
                               "with agent 1 check not sound."));
  EXPECT_THAT(panel, HasSubstr("No known reason."));
  EXPECT_THAT(panel, HasSubstr("no component fills the chain"));
  EXPECT_THAT(panel, HasSubstr("1.2.3.4:80; sent 1, received 1 (node 1)"));
  EXPECT_THAT(panel, HasSubstr("400 packets: 12 reached a program on the node, 388 not received; "
                               "12 broke the rule, 400 of which are explained"));
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
