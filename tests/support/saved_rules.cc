// SPDX-License-Identifier: Apache-2.0
#include "tests/support/saved_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace kipt::testing {
namespace {

bool IsRuleOf(const std::string& line, const std::string& chain) {
  return absl::StartsWith(line, absl::StrCat("-A ", chain, " "));
}

// Each rule with a connection's label brings this, where no label has a name: on every Debian.
std::string WithoutMissingNames(const std::string& errors) {
  return absl::StrReplaceAll(errors, {{"Warning: cannot open /etc/xtables/connlabel.conf: No such "
                                       "file or directory\n",
                                       ""}});
}

}  // namespace

SavedRules SavedRules::Of(const Iptables& iptables) {
  const ProgramResult result = iptables.Save();
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(WithoutMissingNames(result.err), "");
  EXPECT_FALSE(absl::StrContains(result.out, "incompatible")) << result;
  return Parse(result.out);
}

SavedRules SavedRules::Parse(const std::string& text) {
  SavedRules saved;
  Table* table = nullptr;
  for (absl::string_view piece : absl::StrSplit(text, '\n')) {
    const std::string line(absl::StripTrailingAsciiWhitespace(piece));
    if (line.empty() || line[0] == '#' || line == "COMMIT") continue;
    if (line[0] == '*') {
      table = &saved.tables_[line.substr(1)];
    } else if (table == nullptr) {
      ADD_FAILURE() << "a line outside of any table: " << line;
    } else if (line[0] == ':') {
      table->chains.push_back(line.substr(0, line.find(" [")));
    } else {
      table->rules.push_back(line);
    }
  }
  return saved;
}

bool SavedRules::HasChain(const std::string& table, const std::string& chain) const {
  const auto found = tables_.find(table);
  if (found == tables_.end()) return false;
  const std::vector<std::string>& chains = found->second.chains;
  return std::any_of(chains.begin(), chains.end(), [&](const std::string& line) {
    return absl::StartsWith(line, absl::StrCat(":", chain, " "));
  });
}

std::vector<std::pair<std::string, std::string>> SavedRules::Chains() const {
  std::vector<std::pair<std::string, std::string>> chains;
  for (const auto& [name, table] : tables_) {
    for (const std::string& line : table.chains) {
      chains.emplace_back(name, line.substr(1, line.find(' ') - 1));
    }
  }
  return chains;
}

std::vector<std::string> SavedRules::Rules(const std::string& table,
                                           const std::string& chain) const {
  std::vector<std::string> rules;
  const auto found = tables_.find(table);
  if (found == tables_.end()) return rules;
  for (const std::string& line : found->second.rules) {
    if (IsRuleOf(line, chain)) rules.push_back(line);
  }
  return rules;
}

std::vector<std::string> SavedRules::DoubledRules() const {
  std::vector<std::string> doubled;
  for (const auto& [name, table] : tables_) {
    std::set<std::string> seen;
    for (const std::string& line : table.rules) {
      if (!seen.insert(line).second) doubled.push_back(absl::StrCat(name, ": ", line));
    }
  }
  return doubled;
}

std::vector<std::string> SavedRules::LinesMissingIn(const SavedRules& other) const {
  std::vector<std::string> missing;
  for (const auto& [name, table] : tables_) {
    const auto found = other.tables_.find(name);
    const Table there = found == other.tables_.end() ? Table() : found->second;
    const auto collect = [&missing, &name = name](const auto& lines, const auto& in) {
      for (const std::string& line : lines) {
        if (std::find(in.begin(), in.end(), line) == in.end()) {
          missing.push_back(absl::StrCat(name, ": ", line));
        }
      }
    };
    collect(table.chains, there.chains);
    collect(table.rules, there.rules);
  }
  return missing;
}

void SavedRules::RemoveChain(const std::string& table, const std::string& chain) {
  EXPECT_TRUE(HasChain(table, chain)) << table << "/" << chain << " in\n" << *this;
  std::erase_if(tables_[table].chains, [&](const std::string& line) {
    return absl::StartsWith(line, absl::StrCat(":", chain, " "));
  });
  std::erase_if(tables_[table].rules,
                [&](const std::string& line) { return IsRuleOf(line, chain); });
}

void SavedRules::RemoveTableIfBare(const std::string& table) {
  const auto found = tables_.find(table);
  if (found == tables_.end() || !found->second.rules.empty()) return;
  const std::vector<std::string>& chains = found->second.chains;
  const bool bare = std::none_of(chains.begin(), chains.end(), [](const std::string& line) {
    return absl::EndsWith(line, " -");  // user chains have no policy
  });
  if (bare) tables_.erase(found);
}

void SavedRules::AddRule(const std::string& table, const std::string& line) {
  std::vector<std::string>& rules = tables_[table].rules;
  EXPECT_EQ(std::count(rules.begin(), rules.end(), line), 0) << line << " is in\n" << *this;
  rules.push_back(line);
}

std::string SavedRules::Comparable() const {
  std::string text;
  for (const auto& [name, table] : tables_) {
    std::vector<std::string> chains = table.chains;
    std::sort(chains.begin(), chains.end());
    std::vector<std::string> ordered;
    std::vector<std::string> rules;
    for (const std::string& line : table.rules) {
      (IsRuleOf(line, "KUBE-POSTROUTING") ? ordered : rules).push_back(line);
    }
    std::sort(rules.begin(), rules.end());
    absl::StrAppend(&text, "*", name, "\n");
    for (const auto* lines : {&chains, &rules, &ordered}) {
      for (const std::string& line : *lines) absl::StrAppend(&text, line, "\n");
    }
  }
  return text;
}

bool operator==(const SavedRules& a, const SavedRules& b) {
  return a.Comparable() == b.Comparable();
}

std::ostream& operator<<(std::ostream& stream, const SavedRules& rules) {
  return stream << "\n" << rules.Comparable();
}

}  // namespace kipt::testing
