// SPDX-License-Identifier: Apache-2.0
//
// File: featuregates/go_text.h
//
// What Go's strings and strconv packages do to text, so that a flag or a message that people know
// from kubelet reads the same here; and the one escape for what strangers wrote (comments and names
// of rules, chains, processes, files) on its way to a terminal, a log, a graph or a page. Pure
// functions.
#ifndef KIPT_FEATUREGATES_GO_TEXT_H_
#define KIPT_FEATUREGATES_GO_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
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

// strings.TrimSpace: `text` without Unicode's white space at both ends; the no-break space that
// comes along when a flag is copied from a web page is one.
absl::string_view GoTrimSpace(absl::string_view text);

// strconv.ParseBool: 1, t, T, TRUE, true, True, 0, f, F, FALSE, false, False; "yes" and "on" are
// not. InvalidArgument with Go's text: `strconv.ParseBool: parsing "yes": invalid syntax`.
absl::StatusOr<bool> GoParseBool(absl::string_view text);

// strconv.ParseInt with base 0 and 32 bits, as the integer flags of pflag read: "15", "+15", "0xf",
// "017", "0o17", "0b1111", "0x_f". InvalidArgument with Go's text:
// `strconv.ParseInt: parsing "x": invalid syntax`, or `value out of range`.
absl::StatusOr<int32_t> GoParseInt32(absl::string_view text);

// strconv.Quote: in double quotes; quotes, backslashes, control characters, invisible characters
// and bytes that are not UTF-8 escaped. Safe to print to a terminal or a log. Differs from Go for
// code points that Unicode does not assign: they stay as they are.
std::string GoQuote(absl::string_view text);

// The same, cut after 60 bytes: how a message repeats what it was given.
std::string QuoteForMessage(absl::string_view text);

}  // namespace kipt::featuregates

#endif  // KIPT_FEATUREGATES_GO_TEXT_H_
