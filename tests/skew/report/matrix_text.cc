// SPDX-License-Identifier: Apache-2.0
//
// The matrix for a terminal of 100 columns.
#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tests/skew/report/escape.h"
#include "tests/skew/report/grid.h"
#include "tests/skew/report/matrix_report.h"
#include "tests/skew/report/sentences.h"

namespace kipt::skew {
namespace {

constexpr size_t kWidth = 100;
// A cell's longest form is "(+|~)", and a column's name "nftables".
constexpr size_t kColumn = 7;
// Of one cell that is not as expected; the others are counted.
constexpr size_t kFindings = 8;

struct Look {
  char glyph;
  const char* colour;
};

Look LookOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSound:
      return {'+', "\x1b[32m"};
    case Verdict::kKnown:
      return {'~', "\x1b[33m"};
    case Verdict::kUnexpected:
      return {'!', "\x1b[1;31m"};
    case Verdict::kBroken:
      return {'#', "\x1b[1;35m"};
  }
  return {'#', ""};
}

std::string Painted(const std::string& text, Verdict verdict, bool colour) {
  return colour ? absl::StrCat(LookOf(verdict).colour, text, "\x1b[0m") : text;
}

std::string Glyph(const CellReport* cell, bool colour) {
  if (cell == nullptr) return ".";
  const Verdict verdict = VerdictOf(*cell);
  return Painted(std::string(1, LookOf(verdict).glyph), verdict, colour);
}

std::string Padded(const std::string& text, size_t width) {
  return absl::StrCat(text, std::string(width - std::min(width, text.size()), ' '));
}

// The glyphs' colours have no width, so the cell is padded by hand: five columns and a gap.
std::string PairText(const GridPair* pair, bool colour) {
  if (pair == nullptr) return Padded("  .", kColumn);
  const bool allowed = pair->any().allowed;
  return absl::StrCat(allowed ? " " : "(", Glyph(pair->kubelet, colour), "|",
                      Glyph(pair->agent, colour), allowed ? " " : ")",
                      std::string(kColumn - 5, ' '));
}

void TrimRight(std::string& line) { line.erase(line.find_last_not_of(' ') + 1); }

// Two lines: "1.27" over "ipvs".
std::string Header(const Grid& grid, size_t margin, size_t from, size_t to) {
  std::string upper = Padded("  kubelet", margin);
  std::string lower(margin, ' ');
  for (size_t column = from; column < to; ++column) {
    const std::vector<std::string> parts =
        absl::StrSplit(TerminalText(grid.columns[column]), absl::MaxSplits(' ', 1));
    absl::StrAppend(&upper, Padded(" " + parts[0].substr(0, kColumn - 2), kColumn));
    absl::StrAppend(
        &lower, Padded(" " + (parts.size() > 1 ? parts[1].substr(0, kColumn - 2) : ""), kColumn));
  }
  TrimRight(upper);
  TrimRight(lower);
  return absl::StrCat(upper, "\n", lower.empty() ? "" : lower + "\n");
}

std::string GridText(const Grid& grid, bool colour) {
  size_t margin = 11;
  for (const std::string& row : grid.rows) {
    margin = std::max(margin, std::min<size_t>(TerminalText(row).size() + 4, 40));
  }
  const size_t per_block = (kWidth - margin) / kColumn;
  std::map<std::pair<size_t, size_t>, const GridPair*> at;
  for (const GridPair& pair : grid.pairs) at[{pair.row, pair.column}] = &pair;

  std::string text = TerminalText(absl::StrCat(grid.Title(), ", iptables ", grid.mode)) + "\n";
  for (size_t from = 0; from < grid.columns.size(); from += per_block) {
    const size_t to = std::min(from + per_block, grid.columns.size());
    absl::StrAppend(&text, Header(grid, margin, from, to));
    for (size_t row = 0; row < grid.rows.size(); ++row) {
      std::string line = Padded("  " + TerminalText(grid.rows[row]).substr(0, 36), margin);
      for (size_t column = from; column < to; ++column) {
        const auto found = at.find({row, column});
        absl::StrAppend(&line, PairText(found == at.end() ? nullptr : found->second, colour));
      }
      TrimRight(line);
      absl::StrAppend(&text, line, "\n");
    }
  }
  return text;
}

// Breaks between words, and within a word that is longer than a line.
std::string Wrapped(const std::string& first, const std::string& indent, const std::string& text) {
  std::string wrapped;
  std::string line = first;
  bool empty = true;
  const std::vector<std::string> words = absl::StrSplit(TerminalText(text), absl::ByAnyChar(" \n"));
  for (std::string word : words) {
    if (!empty && line.size() + 1 + word.size() > kWidth) {
      absl::StrAppend(&wrapped, line, "\n");
      line = indent;
      empty = true;
    }
    while (line.size() + word.size() > kWidth) {
      const size_t fits = kWidth - line.size();
      absl::StrAppend(&wrapped, line, word.substr(0, fits), "\n");
      word.erase(0, fits);
      line = indent;
    }
    absl::StrAppend(&line, empty ? "" : " ", word);
    empty = false;
  }
  TrimRight(line);
  return absl::StrCat(wrapped, line, "\n");
}

std::string FailingCell(const CellReport& cell, bool colour) {
  const Verdict verdict = VerdictOf(cell);
  std::string text =
      absl::StrCat(Painted(NameOf(verdict), verdict, colour), "  ", TerminalText(cell.id), "\n");
  if (!cell.about.empty()) absl::StrAppend(&text, Wrapped("  ", "  ", cell.about));
  if (verdict == Verdict::kBroken) {
    const std::string problem =
        cell.problem.empty() ? "it asked nothing: no check and no stream" : cell.problem;
    absl::StrAppend(&text, Wrapped("  could not be run: ", "    ", problem));
  }
  const std::vector<Finding> findings = UnexpectedOf(cell);
  std::string step;
  for (size_t i = 0; i < std::min(findings.size(), kFindings); ++i) {
    if (i == 0 || findings[i].step != step) {
      step = findings[i].step;
      absl::StrAppend(&text, Wrapped("  at: ", "      ", step));
    }
    absl::StrAppend(&text, Wrapped("    - ", "      ", findings[i].text));
  }
  if (findings.size() > kFindings) {
    absl::StrAppend(&text, "    and ", findings.size() - kFindings, " more\n");
  }
  return text;
}

std::string Legend() {
  return "Each cell is kubelet|agent: who keeps kubelet's chains. Columns are kube-proxy's "
         "generations.\n"
         "  +  sound          every packet did what it does on a sound node\n"
         "  ~  known failure  something failed, as it is known to fail in these versions\n"
         "  !  unexpected     something did otherwise than expected\n"
         "  #  broken         the cell could not be run\n"
         "  .  not run      ( )  the version skew policy does not allow the pair\n";
}

std::string Totals(const MatrixReport& report, bool colour) {
  const Tally tally = TallyOf(report);
  const auto part = [colour](int count, Verdict verdict) {
    const std::string text = absl::StrCat(count, " ", NameOf(verdict));
    return count == 0 ? text : Painted(text, verdict, colour);
  };
  return absl::StrCat(report.cells.size(), " cells: ", part(tally.sound, Verdict::kSound), ", ",
                      part(tally.known, Verdict::kKnown), ", ",
                      part(tally.unexpected, Verdict::kUnexpected), ", ",
                      part(tally.broken, Verdict::kBroken), "; ", Duration(report.seconds), "\n");
}

}  // namespace

std::string MatrixText(const MatrixReport& report, bool colour) {
  std::string text =
      TerminalText(absl::StrCat("Linux ", report.kernel, ", iptables ", report.iptables,
                                ", kube-iptables-agent ", report.agent)) +
      "\n";
  for (const Grid& grid : GridsOf(report)) absl::StrAppend(&text, "\n", GridText(grid, colour));
  absl::StrAppend(&text, "\n", Legend());
  for (const CellReport& cell : report.cells) {
    if (VerdictOf(cell) >= Verdict::kUnexpected) {
      absl::StrAppend(&text, "\n", FailingCell(cell, colour));
    }
  }
  if (!report.problems.empty()) absl::StrAppend(&text, "\nThe matrix as a whole:\n");
  for (const std::string& problem : report.problems) {
    absl::StrAppend(&text, Wrapped("  - ", "    ", problem));
  }
  absl::StrAppend(&text, "\n", Totals(report, colour));
  return text;
}

std::string ProgressLine(const CellReport& cell, int done, int of, bool colour) {
  const Verdict verdict = VerdictOf(cell);
  const int width = static_cast<int>(absl::StrCat(of).size());
  const std::string where =
      TerminalText(absl::StrCat(cell.path, "  kubelet ", cell.kubelet, "  proxy ", cell.proxy, "  ",
                                cell.mode, "  ", cell.actor));
  return absl::StrFormat("[%*d/%d] %s  %s  %.1f s", width, done, of,
                         Painted(Padded(NameOf(verdict), 13), verdict, colour), where,
                         cell.seconds);
}

}  // namespace kipt::skew
