// SPDX-License-Identifier: Apache-2.0
#include "featuregates/go_text.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"

namespace kipt::featuregates {
namespace {

struct RuneRange {
  char32_t first;
  char32_t last;
};

// unicode.IsSpace.
constexpr RuneRange kSpaces[] = {
    {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};

// What unicode.IsPrint refuses beyond ASCII: controls, spaces, format characters, private use.
constexpr RuneRange kInvisible[] = {
    {0x80, 0xA0},     {0xAD, 0xAD},       {0x600, 0x605},     {0x61C, 0x61C},   {0x6DD, 0x6DD},
    {0x70F, 0x70F},   {0x1680, 0x1680},   {0x180E, 0x180E},   {0x2000, 0x200F}, {0x2028, 0x202F},
    {0x205F, 0x206F}, {0x3000, 0x3000},   {0xE000, 0xF8FF},   {0xFEFF, 0xFEFF}, {0xFFF0, 0xFFFB},
    {0xFFFE, 0xFFFF}, {0xE0000, 0xE00FF}, {0xF0000, 0x10FFFF}};

bool IsIn(absl::Span<const RuneRange> ranges, char32_t rune) {
  return absl::c_any_of(
      ranges, [rune](const RuneRange& range) { return range.first <= rune && rune <= range.last; });
}

// The first byte of a UTF-8 sequence shows its length.
struct LeadRow {
  uint8_t mask;
  uint8_t lead;
  size_t length;
  char32_t smallest;
};
constexpr LeadRow kLeads[] = {
    {0xE0, 0xC0, 2, 0x80}, {0xF0, 0xE0, 3, 0x800}, {0xF8, 0xF0, 4, 0x10000}};

uint8_t ByteAt(absl::string_view text, size_t index) { return static_cast<uint8_t>(text[index]); }

void AppendRune(const Rune& rune, absl::string_view bytes, std::string& out) {
  // From '\a' on: the letters after the backslash.
  constexpr absl::string_view kShortEscapes = "abtnvfr";
  const auto code = static_cast<uint32_t>(rune.value);
  if (code >= '\a' && code <= '\r') {
    absl::StrAppend(&out, "\\", kShortEscapes.substr(code - '\a', 1));
  } else if (!rune.valid || code < 0x20 || code == 0x7F) {
    absl::StrAppendFormat(&out, "\\x%02x", code);
  } else if (!IsIn(kInvisible, rune.value)) {
    absl::StrAppend(&out, bytes);
  } else if (code < 0x10000) {
    absl::StrAppendFormat(&out, "\\u%04x", code);
  } else {
    absl::StrAppendFormat(&out, "\\U%08x", code);
  }
}

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

Rune FirstRune(absl::string_view text) {
  const uint8_t lead = ByteAt(text, 0);
  if (lead < 0x80) return {.value = lead, .length = 1, .valid = true};
  const Rune not_utf8 = {.value = lead};
  const LeadRow* const row =
      absl::c_find_if(kLeads, [lead](const LeadRow& one) { return (lead & one.mask) == one.lead; });
  if (row == std::end(kLeads) || text.size() < row->length) return not_utf8;
  char32_t value = lead & ~row->mask;
  for (size_t i = 1; i < row->length; ++i) {
    if ((ByteAt(text, i) & 0xC0) != 0x80) return not_utf8;
    value = (value << 6) | (ByteAt(text, i) & 0x3F);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < row->smallest || value > 0x10FFFF || surrogate) return not_utf8;
  return {.value = value, .length = row->length, .valid = true};
}

std::string Printable(absl::string_view text) {
  if (absl::c_all_of(text, absl::ascii_isprint)) return std::string(text);
  std::string printable;
  for (size_t at = 0; at < text.size();) {
    const Rune rune = FirstRune(text.substr(at));
    AppendRune(rune, text.substr(at, rune.length), printable);
    at += rune.length;
  }
  return printable;
}

absl::string_view GoTrimSpace(absl::string_view text) {
  size_t begin = text.size();
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const Rune rune = FirstRune(text.substr(at));
    if (!rune.valid || !IsIn(kSpaces, rune.value)) {
      begin = std::min(begin, at);
      end = at + rune.length;
    }
    at += rune.length;
  }
  return begin < end ? text.substr(begin, end - begin) : absl::string_view();
}

absl::StatusOr<bool> GoParseBool(absl::string_view text) {
  constexpr absl::string_view kTrue[] = {"1", "t", "T", "true", "TRUE", "True"};
  constexpr absl::string_view kFalse[] = {"0", "f", "F", "false", "FALSE", "False"};
  if (absl::c_linear_search(kTrue, text)) return true;
  if (absl::c_linear_search(kFalse, text)) return false;
  return absl::InvalidArgumentError(
      absl::StrCat("strconv.ParseBool: parsing ", GoQuote(text), ": invalid syntax"));
}

absl::StatusOr<int32_t> GoParseInt32(absl::string_view text) {
  const auto error = [text](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("strconv.ParseInt: parsing ", GoQuote(text), ": ", what));
  };
  constexpr absl::string_view kInvalidSyntax = "invalid syntax";
  constexpr absl::string_view kOutOfRange = "value out of range";
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
  const std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}});
  return absl::StrCat("\"", Printable(escaped), "\"");
}

}  // namespace kipt::featuregates
