// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/report/escape.h"

#include <cstdint>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "featuregates/go_text.h"

namespace kipt::skew {
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
