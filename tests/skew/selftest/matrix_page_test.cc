// SPDX-License-Identifier: Apache-2.0
//
// What is in the HTML page, and what must not be.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "tests/skew/report/matrix_report.h"
#include "tests/skew/report/report_parts.h"
#include "tests/skew/selftest/sample_matrix.h"
#include "tests/support/background_program.h"
#include "tests/support/matchers.h"

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

}  // namespace

}  // namespace kipt::skew
