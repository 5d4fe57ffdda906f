// SPDX-License-Identifier: Apache-2.0
#include "featuregates/go_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
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

constexpr absl::string_view kInvalidSyntax = "invalid syntax";
constexpr absl::string_view kOutOfRange = "value out of range";

// Removes the prefix. In "0" and "0x" it is only the 0 of an octal number.
int ConsumeBase(absl::string_view& digits) {
  if (digits.front() != '0') return 10;
  int base = 8;
  size_t prefix = 1;
  if (digits.size() > 2) {
    const char letter = absl::ascii_tolower(static_cast<unsigned char>(digits[1]));
    base = letter == 'x' ? 16 : letter == 'b' ? 2 : 8;
    prefix = letter == 'x' || letter == 'b' || letter == 'o' ? 2 : 1;
  }
  digits.remove_prefix(prefix);
  return base;
}

// The prefix of the base counts as a digit.
bool UnderscoresSeparateDigits(absl::string_view digits) {
  if (digits.front() == '_' || digits.back() == '_') return false;
  return !absl::StrContains(digits, "__");
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

absl::StatusOr<int32_t> GoParseInt32(absl::string_view text) {
  const auto error = [text](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("strconv.ParseInt: parsing ", GoQuote(text), ": ", what));
  };
  absl::string_view digits = text;
  const bool negative = absl::ConsumePrefix(&digits, "-");
  if (!negative) absl::ConsumePrefix(&digits, "+");
  if (digits.empty()) return error(kInvalidSyntax);
  const bool separated = UnderscoresSeparateDigits(digits);
  const int base = ConsumeBase(digits);
  const std::string plain = absl::StrReplaceAll(digits, {{"_", ""}});
  uint64_t value = 0;
  const char* const end = plain.data() + plain.size();
  const auto [rest, problem] = std::from_chars(plain.data(), end, value, base);
  // Go stops at the first of the two.
  if (problem == std::errc::result_out_of_range || value > std::numeric_limits<uint32_t>::max()) {
    return error(kOutOfRange);
  }
  if (rest != end || !separated) return error(kInvalidSyntax);
  const uint64_t most = uint64_t{std::numeric_limits<int32_t>::max()} + (negative ? 1 : 0);
  if (value > most) return error(kOutOfRange);
  return static_cast<int32_t>(negative ? -static_cast<int64_t>(value)
                                       : static_cast<int64_t>(value));
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

std::string QuoteForMessage(absl::string_view text) {
  static constexpr size_t kMaxShown = 60;
  if (text.size() <= kMaxShown) return GoQuote(text);
  size_t end = kMaxShown;
  // Not in the middle of a UTF-8 sequence.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return absl::StrCat(GoQuote(text.substr(0, end)), "...");
}

}  // namespace kipt::featuregates
