// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/report/escape.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "featuregates/go_text.h"

namespace kipt::skew {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

bool IsControl(char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7F; }

std::string Visible(char c) { return absl::StrFormat("\\x%02x", static_cast<uint8_t>(c)); }

}  // namespace

std::string ValidUtf8(const std::string& text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const featuregates::Rune rune = featuregates::FirstRune(absl::string_view(text).substr(at));
    valid += rune.valid ? text.substr(at, rune.length) : kReplacement;
    at += rune.length;
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
  return absl::StrJoin(
      absl::StrSplit(text, '\n'), "\n",
      [](std::string* shown, absl::string_view line) { *shown += featuregates::Printable(line); });
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
