// SPDX-License-Identifier: Apache-2.0
#include "deploy/debian/manual_page.h"

#include <iostream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace kipt::packages {
namespace {

std::string Bold(absl::string_view text) { return absl::StrCat("\\fB", Roff(text), "\\fR"); }
std::string Italic(absl::string_view text) { return absl::StrCat("\\fI", Roff(text), "\\fR"); }

// Each sentence on a line of its own, as man(7) wants it; a newline in `text` breaks the line.
std::string Paragraph(absl::string_view text) {
  std::vector<std::string> lines;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    lines.push_back(absl::StrReplaceAll(Roff(line), {{". ", ".\n"}, {"; ", ";\n"}}));
  }
  return absl::StrCat(absl::StrJoin(lines, "\n.br\n"), "\n");
}

std::string Commands(const agent::CompletionSpec& spec) {
  std::string out;
  for (const agent::CompletionCommand& command : spec.commands) {
    absl::StrAppend(&out, ".TP\n", Bold(command.name),
                    command.argument.empty() ? "" : absl::StrCat(" ", Italic(command.argument)),
                    "\n", Paragraph(command.help));
  }
  return out;
}

std::string Options(const agent::CompletionSpec& spec) {
  std::string out;
  for (const agent::CompletionFlag& flag : spec.flags) {
    absl::StrAppend(&out, ".TP\n");
    if (!flag.shorthand.empty())
      absl::StrAppend(&out, Bold(absl::StrCat("-", flag.shorthand)), ", ");
    absl::StrAppend(&out, Bold(absl::StrCat("--", flag.name)),
                    flag.type.empty() ? "" : absl::StrCat("=", Italic(flag.type)));
    // Some begin with it.
    if (!flag.commands.empty() && !absl::StartsWith(flag.help, flag.commands.front() + ":")) {
      absl::StrAppend(&out, " (", absl::StrJoin(flag.commands, ", "), ")");
    }
    absl::StrAppend(&out, "\n", Paragraph(flag.help));
  }
  return out;
}

}  // namespace

std::string Roff(absl::string_view text) {
  std::string out = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
  if (absl::StartsWith(out, ".") || absl::StartsWith(out, "'")) out.insert(0, "\\&");
  return out;
}

std::string ManualPage(const agent::CompletionSpec& spec, absl::string_view page) {
  return absl::StrReplaceAll(page,
                             {{"%COMMANDS%\n", Commands(spec)}, {"%OPTIONS%\n", Options(spec)}});
}

int RunManualPage(const agent::CompletionSpec& spec) {
  const std::string page{std::istreambuf_iterator<char>(std::cin), {}};
  std::cout << ManualPage(spec, page) << std::flush;
  return std::cout.good() ? 0 : 1;
}

}  // namespace kipt::packages
