// SPDX-License-Identifier: Apache-2.0
#include "agent/text/printable.h"

#include "absl/strings/str_split.h"

namespace kipt::agent {

std::string QuoteForMessage(absl::string_view text) {
  static constexpr size_t kMaxShown = 60;
  if (text.size() <= kMaxShown) return GoQuote(text);
  size_t end = kMaxShown;
  // Not in the middle of a UTF-8 sequence.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return absl::StrCat(GoQuote(text.substr(0, end)), "...");
}

std::string Wrapped(absl::string_view text, size_t indent, absl::string_view lead, size_t columns) {
  std::string wrapped = absl::StrCat(std::string(indent, ' '), lead);
  const std::string margin(wrapped.size(), ' ');
  size_t begin = 0;  // of the line
  absl::string_view between = "";
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (!between.empty() && wrapped.size() - begin + 1 + word.size() > columns) {
      begin = wrapped.size() + 1;
      absl::StrAppend(&wrapped, "\n", margin, word);
    } else {
      absl::StrAppend(&wrapped, between, word);
    }
    between = " ";
  }
  return wrapped + "\n";
}

}  // namespace kipt::agent
