// SPDX-License-Identifier: Apache-2.0
//
// What must never reach a terminal, a log, a graph or a page: read here without the product's code.
#ifndef KIPT_TESTS_SUPPORT_UNESCAPED_H_
#define KIPT_TESTS_SUPPORT_UNESCAPED_H_

#include <cstddef>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace kipt::testing {

// The length of the UTF-8 sequence at the start of `text`, by Unicode's table 3-7 of well-formed
// sequences; 0 where there is none.
inline size_t WellFormedLength(absl::string_view text) {
  const auto in = [&](size_t i, unsigned first, unsigned last) {
    const unsigned byte = i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
    return first <= byte && byte <= last;
  };
  if (in(0, 0x00, 0x7f)) return 1;
  const bool second = in(1, 0x80, 0xbf);
  if (in(0, 0xc2, 0xdf)) return second ? 2 : 0;
  const bool third = second && in(2, 0x80, 0xbf);
  if (in(0, 0xe0, 0xef)) {
    const bool refused =
        (in(0, 0xe0, 0xe0) && !in(1, 0xa0, 0xbf)) || (in(0, 0xed, 0xed) && !in(1, 0x80, 0x9f));
    return third && !refused ? 3 : 0;
  }
  if (!in(0, 0xf0, 0xf4) || !third || !in(3, 0x80, 0xbf)) return 0;
  const bool refused =
      (in(0, 0xf0, 0xf0) && !in(1, 0x90, 0xbf)) || (in(0, 0xf4, 0xf4) && !in(1, 0x80, 0x8f));
  return refused ? 0 : 4;
}

// Whether a terminal or a reader could be deceived by this well-formed sequence: C0 but the end of
// a line, DEL, C1, line and paragraph separator, and what turns text around (Unicode's
// Bidi_Control).
inline bool Deceives(absl::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return (first < 0x20 && first != '\n') || first == 0x7f;
  const auto second = static_cast<unsigned char>(sequence[1]);
  if (sequence.size() == 2) {
    return (first == 0xc2 && second < 0xa0) || sequence == "\xd8\x9c";  // U+061C
  }
  const auto third = static_cast<unsigned char>(sequence[2]);
  if (sequence.size() != 3 || first != 0xe2) return false;
  return (second == 0x80 && (third == 0x8e || third == 0x8f)) ||  // U+200E, U+200F
         (second == 0x80 && third >= 0xa8 && third <= 0xae) ||    // U+2028 to U+202E
         (second == 0x81 && third >= 0xa6 && third <= 0xa9);      // U+2066 to U+2069
}

// Position and content of the first text that is not fit to be shown; empty if all is fit.
inline std::string FindUnescaped(absl::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = WellFormedLength(text.substr(at));
    if (length == 0 || Deceives(text.substr(at, length))) {
      return absl::StrCat("byte ", at, ": ", absl::CHexEscape(text.substr(at, 40)));
    }
    at += length;
  }
  return "";
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_UNESCAPED_H_
