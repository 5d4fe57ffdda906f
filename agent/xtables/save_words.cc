// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/save_words.h"

#include <algorithm>

#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

// Behind the closing quote of the word that begins at `begin`.
std::optional<size_t> EndOfQuoted(absl::string_view text, size_t begin) {
  for (size_t at = begin + 1; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == '"') {
      const size_t end = at + 1;
      if (end < text.size() && text[end] != ' ' && text[end] != '\n') return std::nullopt;
      return end;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<size_t> SplitSavedRule(absl::string_view text,
                                     std::vector<absl::string_view>& words) {
  words.clear();
  size_t at = 0;
  while (at < text.size() && text[at] != '\n') {
    if (text[at] == ' ') {
      ++at;
      continue;
    }
    size_t end = std::min(text.find_first_of(" \n", at), text.size());
    if (text[at] == '"') {
      const std::optional<size_t> closed = EndOfQuoted(text, at);
      if (!closed) return std::nullopt;
      end = *closed;
    }
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return at;
}

std::optional<std::string> UnquoteSavedWord(absl::string_view word) {
  std::string plain(word);
  if (word.size() >= 2 && word.front() == '"' && word.back() == '"') {
    plain.clear();
    for (size_t at = 1; at + 1 < word.size(); ++at) {
      if (word[at] == '\\') ++at;
      plain += word[at];
    }
  }
  if (netlink::QuoteForSave(plain) != word) return std::nullopt;
  return plain;
}

}  // namespace kipt::agent
