// SPDX-License-Identifier: Apache-2.0
//
// The matrix for a terminal of 100 columns.
#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "featuregates/go_text.h"
#include "tests/skew/report/report_parts.h"

namespace kipt::skew {
namespace {

// For a terminal: featuregates::Printable, but line ends stay.
std::string TerminalText(const std::string& text) {
  return absl::StrJoin(
      absl::StrSplit(text, '\n'), "\n",
      [](std::string* shown, absl::string_view line) { *shown += featuregates::Printable(line); });
}

constexpr size_t kWidth = 100;
// Of a column's name: "nftables".
constexpr size_t kName = 8;
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

std::string Padded(const std::string& text, size_t width) {
  return absl::StrCat(text, std::string(width - std::min(width, text.size()), ' '));
}

// "(~12|~4)", or with blanks for the parentheses.
size_t WidthOf(const GridPair& pair) { return Half(pair.a).size() + Half(pair.b).size() + 3; }

std::string PairText(const GridPair* pair, size_t width) {
  if (pair == nullptr) return Padded("  .", width);
  const bool allowed = pair->any().allowed;
  return absl::StrCat(allowed ? " " : "(", Half(pair->a), "|", Half(pair->b), allowed ? " " : ")",
                      std::string(width - WidthOf(*pair), ' '));
}

void TrimRight(std::string& line) { line.erase(line.find_last_not_of(' ') + 1); }

// A table as it is printed. Wider than a line, it goes on below, in blocks of columns.
class GridPrinter {
 public:
  explicit GridPrinter(const Grid& grid) : grid_(grid) {
    for (const std::string& row : grid.rows) {
      margin_ = std::max(margin_, std::min<size_t>(TerminalText(row).size() + 4, 40));
    }
    for (const std::string& column : grid.columns) {
      const std::vector<std::string> name = NameOfColumn(column);
      widths_.push_back(std::max(name[0].size(), name[1].size()) + 2);
    }
    for (const GridPair& pair : grid.pairs) {
      at_[{pair.row, pair.column}] = &pair;
      widths_[pair.column] = std::max(widths_[pair.column], WidthOf(pair));
    }
  }

  std::string Text() const {
    std::string text = TerminalText(absl::StrCat(grid_.Title(), ", iptables ", grid_.mode)) + "\n";
    size_t from = 0;
    while (from < widths_.size()) {
      size_t to = from + 1;
      size_t width = margin_ + widths_[from];
      while (to < widths_.size() && width + widths_[to] <= kWidth) width += widths_[to++];
      absl::StrAppend(&text, Header(from, to));
      for (size_t row = 0; row < grid_.rows.size(); ++row)
        absl::StrAppend(&text, Row(row, from, to));
      from = to;
    }
    return text;
  }

 private:
  // "1.27" over "ipvs".
  static std::vector<std::string> NameOfColumn(const std::string& column) {
    std::vector<std::string> parts = absl::StrSplit(TerminalText(column), absl::MaxSplits(' ', 1));
    parts.resize(2);
    for (std::string& part : parts) part.resize(std::min(part.size(), kName));
    return parts;
  }

  std::string Header(size_t from, size_t to) const {
    std::string upper = Padded("  kubelet", margin_);
    std::string lower(margin_, ' ');
    for (size_t column = from; column < to; ++column) {
      const std::vector<std::string> name = NameOfColumn(grid_.columns[column]);
      absl::StrAppend(&upper, Padded(" " + name[0], widths_[column]));
      absl::StrAppend(&lower, Padded(" " + name[1], widths_[column]));
    }
    TrimRight(upper);
    TrimRight(lower);
    return absl::StrCat(upper, "\n", lower.empty() ? "" : lower + "\n");
  }

  // Nothing, if none of these columns has anything in this row.
  std::string Row(size_t row, size_t from, size_t to) const {
    std::string line = Padded("  " + TerminalText(grid_.rows[row]).substr(0, 36), margin_);
    bool any = false;
    for (size_t column = from; column < to; ++column) {
      const auto found = at_.find({row, column});
      any = any || found != at_.end();
      absl::StrAppend(&line,
                      PairText(found == at_.end() ? nullptr : found->second, widths_[column]));
    }
    TrimRight(line);
    return any ? line + "\n" : "";
  }

  const Grid& grid_;
  size_t margin_ = 11;
  std::vector<size_t> widths_;
  std::map<std::pair<size_t, size_t>, const GridPair*> at_;
};

std::string FailingCell(const CellReport& cell) {
  const Verdict verdict = VerdictOf(cell);
  std::string text = absl::StrCat(NameOf(verdict), "  ", TerminalText(cell.id), "\n");
  if (!cell.about.empty()) absl::StrAppend(&text, Wrapped("  ", "  ", TerminalText(cell.about)));
  if (verdict == Verdict::kBroken) {
    const std::string problem =
        cell.problem.empty() ? "it has no checks and no streams" : cell.problem;
    absl::StrAppend(&text, Wrapped("  could not be run: ", "    ", TerminalText(problem)));
  }
  const std::vector<Finding> findings = UnexpectedOf(cell);
  std::string step;
  for (size_t i = 0; i < std::min(findings.size(), kFindings); ++i) {
    if (i == 0 || findings[i].step != step) {
      step = findings[i].step;
      absl::StrAppend(&text, Wrapped("  at: ", "      ", TerminalText(step)));
    }
    absl::StrAppend(&text, Wrapped("    - ", "      ", TerminalText(findings[i].text)));
  }
  if (findings.size() > kFindings) {
    absl::StrAppend(&text, "    and ", findings.size() - kFindings, " more\n");
  }
  return text;
}

std::string Legend(const MatrixReport& report) {
  return TerminalText(absl::StrCat("Each cell is ", report.a.name, "|", report.b.name,
                                   ": who keeps kubelet's chains. Columns are kube-proxy's "
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
  return TerminalText(sides) + what;
}

std::string SideText(const char* letter, const SideReport& side) {
  return TerminalText(absl::StrCat(letter, ", ", side.name, ": ", side.what)) + "\n";
}

}  // namespace

std::string MatrixText(const MatrixReport& report) {
  std::string text =
      TerminalText(absl::StrCat("Linux ", report.kernel, ", iptables ", report.iptables)) + "\n" +
      SideText("A", report.a) + SideText("B", report.b);
  for (const Grid& grid : GridsOf(report)) absl::StrAppend(&text, "\n", GridPrinter(grid).Text());
  absl::StrAppend(&text, "\n", Legend(report));
  for (const CellReport& cell : report.cells) {
    if (VerdictOf(cell) >= Verdict::kUnexpected) {
      absl::StrAppend(&text, "\n", FailingCell(cell));
    }
  }
  if (!report.problems.empty()) absl::StrAppend(&text, "\nThe matrix as a whole:\n");
  for (const std::string& problem : report.problems) {
    absl::StrAppend(&text, Wrapped("  - ", "    ", TerminalText(problem)));
  }
  absl::StrAppend(&text, "\n", ComparedText(report), Totals(report));
  return text;
}

std::string ProgressLine(const CellReport& cell, int done, int of) {
  const int width = static_cast<int>(absl::StrCat(of).size());
  const std::string where =
      TerminalText(absl::StrCat(cell.path, "  kubelet ", cell.kubelet, "  proxy ", cell.proxy, "  ",
                                cell.mode, "  ", cell.actor));
  return absl::StrFormat("[%*d/%d] %s  %s  %.1f s", width, done, of,
                         Padded(NameOf(VerdictOf(cell)), 13), where, cell.seconds);
}

}  // namespace kipt::skew
