// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/iptables_save_text.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::Table;

// iptables-save -c puts counters in front of a rule.
bool IsRule(absl::string_view line) {
  return absl::StartsWith(line, "-") || absl::StartsWith(line, "[");
}

// "-A X -j DROP" of "[12:34] -A X -j DROP".
absl::string_view WithoutCounters(absl::string_view rule) {
  if (absl::StartsWith(rule, "[")) {
    const size_t end = rule.find("] ");
    if (end != absl::string_view::npos) rule.remove_prefix(end + 2);
  }
  return rule;
}

// The first line, with its newline. A rule's quoted comment may hold newlines, so a rule ends only
// outside quotes. Inside of a word a quote is none (SplitSavedRule): chains' names and those of
// `recent` are printed as they are.
absl::string_view TakeLine(absl::string_view& rest) {
  const bool is_rule = IsRule(rest);
  bool quoted = false;
  size_t end = 0;
  for (; end < rest.size(); ++end) {
    if (rest[end] == '\n' && !quoted) break;
    if (!is_rule) continue;
    if (rest[end] == '"') quoted = !quoted && rest[end - 1] == ' ';
    if (rest[end] == '\\' && quoted) ++end;
  }
  const absl::string_view line = rest.substr(0, end + 1);
  rest.remove_prefix(line.size());
  return line;
}

std::optional<Table> TableOf(absl::string_view line) {
  absl::ConsumeSuffix(&line, "\n");
  for (const Table table : netlink::kTables) {
    if (line == absl::StrCat("*", netlink::TableName(table))) return table;
  }
  return std::nullopt;
}

bool IsSelected(absl::string_view rule, Family family, std::optional<Table> table,
                const SavedSelection& selection) {
  if (!table) return false;
  absl::string_view name = absl::StripPrefix(WithoutCounters(rule), "-A ");
  name = name.substr(0, name.find_first_of(" \n"));
  if (selection.chains.count(ChainId{family, *table, std::string(name)}) != 0) return true;
  return std::any_of(selection.words.begin(), selection.words.end(),
                     [&](const std::string& word) { return absl::StrContains(rule, word); });
}

}  // namespace

Fingerprint FingerprintSaved(const FingerprintKey& key, absl::string_view text) {
  Fingerprinter fingerprinter(key);
  while (!text.empty()) {
    absl::string_view line = TakeLine(text);
    if (absl::StartsWith(line, "#")) continue;
    if (absl::StartsWith(line, ":")) line = line.substr(0, line.rfind('['));
    fingerprinter.Add(WithoutCounters(line));
  }
  return fingerprinter.Finish();
}

std::string SelectSaved(absl::string_view text, Family family, const SavedSelection& selection) {
  std::string selected;
  std::optional<Table> table;
  while (!text.empty()) {
    const absl::string_view line = TakeLine(text);
    if (absl::StartsWith(line, "*")) table = TableOf(line);
    if (!IsRule(line) || IsSelected(line, family, table, selection)) {
      absl::StrAppend(&selected, line);
    } else {
      selected.append(static_cast<size_t>(std::count(line.begin(), line.end(), '\n')), '\n');
    }
  }
  return selected;
}

}  // namespace kipt::agent
