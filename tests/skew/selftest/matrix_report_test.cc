// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/report/matrix_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "tests/skew/report/report_parts.h"
#include "tests/skew/selftest/sample_matrix.h"
#include "tests/support/background_program.h"
#include "tests/support/matchers.h"

namespace kipt::skew {
namespace {

using testing::CountOf;
using Json = nlohmann::ordered_json;

constexpr char kId[] = "boot/kubelet-1.24/proxy-1.27/nft/agent";

struct StepRow {
  std::string name;
  StepReport step;
  Verdict verdict;
};

Check Complained(Check check) {
  check.complaint = "pod a had 60 of 64";
  return check;
}

// Expected to leak, and did not: a fact that is not one.
Check BetterThanExpected() {
  Check check = SampleCheck();
  check.expected = Outcome::kReachedHost;
  return check;
}

StepReport Asked(std::vector<Check> checks) { return {.name = "a step", .checks = checks}; }
StepReport Sent(uint64_t bad, uint64_t allowed) {
  return {.name = "a step", .streams = {SampleStream(bad, allowed)}};
}
StepReport Failed(bool expected, const Check& check) {
  return {.name = "a step", .error = "exit 2", .error_expected = expected, .checks = {check}};
}

std::vector<StepRow> StepRows() {
  return {
      {"asked nothing", Asked({}), Verdict::kSound},
      {"sound check", Asked({SampleCheck()}), Verdict::kSound},
      {"known leak", Asked({SampleCheck(), SampleLeak("a fact")}), Verdict::kKnown},
      {"leak", Asked({SampleLeak("a fact"), SampleLeak("")}), Verdict::kUnexpected},
      {"better than expected", Asked({BetterThanExpected()}), Verdict::kUnexpected},
      {"complaint", Asked({Complained(SampleCheck())}), Verdict::kUnexpected},
      {"of a known leak", Asked({Complained(SampleLeak("a fact"))}), Verdict::kUnexpected},
      {"sound stream", Sent(0, 0), Verdict::kSound},
      {"sound stream that need not be", Sent(0, 9), Verdict::kSound},
      {"stream as bad as allowed", Sent(9, 9), Verdict::kKnown},
      {"stream worse than allowed", Sent(10, 9), Verdict::kUnexpected},
      {"expected error", Failed(true, SampleCheck()), Verdict::kKnown},
      {"unexpected error", Failed(false, SampleCheck()), Verdict::kUnexpected},
      {"expected error, and a leak", Failed(true, SampleLeak("")), Verdict::kUnexpected},
  };
}

TEST(StepVerdictTest, IsThatOfItsWorstPacketOrError) {
  for (const StepRow& row : StepRows()) {
    EXPECT_STREQ(NameOf(VerdictOf(row.step)), NameOf(row.verdict)) << row.name;
  }
}

TEST(CellVerdictTest, IsThatOfTheWorstStep) {
  CellReport cell = SampleCell(kId, Verdict::kSound);
  EXPECT_EQ(VerdictOf(cell), Verdict::kSound);
  cell.steps.push_back({.name = "later", .checks = {SampleLeak("")}});
  cell.steps.push_back({.name = "latest", .checks = {SampleLeak("a fact")}});
  EXPECT_EQ(VerdictOf(cell), Verdict::kUnexpected);
}

TEST(CellVerdictTest, IsBrokenWithAProblemWhateverItsPacketsDid) {
  CellReport cell = SampleCell(kId, Verdict::kUnexpected);
  cell.problem = "the agent did not start";
  EXPECT_EQ(VerdictOf(cell), Verdict::kBroken);
}

TEST(CellVerdictTest, IsBrokenWhereNothingWasAsked) {
  CellReport cell;
  EXPECT_EQ(VerdictOf(cell), Verdict::kBroken);
  cell.steps = {{.name = "kubelet starts"}};
  EXPECT_EQ(VerdictOf(cell), Verdict::kBroken);
  cell.steps[0].streams = {SampleStream(0, 0)};
  EXPECT_EQ(VerdictOf(cell), Verdict::kSound);
}

TEST(TallyTest, CountsEachVerdictAndAllIsAsExpectedOnlyWithoutBadOnes) {
  MatrixReport report;
  report.cells = {SampleCell(kId, Verdict::kSound), SampleCell(kId, Verdict::kKnown),
                  SampleCell(kId, Verdict::kKnown)};
  EXPECT_TRUE(AllAsExpected(report));
  report.problems = {"the agent is worse than kubelet"};
  EXPECT_FALSE(AllAsExpected(report));
  report.problems.clear();
  for (const Verdict verdict : {Verdict::kUnexpected, Verdict::kBroken}) {
    MatrixReport bad = report;
    bad.cells.push_back(SampleCell(kId, verdict));
    EXPECT_FALSE(AllAsExpected(bad)) << NameOf(verdict);
  }
  report.cells.push_back(SampleCell(kId, Verdict::kUnexpected));
  report.cells.push_back(SampleCell(kId, Verdict::kBroken));
  EXPECT_THAT(TallyOf(report), ElementsAre(1, 2, 1, 1));
}

TEST(CellJsonTest, IsTheSameCellWhenItIsReadAgain) {
  const CellReport cell = CellWithEveryField();
  const absl::StatusOr<CellReport> read = ParseCellReport(CellJson(cell));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(CellJson(*read), CellJson(cell));
}

// So that the test above compares all of a cell.
TEST(CellJsonTest, HoldsEveryField) {
  const Json json = Json::parse(CellJson(CellWithEveryField()));
  const Json flat = json.flatten();
  for (const auto& leaf : flat.items()) {
    const Json& value = leaf.value();
    const bool set = !(value.is_null() || value == "" || value == 0);
    EXPECT_TRUE(set) << leaf.key() << " " << value;
  }
  EXPECT_EQ(json.size(), 12U);
  EXPECT_EQ(json["steps"][0].size(), 8U);
  EXPECT_EQ(json["steps"][0]["checks"][0].size(), 6U);
  EXPECT_EQ(json["steps"][0]["checks"][0]["probe"].size(), 8U);
  EXPECT_EQ(json["steps"][0]["checks"][0]["result"].size(), 8U);
  EXPECT_EQ(json["steps"][0]["streams"][0].size(), 8U);
  EXPECT_EQ(json["steps"][0]["streams"][0]["count"].size(), 10U);
}

TEST(CellJsonTest, WritesWhatIsNoUtf8AsReplacementCharacters) {
  CellReport cell = SampleCell(kId, Verdict::kSound);
  cell.about = "bad \xFF\xC0 byte";
  const absl::StatusOr<CellReport> read = ParseCellReport(CellJson(cell));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->about, "bad \xEF\xBF\xBD\xEF\xBF\xBD byte");
}

TEST(CellJsonTest, IsRefusedWhereItIsNotWhatWasWritten) {
  const Json whole = Json::parse(CellJson(CellWithEveryField()));
  const std::string text = whole.dump();
  Json without_steps = whole;
  without_steps.erase("steps");
  Json unknown_outcome = whole;
  unknown_outcome["steps"][0]["checks"][0]["expected"] = "eaten";
  for (const std::string& each : {text.substr(0, text.size() / 2), std::string(),
                                  without_steps.dump(), unknown_outcome.dump()}) {
    EXPECT_EQ(ParseCellReport(each).status().code(), absl::StatusCode::kInvalidArgument) << each;
  }
}

TEST(MatrixJsonTest, HasTheWholeMatrixAndEachCellsVerdict) {
  MatrixReport report{.kernel = "6.18.5",
                      .iptables = "1.8.9",
                      .b = {"agent", "kube-iptables-agent 0.4.0"},
                      .seconds = 2.5};
  report.cells = {SampleCell(kId, Verdict::kKnown), SampleCell(kId, Verdict::kBroken)};
  report.problems = {"a problem"};
  report.compared = {.cells = 1, .checks = 20, .streams = 30};
  const Json json = Json::parse(MatrixJson(report));
  EXPECT_EQ(json["kernel"], "6.18.5");
  EXPECT_EQ(json["a"], Json::parse(R"({"name":"kubelet","what":"the kubelet of each cell"})"));
  EXPECT_EQ(json["b"], Json::parse(R"({"name":"agent","what":"kube-iptables-agent 0.4.0"})"));
  EXPECT_EQ(json["problems"], Json::array({"a problem"}));
  EXPECT_EQ(json["tally"]["knownFailure"], 1);
  EXPECT_EQ(json["compared"], Json::parse(R"({"cells":1,"checks":20,"streams":30})"));
  EXPECT_EQ(json["allAsExpected"], false);
  ASSERT_EQ(json["cells"].size(), 2U);
  EXPECT_EQ(json["cells"][0]["verdict"], "known failure");
  EXPECT_EQ(json["cells"][1]["verdict"], "broken");
  report.cells.clear();
  EXPECT_TRUE(Json::parse(MatrixJson(report))["cells"].empty());
}

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
  EXPECT_EQ(MatrixText(SmallMatrix()),
            R"(Linux 6.18.5, iptables 1.8.9
A, kubelet: the kubelet of each cell
B, agent: kube-iptables-agent 0.4.0

fresh boot, iptables nft
  kubelet 1.24: 1.24 +|+
  kubelet 1.27: 1.24 (~1|!1), 1.27 ipvs .|#

Each cell is kubelet|agent: who keeps kubelet's chains, next to kube-proxy's generations.
  +  sound          every packet did what it does on a sound node
  ~  known failure  something failed that is known to fail in these versions
  !  unexpected     something differs from what is expected
  #  broken         the cell could not be run
  .  not run      ( )  the version skew policy does not allow the pair
  A number counts the checks and streams that were not sound, over all steps.

unexpected  boot/kubelet-1.27/proxy-1.24/nft/agent
  kube-proxy marks packets that no rule drops
  at: kube-proxy starts
    - lb-refused/tcp/ipv4: expected dropped, got reached the host (from refused client to 1.2.3.4:80, tcp; received by node 1; packets sent 1, received 1).

broken  boot/kubelet-1.27/proxy-1.27-ipvs/nft/agent
  could not be run: unshare: Operation not permitted

B (agent) is in no cell worse than A (kubelet): 2 cells, 30 checks and 40 streams compared
5 cells: 2 sound, 1 known failure, 1 unexpected, 1 broken; 1 min 15 s
)");
}

struct TextRow {
  const char* name;
  // What is changed in SmallMatrix().
  void (*change)(MatrixReport& report);
  std::vector<std::string> has;
};

const TextRow kTexts[] = {
    {"a stream that is not explained is unexpected",
     [](MatrixReport& report) {
       report.cells[0].steps[0].streams = {SampleStream(12, 9)};
       report.cells[0].steps[0].streams[0].afterwards = true;
     },
     {"    - stream stream-refused-afterwards/ipv4: none may reach the host: broken by 12 of 400 "
      "packets, 9 of which are explained; the longest gap was 400.\n"}},
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

TEST(MatrixTextTest, ReportsWhatWasFound) {
  for (const TextRow& row : kTexts) {
    MatrixReport report = SmallMatrix();
    row.change(report);
    const std::string text = MatrixText(report);
    for (const std::string& part : row.has) EXPECT_THAT(text, HasSubstr(part)) << row.name;
  }
}

TEST(MatrixTextTest, HasNoControlCharacters) {
  MatrixReport report = SmallMatrix();
  report.cells[4].problem =
      "a \x1b[2J\x07 b \xC2\x9B"
      "2J";
  EXPECT_THAT(MatrixText(report), HasSubstr("a \\x1b[2J\\a b \\u009b2J"));
  EXPECT_THAT(MatrixText(report), Not(HasSubstr("\x1b")));
}

TEST(ProgressLineTest, NamesTheFinishedCell) {
  const CellReport cell = SampleCell("boot/kubelet-1.24/proxy-1.27/nft/agent", Verdict::kSound);
  EXPECT_EQ(ProgressLine(cell, 17, 120),
            "[ 17/120] sound          fresh boot  kubelet 1.24  proxy 1.27  nft  agent  1.9 s");
}

// ---- the HTML page: what is in it, and what must not be ----

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

}  // namespace
}  // namespace kipt::skew
