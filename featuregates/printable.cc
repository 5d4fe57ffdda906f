// SPDX-License-Identifier: Apache-2.0
#include "featuregates/printable.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>

#include "absl/strings/str_format.h"

namespace kipt::featuregates {
namespace {

struct RuneRange {
  char32_t first;
  char32_t last;
};

// What unicode.IsPrint refuses beyond ASCII: controls, spaces, format characters (the ones that
// turn text around among them), private use.
constexpr RuneRange kInvisible[] = {
    {0x80, 0xA0},     {0xAD, 0xAD},       {0x600, 0x605},     {0x61C, 0x61C},   {0x6DD, 0x6DD},
    {0x70F, 0x70F},   {0x1680, 0x1680},   {0x180E, 0x180E},   {0x2000, 0x200F}, {0x2028, 0x202F},
    {0x205F, 0x206F}, {0x3000, 0x3000},   {0xE000, 0xF8FF},   {0xFEFF, 0xFEFF}, {0xFFF0, 0xFFFB},
    {0xFFFE, 0xFFFF}, {0xE0000, 0xE00FF}, {0xF0000, 0x10FFFF}};

bool IsInvisible(char32_t rune) {
  return std::any_of(std::begin(kInvisible), std::end(kInvisible), [rune](const RuneRange& range) {
    return range.first <= rune && rune <= range.last;
  });
}

bool IsPlain(char c) { return c >= 0x20 && c < 0x7F; }

uint8_t ByteAt(absl::string_view text, size_t index) { return static_cast<uint8_t>(text[index]); }

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
    default:
      return std::nullopt;
  }
}

void AppendRune(const Rune& rune, absl::string_view bytes, std::string& out) {
  const auto code = static_cast<uint32_t>(rune.value);
  if (const std::optional<char> letter = ShortEscape(rune.value)) {
    out += '\\';
    out += *letter;
  } else if (!rune.valid || code < 0x20 || code == 0x7F) {
    absl::StrAppendFormat(&out, "\\x%02x", code);
  } else if (!IsInvisible(rune.value)) {
    absl::StrAppend(&out, bytes);
  } else if (code < 0x10000) {
    absl::StrAppendFormat(&out, "\\u%04x", code);
  } else {
    absl::StrAppendFormat(&out, "\\U%08x", code);
  }
}

}  // namespace

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

std::string Printable(absl::string_view text) {
  if (std::all_of(text.begin(), text.end(), IsPlain)) return std::string(text);
  std::string printable;
  for (size_t at = 0; at < text.size();) {
    const Rune rune = FirstRune(text.substr(at));
    AppendRune(rune, text.substr(at, rune.length), printable);
    at += rune.length;
  }
  return printable;
}

}  // namespace kipt::featuregates
