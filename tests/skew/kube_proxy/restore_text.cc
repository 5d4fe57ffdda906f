// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/kube_proxy/restore_text.h"

#include "absl/strings/str_cat.h"

namespace kipt::skew {

void TableText::Chain(const std::string& chain) {
  if (chains_.insert(chain).second) absl::StrAppend(&chain_lines_, ":", chain, " - [0:0]\n");
}

void TableText::Rule(const std::string& chain, std::initializer_list<std::string> pieces) {
  absl::StrAppend(&rule_lines_, "-A ", chain);
  for (const std::string& piece : pieces) {
    if (!piece.empty()) absl::StrAppend(&rule_lines_, " ", piece);
  }
  rule_lines_ += '\n';
}

void TableText::Delete(const std::string& chain) {
  Chain(chain);
  chains_.erase(chain);
  absl::StrAppend(&rule_lines_, "-X ", chain, "\n");
}

std::string TableText::Text() const {
  return absl::StrCat("*", table_, "\n", chain_lines_, rule_lines_, "COMMIT\n");
}

std::string Comment(const std::string& text) {
  const char* quote = text.find(' ') == std::string::npos ? "" : "\"";
  return absl::StrCat("-m comment --comment ", quote, text, quote);
}

std::string Jump(const std::string& target) { return absl::StrCat("-j ", target); }

}  // namespace kipt::skew
