// SPDX-License-Identifier: Apache-2.0
#include "featuregates/go_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "featuregates/printable.h"

namespace kipt::featuregates {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// unicode.IsSpace.
constexpr Range kSpaces[] = {{0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                             {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                             {0x205F, 0x205F}, {0x3000, 0x3000}};

bool IsSpace(char32_t rune) {
  return std::any_of(std::begin(kSpaces), std::end(kSpaces), [rune](const Range& range) {
    return range.first <= rune && rune <= range.last;
  });
}

}  // namespace

absl::string_view GoTrimSpace(absl::string_view text) {
  size_t begin = text.size();
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const Rune rune = FirstRune(text.substr(at));
    if (!rune.valid || !IsSpace(rune.value)) {
      begin = std::min(begin, at);
      end = at + rune.length;
    }
    at += rune.length;
  }
  return begin < end ? text.substr(begin, end - begin) : absl::string_view();
}

absl::StatusOr<bool> GoParseBool(absl::string_view text) {
  constexpr std::array<absl::string_view, 6> kTrue = {"1", "t", "T", "true", "TRUE", "True"};
  constexpr std::array<absl::string_view, 6> kFalse = {"0", "f", "F", "false", "FALSE", "False"};
  if (std::find(kTrue.begin(), kTrue.end(), text) != kTrue.end()) return true;
  if (std::find(kFalse.begin(), kFalse.end(), text) != kFalse.end()) return false;
  return absl::InvalidArgumentError(
      absl::StrCat("strconv.ParseBool: parsing ", GoQuote(text), ": invalid syntax"));
}

std::string GoQuote(absl::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\"\\"), text.size());
    absl::StrAppend(&quoted, Printable(text.substr(0, end)));
    text.remove_prefix(end);
    if (text.empty()) break;
    quoted += '\\';
    quoted += text.front();
    text.remove_prefix(1);
  }
  quoted += '"';
  return quoted;
}

}  // namespace kipt::featuregates
