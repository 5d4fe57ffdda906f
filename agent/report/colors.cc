// SPDX-License-Identifier: Apache-2.0
#include "agent/report/colors.h"

#include <unistd.h>

#include <cstdlib>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace kipt::agent {
namespace {

// The first row that fits a line decides.
struct ColorRow {
  ColoredText kind;
  absl::string_view start;  // of the line
  absl::string_view until;  // the coloured part ends with it; empty: the whole line
  absl::string_view color;  // 1 bold, 31 red, 32 green, 33 yellow; empty: none
};
constexpr ColorRow kColors[] = {
    {ColoredText::kPlanOrStatus, "  + ", "", "32"},
    {ColoredText::kPlanOrStatus, "  - ", "", "31"},
    {ColoredText::kPlanOrStatus, "  ! ", "(critical)", "31"},
    {ColoredText::kPlanOrStatus, "  ! ", "(warning)", "33"},
    {ColoredText::kPlanOrStatus, "ip", ": in place", "32"},
    {ColoredText::kPlanOrStatus, "ip: ", "", "33"},
    {ColoredText::kPlanOrStatus, "ip6: ", "", "33"},
    {ColoredText::kPlanOrStatus, "martian packets: EXPOSED", "", "31"},
    {ColoredText::kAudit, "error ", "error", "31"},
    {ColoredText::kAudit, "warning ", "warning", "33"},
    {ColoredText::kExplain, " ", "", ""},
    {ColoredText::kExplain, "", "", "1"},
};

}  // namespace

bool UsesColors(absl::string_view when) {
  const auto variable = [](const char* name) { return absl::NullSafeStringView(getenv(name)); };
  if (when != "auto") return when == "always";
  return isatty(STDOUT_FILENO) == 1 && variable("NO_COLOR").empty() && variable("TERM") != "dumb";
}

std::string Colored(bool color, ColoredText kind, std::string text) {
  if (!color) return text;
  std::string out;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const auto* const row = absl::c_find_if(kColors, [&](const ColorRow& one) {
      return one.kind == kind && absl::StartsWith(line, one.start) &&
             absl::StrContains(line, one.until);
    });
    if (row != std::end(kColors) && !row->color.empty() && !line.empty()) {
      const size_t end =
          row->until.empty() ? line.size() : line.find(row->until) + row->until.size();
      absl::StrAppend(&out, "\x1b[", row->color, "m", line.substr(0, end), "\x1b[0m");
      line.remove_prefix(end);
    }
    absl::StrAppend(&out, line, "\n");
  }
  out.pop_back();  // of the piece after the last line
  return out;
}

}  // namespace kipt::agent
