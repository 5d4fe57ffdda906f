// SPDX-License-Identifier: Apache-2.0
//
// JUnit's XML as CI systems read it (the schema of Jenkins' xUnit plugin, junit-10.xsd): a suite
// per path, a test case per cell, and one more suite for the matrix as a whole.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/skew/report/escape.h"
#include "tests/skew/report/matrix_report.h"
#include "tests/skew/report/sentences.h"

namespace kipt::skew {
namespace {

struct Suite {
  std::string name;
  std::string cases = {};
  int tests = 0;
  int failures = 0;
  int errors = 0;
  int skipped = 0;
  double seconds = 0;
};

std::string Counts(const Suite& suite) {
  return absl::StrFormat(
      "name=\"%s\" tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" time=\"%.3f\"",
      XmlText(suite.name), suite.tests, suite.failures, suite.errors, suite.skipped, suite.seconds);
}

std::string Lines(const std::vector<Finding>& findings) {
  return absl::StrJoin(findings, "\n", [](std::string* out, const Finding& finding) {
    absl::StrAppend(out, finding.step, ": ", finding.text);
  });
}

// `element`: "failure" or "error".
std::string Bad(const std::string& element, const std::string& message, const std::string& text) {
  return absl::StrFormat("      <%s type=\"%s\" message=\"%s\">%s</%s>\n", element, element,
                         XmlText(message), XmlText(text), element);
}

void AddCell(const CellReport& cell, Suite& suite) {
  const Verdict verdict = VerdictOf(cell);
  std::string inside;
  if (verdict == Verdict::kBroken) {
    ++suite.errors;
    inside = Bad("error",
                 cell.problem.empty() ? "the cell has no checks and no "
                                        "streams"
                                      : cell.problem,
                 Lines(UnexpectedOf(cell)));
  } else if (verdict == Verdict::kUnexpected) {
    ++suite.failures;
    const std::vector<Finding> findings = UnexpectedOf(cell);
    inside = Bad("failure", absl::StrCat(findings.size(), " not as expected; ", findings[0].text),
                 Lines(findings));
  }
  const std::vector<Finding> known = KnownOf(cell);
  if (!known.empty()) {
    absl::StrAppend(&inside, "      <system-out>Known failures:&#10;", XmlText(Lines(known)),
                    "</system-out>\n");
  }
  absl::StrAppend(&suite.cases,
                  absl::StrFormat("    <testcase classname=\"%s\" name=\"%s\" time=\"%.3f\"",
                                  XmlText(suite.name), XmlText(cell.id), cell.seconds),
                  inside.empty() ? "/>\n" : absl::StrCat(">\n", inside, "    </testcase>\n"));
  ++suite.tests;
  suite.seconds += cell.seconds;
}

// A cell that was not run is not one that passed.
void AddLeftOut(const LeftOut& cell, Suite& suite) {
  absl::StrAppend(&suite.cases,
                  absl::StrFormat("    <testcase classname=\"%s\" name=\"%s\" time=\"0.000\">\n"
                                  "      <skipped message=\"%s\"/>\n    </testcase>\n",
                                  XmlText(suite.name), XmlText(cell.id), XmlText(cell.why)));
  ++suite.tests;
  ++suite.skipped;
}

Suite TheWhole(const MatrixReport& report) {
  Suite suite{.name = "the matrix", .tests = 1};
  const std::string open =
      "    <testcase classname=\"the matrix\" name=\"as a whole\" time=\"0.000\"";
  if (report.problems.empty()) {
    suite.cases = absl::StrCat(open, "/>\n");
    return suite;
  }
  suite.failures = 1;
  suite.cases = absl::StrCat(
      open, ">\n", Bad("failure", report.problems[0], absl::StrJoin(report.problems, "\n")),
      "    </testcase>\n");
  return suite;
}

}  // namespace

std::string MatrixJunit(const MatrixReport& report) {
  std::vector<Suite> suites;
  const auto suite_of = [&suites](const std::string& path) -> Suite& {
    const auto suite = std::find_if(suites.begin(), suites.end(),
                                    [&path](const Suite& one) { return one.name == path; });
    return suite == suites.end() ? suites.emplace_back(Suite{.name = path}) : *suite;
  };
  for (const CellReport& cell : report.cells) AddCell(cell, suite_of(cell.path));
  for (const LeftOut& cell : report.left_out) AddLeftOut(cell, suite_of(cell.path));
  suites.push_back(TheWhole(report));

  Suite all{.name = "kube-iptables-skew", .seconds = report.seconds};
  std::string inside;
  for (const Suite& suite : suites) {
    all.tests += suite.tests;
    all.failures += suite.failures;
    all.errors += suite.errors;
    all.skipped += suite.skipped;
    absl::StrAppend(&inside, "  <testsuite ", Counts(suite), ">\n", suite.cases,
                    "  </testsuite>\n");
  }
  return absl::StrCat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites ", Counts(all),
                      ">\n", inside, "</testsuites>\n");
}

}  // namespace kipt::skew
