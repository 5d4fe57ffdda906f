// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/skew/selftest/captured_fixtures.h"

namespace kipt::skew {
namespace {

struct Table {
  std::set<std::string> chains;
  std::map<std::string, std::vector<std::string>> rules;
  // "-X CHAIN".
  std::vector<std::string> deletions;
};

bool HasAccidentalOrder(const std::string& chain) {
  static constexpr const char* kChains[] = {"KUBE-SERVICES", "KUBE-NODEPORTS",
                                            "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL"};
  return std::find(std::begin(kChains), std::end(kChains), chain) != std::end(kChains);
}

// The first word of a rule's comment: the service's name and port. The rule that must be the last
// has the comment "kubernetes service nodeports": it has to be the last as it stands.
std::string ServiceIn(const std::string& rule) {
  const std::string flag = "--comment ";
  const size_t at = rule.find(flag);
  if (at == std::string::npos) return "";
  size_t begin = at + flag.size();
  if (rule[begin] == '"') ++begin;
  return rule.substr(begin, rule.find_first_of(" \"", begin) - begin);
}

void SortByService(std::vector<std::string>* rules) {
  const auto is_service = [](const std::string& rule) {
    return ServiceIn(rule).find('/') != std::string::npos;
  };
  const auto end = std::find_if_not(rules->begin(), rules->end(), is_service);
  std::stable_sort(rules->begin(), end, [](const std::string& a, const std::string& b) {
    return ServiceIn(a) < ServiceIn(b);
  });
}

std::map<std::string, Table> Parse(const std::string& text) {
  std::map<std::string, Table> tables;
  Table* table = nullptr;
  for (absl::string_view piece : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::string line(piece);
    if (line[0] == '*') table = &tables[line.substr(1)];
    if (table == nullptr) continue;
    if (line[0] == ':') table->chains.insert(line.substr(0, line.find(" [")));
    if (absl::StartsWith(line, "-X ")) table->deletions.push_back(line);
    if (!absl::StartsWith(line, "-A ")) continue;
    table->rules[line.substr(3, line.find(' ', 3) - 3)].push_back(line);
  }
  return tables;
}

}  // namespace

std::vector<std::string> ComparableLines(const std::string& text) {
  std::vector<std::string> lines;
  for (auto& [name, table] : Parse(text)) {
    for (const std::string& chain : table.chains) lines.push_back(absl::StrCat(name, ": ", chain));
    for (auto& [chain, rules] : table.rules) {
      if (HasAccidentalOrder(chain)) SortByService(&rules);
      for (const std::string& rule : rules) lines.push_back(absl::StrCat(name, ": ", rule));
    }
    // In the order of a map.
    std::sort(table.deletions.begin(), table.deletions.end());
    for (const std::string& line : table.deletions) lines.push_back(absl::StrCat(name, ": ", line));
  }
  return lines;
}

}  // namespace kipt::skew
