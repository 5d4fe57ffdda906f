// SPDX-License-Identifier: Apache-2.0
//
// The map of marks as a grid for a terminal, as JSON, and as a picture.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "agent/audit/finding.h"
#include "agent/audit/json.h"
#include "agent/audit/mark_map.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

constexpr int kBits = 32;

std::string MaskText(uint32_t bits) { return absl::StrFormat("0x%08x", bits); }
bool Has(uint32_t bits, int bit) { return (bits >> bit & 1U) != 0; }

// One line of the grid: a letter for each bit, '.' for none.
struct Row {
  std::string who;
  std::string cells;  // of kBits, bit 31 first
};

char CellOf(const MarkUser& user, int bit) {
  const bool sets = Has(user.marks.set, bit);
  const bool clears = Has(user.marks.cleared, bit);
  const bool tests = Has(user.marks.tested, bit);
  if (!sets && !clears) return user.may_set_any ? '?' : tests ? 't' : '.';
  const char letter = sets && clears ? 'w' : sets ? 's' : 'c';
  return tests ? static_cast<char>(letter - 'a' + 'A') : letter;
}

std::string CellsOf(const auto& cell) {
  std::string cells;
  for (int bit = kBits - 1; bit >= 0; --bit) cells += cell(bit);
  return cells;
}

std::string Whole(bool whole) { return whole ? ", whole mark" : ""; }

std::vector<Row> RowsOf(const MarkMap& map) {
  std::vector<Row> rows;
  for (const MarkUser& user : map.users) {
    rows.push_back({absl::StrCat(user.who, Whole(user.overwrites)),
                    CellsOf([&](int bit) { return CellOf(user, bit); })});
  }
  return rows;
}

std::vector<Row> KnownRows() {
  std::vector<Row> rows;
  for (const KnownMark& known : KnownMarks()) {
    rows.push_back(
        {absl::StrCat(known.software, ": ", known.use, Whole(known.mask == netlink::kAllMarks)),
         CellsOf([&](int bit) { return Has(known.bits, bit) ? '#' : '.'; })});
  }
  return rows;
}

// "m" and "d" at the bits that are configured.
Row ConfiguredRow(const MarkMap& map) {
  Row row = {"configured for kubelet's chains (m masquerade, d drop)", std::string(kBits, '.')};
  for (const MarkVerdict& verdict : map.verdicts) {
    row.cells[static_cast<size_t>(kBits - 1 - verdict.bit)] = verdict.use.front();
  }
  return row;
}

std::string Heading(int divisor) {
  return CellsOf([&](int bit) {
    return divisor == 1 || bit >= 10 ? static_cast<char>('0' + bit / divisor % 10) : ' ';
  });
}

constexpr absl::string_view kLegend =
    "s sets, c clears, w sets and clears, ? may set, t tests; a capital letter: tests, too; # uses";

// ---- text ----

constexpr size_t kColumns = 80;
// Next to the cells of a row, which have a space before every four.
constexpr size_t kLabelColumns = kColumns - kBits - kBits / 4;

// `text` in exactly `most` columns.
std::string Label(absl::string_view text, size_t most) {
  std::string label = Printable(text);
  if (label.size() > most) {
    size_t end = most - 3;
    // Not in the middle of a UTF-8 sequence.
    while (end > 0 && (static_cast<unsigned char>(label[end]) & 0xc0) == 0x80) --end;
    label = absl::StrCat(label.substr(0, end), "...");
  }
  // A column a character.
  const auto columns = std::count_if(label.begin(), label.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  });
  return label.append(most - std::min(static_cast<size_t>(columns), most), ' ');
}

// A long `who` continues below the row's first line, up to a limit.
void AppendRow(std::string& text, absl::string_view who, absl::string_view cells,
               size_t indent = 0) {
  constexpr int kMostLines = 4;
  const std::string wrapped = Wrapped(Printable(who), 0, "", kLabelColumns - indent);
  int lines = 0;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(wrapped, "\n"), '\n')) {
    if (++lines > kMostLines) break;
    const std::string margin(lines == 1 ? indent : indent + 2, ' ');
    std::string row = Label(absl::StrCat(margin, line), kLabelColumns);
    for (size_t i = 0; lines == 1 && i < cells.size(); ++i) {
      absl::StrAppend(&row, i % 4 == 0 ? " " : "", cells.substr(i, 1));
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(row), "\n");
  }
}

// Rules and other single lines that are too long continue below, further to the right.
std::string Narrowed(absl::string_view text) {
  std::string narrow;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    if (line.size() > kColumns) {
      narrow += Wrapped(line.substr(indent), indent + 2, "", kColumns).substr(2);
    } else {
      absl::StrAppend(&narrow, line, "\n");
    }
  }
  return narrow;
}

void AppendRows(std::string& text, absl::string_view title, const std::vector<Row>& rows) {
  absl::StrAppend(&text, "\n", title, "\n");
  for (const Row& row : rows) AppendRow(text, row.who, row.cells, /*indent=*/2);
  if (rows.empty()) text += "  nothing\n";
}

// "error"; or why there is no finding. `all_seen`: nothing could not be read.
std::string Summary(const MarkVerdict& verdict, bool all_seen) {
  if (!verdict.findings.empty()) return std::string(AuditSeverityName(verdict.severity));
  if (!verdict.used_by.empty()) {
    return absl::StrCat("no conflict found. Others use it, too: ",
                        absl::StrJoin(verdict.used_by, "; "));
  }
  if (!all_seen) return "no other use seen, but not everything could be read";
  if (verdict.cleared_by.empty()) return "no other program uses it";
  return absl::StrCat(
      "no other program sets or tests it. Cleared only where Kubernetes has not set it, or no "
      "longer needs it, by ",
      absl::StrJoin(verdict.cleared_by, "; "));
}

// The verdict with its reasons.
std::string VerdictText(const MarkVerdict& verdict, bool all_seen) {
  std::string text =
      Printable(absl::StrCat("bit ", verdict.bit, " (", MaskText(uint32_t{1} << verdict.bit), "), ",
                             verdict.use, ": ", Summary(verdict, all_seen)));
  text += '\n';
  for (const AuditFinding& finding : verdict.findings) text += FindingText(finding, kColumns);
  return Narrowed(text);
}

// What follows from the rows, and what is not in them.
std::string ReasonsText(const MarkMap& map) {
  std::string text;
  for (const MarkVerdict& verdict : map.verdicts) {
    text += VerdictText(verdict, map.problems.empty());
  }
  for (const std::string& problem : map.problems) {
    text += Wrapped(Printable(problem), 0, "not seen: ", kColumns);
  }
  return text;
}

// ---- JSON ----

Json UserJson(const MarkUser& user) {
  return {{"who", user.who},
          {"sets", MaskText(user.marks.set)},
          {"clears", MaskText(user.marks.cleared)},
          {"tests", MaskText(user.marks.tested)},
          {"maySetAny", user.may_set_any},
          {"overwritesWholeMark", user.overwrites},
          {"count", user.count},
          {"examples", user.examples}};
}

Json KnownJson(const KnownMark& known) {
  return {{"software", known.software},
          {"use", known.use},
          {"bits", MaskText(known.bits)},
          {"mask", MaskText(known.mask)},
          {"source", known.source}};
}

Json BitJson(int bit, const MarkMap& map) {
  Json json = {{"bit", bit}, {"mask", MaskText(uint32_t{1} << bit)}, {"configuredFor", nullptr}};
  for (const char* list : {"sets", "maySet", "clears", "tests", "knownSoftware"}) {
    json[list] = Json::array();
  }
  for (const MarkUser& user : map.users) {
    if (Has(user.marks.set, bit)) json["sets"].push_back(user.who);
    if (user.may_set_any) json["maySet"].push_back(user.who);
    if (Has(user.marks.cleared, bit)) json["clears"].push_back(user.who);
    if (Has(user.marks.tested, bit)) json["tests"].push_back(user.who);
  }
  for (const KnownMark& known : KnownMarks()) {
    if (Has(known.bits, bit)) {
      json["knownSoftware"].push_back(absl::StrCat(known.software, ": ", known.use));
    }
  }
  for (const MarkVerdict& verdict : map.verdicts) {
    if (verdict.bit == bit) json["configuredFor"] = verdict.use;
  }
  return json;
}

Json VerdictJson(const MarkVerdict& verdict) {
  return {{"bit", verdict.bit},
          {"use", verdict.use},
          {"severity", AuditSeverityName(verdict.severity)},
          {"clearedBy", verdict.cleared_by},
          {"findings", List(verdict.findings, FindingJson)}};
}

// ---- the picture ----

constexpr int kCell = 16;
// Right of kPictureColumns of 7.2 pixels.
constexpr size_t kPictureColumns = 59;
constexpr int kLeft = 440;

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(Printable(text),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

absl::string_view ColorOf(char cell) {
  static constexpr std::pair<absl::string_view, absl::string_view> kColours[] = {
      {".", "#f6f6f6"}, {"?", "#e8d9f5"}, {"t", "#cfe3f7"}, {"cC", "#d8d8d8"}, {"#", "#dfe9d8"}};
  for (const auto& [cells, colour] : kColours) {
    if (absl::StrContains(cells, cell)) return colour;
  }
  return "#f7c9a9";  // sets
}

class MarkPicture {
 public:
  void AddText(absl::string_view text) {
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      AddTextAt(8, line);
      y_ += kCell + 2;
    }
    y_ += 2;
  }
  void AddRow(const Row& row, bool filled = true) {
    AddTextAt(8, absl::StripTrailingAsciiWhitespace(Label(row.who, kPictureColumns)));
    int x = kLeft;
    for (size_t i = 0; i < row.cells.size(); ++i, x += kCell) {
      if (i % 8 == 0) x += 6;
      const char cell = row.cells[i];
      if (filled) {
        absl::StrAppend(&body_, "<rect x=\"", x, "\" y=\"", y_, "\" width=\"", kCell - 1,
                        "\" height=\"", kCell - 1, "\" fill=\"", ColorOf(cell), "\"/>\n");
      }
      if (cell != '.') AddTextAt(x + 4, absl::string_view(&cell, 1));
    }
    y_ += kCell + 2;
  }
  std::string Finish() const {
    const int width = kLeft + kBits * kCell + 40;
    return absl::StrCat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", y_ + 8,
        "\" font-family=\"monospace\" font-size=\"12\" xml:space=\"preserve\">\n",
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n", body_, "</svg>\n");
  }

 private:
  void AddTextAt(int x, absl::string_view text) {
    absl::StrAppend(&body_, "<text x=\"", x, "\" y=\"", y_ + 12, "\">", Escaped(text), "</text>\n");
  }

  int y_ = 8;
  std::string body_;
};

}  // namespace

std::string MarkMapText(const MarkMap& map) {
  std::string text;
  AppendRow(text, "", Heading(10));
  AppendRow(text, "bits of the packet mark", Heading(1));
  const Row configured = ConfiguredRow(map);
  AppendRow(text, configured.who, configured.cells);
  AppendRows(text, "on this node", RowsOf(map));
  AppendRows(text, "what well-known software uses, where it runs", KnownRows());
  absl::StrAppend(&text, "\n", Wrapped(kLegend, 0, "", kColumns), "\n", ReasonsText(map));
  return text;
}

std::string MarkMapJson(const MarkMap& map) {
  Json bits = Json::array();
  for (int bit = 0; bit < kBits; ++bit) bits.push_back(BitJson(bit, map));
  return Print({{"bits", bits},
                {"users", List(map.users, UserJson)},
                {"knownSoftware", List(KnownMarks(), KnownJson)},
                {"verdicts", List(map.verdicts, VerdictJson)},
                {"problems", map.problems}});
}

std::string MarkMapSvg(const MarkMap& map) {
  MarkPicture picture;
  picture.AddRow({"", Heading(10)}, /*filled=*/false);
  picture.AddRow({"bits of the packet mark", Heading(1)}, /*filled=*/false);
  picture.AddRow(ConfiguredRow(map));
  picture.AddText("on this node");
  for (const Row& row : RowsOf(map)) picture.AddRow(row);
  picture.AddText("what well-known software uses, where it runs");
  for (const Row& row : KnownRows()) picture.AddRow(row);
  picture.AddText(kLegend);
  picture.AddText(ReasonsText(map));
  return picture.Finish();
}

}  // namespace kipt::agent
