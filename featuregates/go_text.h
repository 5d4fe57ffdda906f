// SPDX-License-Identifier: Apache-2.0
//
// File: featuregates/go_text.h
//
// What Go's strings and strconv packages do to the text of a flag, so that a flag or a message that
// people know from kubelet reads the same here. Pure functions.
#ifndef KIPT_FEATUREGATES_GO_TEXT_H_
#define KIPT_FEATUREGATES_GO_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kipt::featuregates {

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
