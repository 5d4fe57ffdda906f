// SPDX-License-Identifier: Apache-2.0
//
// File: featuregates/printable.h
//
// The one escape for what strangers wrote (comments and names of rules, chains, processes, files)
// on its way to a terminal, a log, a graph or a page. Pure functions.
#ifndef KIPT_FEATUREGATES_PRINTABLE_H_
#define KIPT_FEATUREGATES_PRINTABLE_H_

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace kipt::featuregates {

// One code point, or one byte that is not UTF-8 (`valid` false).
struct Rune {
  char32_t value = 0;
  size_t length = 1;  // in bytes
  bool valid = false;
};

// The first of `text`, which must not be empty. Not UTF-8 is what RFC 3629 refuses: overlong forms,
// surrogates, code points beyond U+10FFFF, cut sequences.
Rune FirstRune(absl::string_view text);

// `text` as part of one line, in valid UTF-8 without control characters (C0, DEL, C1), without
// invisible ones (those that turn text around among them) and without line ends: as strconv.Quote
// of Go spells them, "\n", "\x1b", "\u202e". Quotes and backslashes stay as they are, so that it
// may be done twice.
std::string Printable(absl::string_view text);

// One line of a report: `parts` as of StrCat, printable, and the end of the line.
template <typename... Parts>
void AppendLine(std::string& report, const Parts&... parts) {
  absl::StrAppend(&report, Printable(absl::StrCat(parts...)), "\n");
}

}  // namespace kipt::featuregates

#endif  // KIPT_FEATUREGATES_PRINTABLE_H_
