// SPDX-License-Identifier: Apache-2.0
//
// What Go's strings and strconv packages do to text, so that flags and messages read as kubelet's.
// Pure functions.
#ifndef KIPT_FEATUREGATES_GO_TEXT_H_
#define KIPT_FEATUREGATES_GO_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kipt::featuregates {

// One code point, or one byte that is not UTF-8 (`valid` false).
struct Rune {
  char32_t value = 0;
  size_t length = 1;  // in bytes
  bool valid = false;
};

// The first of `text`, which must not be empty, by RFC 3629: overlong forms, surrogates, code
// points beyond U+10FFFF and cut sequences are not UTF-8.
Rune FirstRune(absl::string_view text);

// `text` as part of one line of valid UTF-8: control characters (C0, DEL, C1), line ends and
// invisible characters, such as those that reverse text, as strconv.Quote spells them: "\n",
// "\x1b", "\u202e". Idempotent: quotes and backslashes stay unchanged.
std::string Printable(absl::string_view text);

// strings.TrimSpace: `text` without Unicode's white space at both ends, such as the no-break space
// of a flag copied from a web page.
absl::string_view GoTrimSpace(absl::string_view text);

// strconv.ParseBool: 1, t, T, TRUE, true, True, 0, f, F, FALSE, false, False; "yes" and "on" are
// not. InvalidArgument with Go's text: `strconv.ParseBool: parsing "yes": invalid syntax`.
absl::StatusOr<bool> GoParseBool(absl::string_view text);

// strconv.ParseInt with base 0 and 32 bits, as the integer flags of pflag read: "15", "+15", "0xf",
// "017", "0o17", "0b1111", "0x_f". InvalidArgument with Go's text:
// `strconv.ParseInt: parsing "x": invalid syntax`, or `value out of range`.
absl::StatusOr<int32_t> GoParseInt32(absl::string_view text);

// strconv.Quote: Printable in double quotes, with quotes and backslashes escaped. Unlike Go, leaves
// code points that Unicode does not assign unchanged.
std::string GoQuote(absl::string_view text);

}  // namespace kipt::featuregates

#endif  // KIPT_FEATUREGATES_GO_TEXT_H_
