// SPDX-License-Identifier: Apache-2.0
//
// The parser of iptables-save on any text, and what it promises: rules are numbered from 1, and a
// rule that it takes for one of the vocabulary prints as a line that it reads as the same rule.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "agent/xtables/save_parser.h"

namespace {

using kipt::netlink::Family;
using kipt::netlink::ObservedRule;

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckRule(const kipt::netlink::ChainId& id, const ObservedRule& rule) {
  if (rule.rule() == nullptr) return;
  const std::string* jump = JumpTarget(rule);
  const std::string text = absl::StrCat(
      "*", kipt::netlink::TableName(id.table), "\n:", id.name, " - [0:0]\n",
      jump == nullptr || *jump == id.name ? "" : absl::StrCat(":", *jump, " - [0:0]\n"), "-A ",
      id.name, " ", ToString(id.family, rule), "\nCOMMIT\n");
  const auto again = kipt::agent::ParseSave(id.family, text);
  Require(again.ok());
  Require(again->at(id).rules.size() == 1);
  Require(again->at(id).rules[0].content == rule.content);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  for (const Family family : kipt::netlink::kFamilies) {
    const auto chains = kipt::agent::ParseSave(family, text);
    if (!chains.ok()) continue;
    for (const auto& [id, chain] : *chains) {
      Require(id.family == family);
      uint64_t number = 0;
      for (const ObservedRule& rule : chain.rules) {
        Require(rule.handle == ++number);
        CheckRule(id, rule);
      }
    }
  }
  return 0;
}
