// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/report/wrapped.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace kipt::skew {

std::string Wrapped(const std::string& first, const std::string& indent, const std::string& text,
                    size_t columns) {
  std::string wrapped;
  std::string line = first;
  bool empty = true;
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  for (std::string word : words) {
    if (!empty && line.size() + 1 + word.size() > columns) {
      absl::StrAppend(&wrapped, line, "\n");
      line = indent;
      empty = true;
    }
    while (line.size() + word.size() > columns) {
      const size_t fits = columns - line.size();
      absl::StrAppend(&wrapped, line, word.substr(0, fits), "\n");
      word.erase(0, fits);
      line = indent;
    }
    absl::StrAppend(&line, empty ? "" : " ", word);
    empty = false;
  }
  line.resize(line.find_last_not_of(' ') + 1);
  return absl::StrCat(wrapped, line, "\n");
}

}  // namespace kipt::skew
