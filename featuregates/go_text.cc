// SPDX-License-Identifier: Apache-2.0
#include "featuregates/go_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

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

// What unicode.IsPrint refuses beyond ASCII: controls, spaces, format characters (the ones that
// turn text around among them), private use.
constexpr Range kInvisible[] = {
    {0x80, 0xA0},     {0xAD, 0xAD},       {0x600, 0x605},     {0x61C, 0x61C},   {0x6DD, 0x6DD},
    {0x70F, 0x70F},   {0x1680, 0x1680},   {0x180E, 0x180E},   {0x2000, 0x200F}, {0x2028, 0x202F},
    {0x205F, 0x206F}, {0x3000, 0x3000},   {0xE000, 0xF8FF},   {0xFEFF, 0xFEFF}, {0xFFF0, 0xFFFB},
    {0xFFFE, 0xFFFF}, {0xE0000, 0xE00FF}, {0xF0000, 0x10FFFF}};

template <size_t kSize>
bool IsIn(const Range (&ranges)[kSize], char32_t rune) {
  return std::any_of(std::begin(ranges), std::end(ranges), [rune](const Range& range) {
    return range.first <= rune && rune <= range.last;
  });
}

// One code point, or one byte that is not UTF-8 (`valid` false).
struct Rune {
  char32_t value = 0;
  size_t length = 1;
  bool valid = false;
};

uint8_t ByteAt(absl::string_view text, size_t index) { return static_cast<uint8_t>(text[index]); }

// Refuses what RFC 3629 refuses: overlong forms, surrogates, beyond U+10FFFF, cut sequences.
Rune FirstRune(absl::string_view text) {
  const uint8_t lead = ByteAt(text, 0);
  if (lead < 0x80) return {.value = lead, .length = 1, .valid = true};
  Rune rune{.value = lead};
  size_t length = 0;
  char32_t smallest = 0;
  if ((lead & 0xE0) == 0xC0) {
    length = 2, smallest = 0x80, rune.value = lead & 0x1F;
  } else if ((lead & 0xF0) == 0xE0) {
    length = 3, smallest = 0x800, rune.value = lead & 0x0F;
  } else if ((lead & 0xF8) == 0xF0) {
    length = 4, smallest = 0x10000, rune.value = lead & 0x07;
  }
  const Rune not_utf8{.value = lead};
  if (length == 0 || text.size() < length) return not_utf8;
  for (size_t i = 1; i < length; ++i) {
    if ((ByteAt(text, i) & 0xC0) != 0x80) return not_utf8;
    rune.value = (rune.value << 6) | (ByteAt(text, i) & 0x3F);
  }
  const bool surrogate = rune.value >= 0xD800 && rune.value <= 0xDFFF;
  if (rune.value < smallest || rune.value > 0x10FFFF || surrogate) return not_utf8;
  rune.length = length;
  rune.valid = true;
  return rune;
}

// "\n" and its like: the letter after the backslash.
std::optional<char> ShortEscape(char32_t rune) {
  switch (rune) {
    case '\a':
      return 'a';
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    case '\v':
      return 'v';
    case '"':
    case '\\':
      return static_cast<char>(rune);
    default:
      return std::nullopt;
  }
}

std::string QuoteRune(const Rune& rune, absl::string_view bytes) {
  const auto code = static_cast<uint32_t>(rune.value);
  if (!rune.valid) return absl::StrFormat("\\x%02x", code);
  if (const std::optional<char> letter = ShortEscape(rune.value)) {
    return {'\\', *letter};
  }
  if (code < 0x20 || code == 0x7F) return absl::StrFormat("\\x%02x", code);
  if (!IsIn(kInvisible, rune.value)) return absl::StrCat(bytes);
  return code < 0x10000 ? absl::StrFormat("\\u%04x", code) : absl::StrFormat("\\U%08x", code);
}

}  // namespace

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
  constexpr std::array<absl::string_view, 6> kTrue = {"1", "t", "T", "true", "TRUE", "True"};
  constexpr std::array<absl::string_view, 6> kFalse = {"0", "f", "F", "false", "FALSE", "False"};
  if (std::find(kTrue.begin(), kTrue.end(), text) != kTrue.end()) return true;
  if (std::find(kFalse.begin(), kFalse.end(), text) != kFalse.end()) return false;
  return absl::InvalidArgumentError(
      absl::StrCat("strconv.ParseBool: parsing ", GoQuote(text), ": invalid syntax"));
}

std::string GoQuote(absl::string_view text) {
  std::string quoted = "\"";
  for (size_t at = 0; at < text.size();) {
    const Rune rune = FirstRune(text.substr(at));
    absl::StrAppend(&quoted, QuoteRune(rune, text.substr(at, rune.length)));
    at += rune.length;
  }
  quoted += '"';
  return quoted;
}

}  // namespace kipt::featuregates
