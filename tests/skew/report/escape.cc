// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/report/escape.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_format.h"

namespace kipt::skew {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

// The length of the character at `at`; 0: none begins there.
size_t CharacterLength(const std::string& text, size_t at) {
  const auto byte = [&text](size_t index) -> uint32_t {
    return index < text.size() ? static_cast<uint8_t>(text[index]) : 0;
  };
  const uint32_t first = byte(at);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  uint32_t code = first & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0U) != 0x80U) return 0;
    code = (code << 6U) | (byte(at + i) & 0x3FU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return overlong || surrogate || code > 0x10FFFF ? 0 : length;
}

bool IsControl(char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7F; }

std::string Visible(char c) { return absl::StrFormat("\\x%02x", static_cast<uint8_t>(c)); }

}  // namespace

std::string ValidUtf8(const std::string& text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = CharacterLength(text, at);
    if (length == 0) {
      valid += kReplacement;
      ++at;
    } else {
      valid.append(text, at, length);
      at += length;
    }
  }
  return valid;
}

std::string XmlText(const std::string& text) {
  const std::string valid = ValidUtf8(text);
  std::string xml;
  for (size_t at = 0; at < valid.size(); ++at) {
    const char c = valid[at];
    if (c == '&') {
      xml += "&amp;";
    } else if (c == '<') {
      xml += "&lt;";
    } else if (c == '>') {
      xml += "&gt;";
    } else if (c == '"') {
      xml += "&quot;";
    } else if (c == '\n' || c == '\t') {
      // In an attribute a plain one would become a space.
      xml += c == '\n' ? "&#10;" : "&#9;";
    } else if (IsControl(c)) {
      xml += Visible(c);
    } else if (valid.compare(at, 3, "\xEF\xBF\xBE") == 0 ||
               valid.compare(at, 3, "\xEF\xBF\xBF") == 0) {
      xml += kReplacement;
      at += 2;
    } else {
      xml += c;
    }
  }
  return xml;
}

std::string TerminalText(const std::string& text) {
  std::string shown;
  const std::string valid = ValidUtf8(text);
  for (size_t at = 0; at < valid.size(); ++at) {
    const char c = valid[at];
    // U+0080 to U+009F control terminals too.
    const bool c1 = c == '\xC2' && static_cast<uint8_t>(valid[at + 1]) < 0xA0;
    if (c1) {
      shown += Visible(valid[++at]);
    } else if (IsControl(c) && c != '\n') {
      shown += Visible(c);
    } else {
      shown += c;
    }
  }
  return shown;
}

std::string ScriptJson(const std::string& json) {
  std::string safe;
  safe.reserve(json.size());
  for (const char c : json) {
    // Outside of strings JSON has none of them.
    if (c == '<' || c == '>' || c == '&') {
      safe += absl::StrFormat("\\u%04x", static_cast<uint8_t>(c));
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace kipt::skew
