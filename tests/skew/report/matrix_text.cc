// SPDX-License-Identifier: Apache-2.0
//
// The matrix for a terminal.
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "featuregates/go_text.h"
#include "tests/skew/report/report_parts.h"

namespace kipt::skew {
namespace {

using featuregates::Printable;

// Of one cell that is not as expected; the others are counted.
constexpr size_t kFindings = 8;

char GlyphOf(Verdict verdict) {
  // In the order of the enumeration: sound, known failure, unexpected, broken.
  return "+~!#"[static_cast<size_t>(verdict)];
}

// "~12": the number is of what was not sound. A broken cell's would mean nothing.
std::string Half(const CellReport* cell) {
  if (cell == nullptr) return ".";
  const Verdict verdict = VerdictOf(*cell);
  const size_t count = verdict == Verdict::kBroken ? 0 : NotSoundOf(*cell).Total();
  return absl::StrCat(std::string(1, GlyphOf(verdict)), count == 0 ? "" : absl::StrCat(count));
}

// Of each kubelet the kube-proxies that it met: "  kubelet 1.27: 1.24 (~1|!1), 1.27 ipvs .|#".
std::string GridText(const Grid& grid) {
  std::vector<std::string> rows;
  for (const std::string& kubelet : grid.rows)
    rows.push_back(absl::StrCat("kubelet ", kubelet, ":"));
  for (const GridPair& pair : grid.pairs) {
    std::string& row = rows[pair.row];
    const bool allowed = pair.any().allowed;
    absl::StrAppend(&row, row.back() == ':' ? " " : ", ", grid.columns[pair.column],
                    allowed ? " " : " (", Half(pair.a), "|", Half(pair.b), allowed ? "" : ")");
  }
  std::string text = Printable(absl::StrCat(grid.Title(), ", iptables ", grid.mode)) + "\n";
  for (const std::string& row : rows) absl::StrAppend(&text, "  ", Printable(row), "\n");
  return text;
}

// What of a step is not as expected.
std::vector<std::string> UnexpectedOf(const StepReport& step) {
  std::vector<std::string> found;
  if (!step.error.empty() && !step.error_expected) {
    found.push_back(absl::StrCat("error: ", step.error));
  }
  for (const Check& check : step.checks) {
    if (!check.AsExpected()) found.push_back(Sentence(check));
  }
  for (const StreamCheck& stream : step.streams) {
    if (!stream.AsExpected()) found.push_back(Sentence(stream));
  }
  return found;
}

std::string FailingCell(const CellReport& cell) {
  std::string text = absl::StrCat(NameOf(VerdictOf(cell)), "  ", Printable(cell.id), "\n");
  if (!cell.about.empty()) absl::StrAppend(&text, "  ", Printable(cell.about), "\n");
  if (VerdictOf(cell) == Verdict::kBroken) {
    absl::StrAppend(
        &text, "  could not be run: ",
        cell.problem.empty() ? "it has no checks and no streams" : Printable(cell.problem), "\n");
  }
  size_t count = 0;
  for (const StepReport& step : cell.steps) {
    const std::vector<std::string> unexpected = UnexpectedOf(step);
    if (!unexpected.empty() && count < kFindings)
      absl::StrAppend(&text, "  at: ", Printable(step.name), "\n");
    for (const std::string& finding : unexpected) {
      if (++count <= kFindings) absl::StrAppend(&text, "    - ", Printable(finding), "\n");
    }
  }
  if (count > kFindings) absl::StrAppend(&text, "    and ", count - kFindings, " more\n");
  return text;
}

std::string Legend(const MatrixReport& report) {
  return Printable(absl::StrCat("Each cell is ", report.a.name, "|", report.b.name,
                                ": who keeps kubelet's chains, next to kube-proxy's "
                                "generations.")) +
         "\n"
         "  +  sound          every packet did what it does on a sound node\n"
         "  ~  known failure  something failed that is known to fail in these versions\n"
         "  !  unexpected     something differs from what is expected\n"
         "  #  broken         the cell could not be run\n"
         "  .  not run      ( )  the version skew policy does not allow the pair\n"
         "  A number counts the checks and streams that were not sound, over all steps.\n";
}

std::string Totals(const MatrixReport& report) {
  std::string text = absl::StrCat(report.cells.size(), " cells: ");
  const Tally tally = TallyOf(report);
  for (size_t i = 0; i < tally.size(); ++i) {
    absl::StrAppend(&text, tally[i], " ", NameOf(static_cast<Verdict>(i)), ", ");
  }
  text.replace(text.size() - 2, 2, "; ");
  return absl::StrCat(text, Duration(report.seconds), "\n");
}

// The verdict of the comparison.
std::string ComparedText(const MatrixReport& report) {
  const Compared& compared = report.compared;
  if (compared.cells == 0) return "Nothing was compared: no cell was run on both sides.\n";
  const std::string what = absl::StrCat(compared.cells, " cells, ", compared.checks, " checks and ",
                                        compared.streams, " streams compared\n");
  const std::string sides =
      absl::StrCat("B (", report.b.name, ") is ", report.problems.empty() ? "in no cell " : "",
                   "worse than A (", report.a.name, "): ");
  return Printable(sides) + what;
}

std::string SideText(const char* letter, const SideReport& side) {
  return Printable(absl::StrCat(letter, ", ", side.name, ": ", side.what)) + "\n";
}

}  // namespace

std::string MatrixText(const MatrixReport& report) {
  std::string text =
      Printable(absl::StrCat("Linux ", report.kernel, ", iptables ", report.iptables)) + "\n" +
      SideText("A", report.a) + SideText("B", report.b);
  for (const Grid& grid : GridsOf(report)) absl::StrAppend(&text, "\n", GridText(grid));
  absl::StrAppend(&text, "\n", Legend(report));
  for (const CellReport& cell : report.cells) {
    if (VerdictOf(cell) >= Verdict::kUnexpected) {
      absl::StrAppend(&text, "\n", FailingCell(cell));
    }
  }
  if (!report.problems.empty()) absl::StrAppend(&text, "\nThe matrix as a whole:\n");
  for (const std::string& problem : report.problems) {
    absl::StrAppend(&text, "  - ", Printable(problem), "\n");
  }
  absl::StrAppend(&text, "\n", ComparedText(report), Totals(report));
  return text;
}

std::string ProgressLine(const CellReport& cell, int done, int of) {
  const int width = static_cast<int>(absl::StrCat(of).size());
  const std::string where =
      Printable(absl::StrCat(cell.path, "  kubelet ", cell.kubelet, "  proxy ", cell.proxy, "  ",
                             cell.mode, "  ", cell.actor));
  return absl::StrFormat("[%*d/%d] %-13s  %s  %.1f s", width, done, of, NameOf(VerdictOf(cell)),
                         where, cell.seconds);
}

}  // namespace kipt::skew
