// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/save_parser.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "agent/xtables/save_rule.h"
#include "agent/xtables/save_words.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::ObservedChain;
using netlink::ObservedRule;
using netlink::Table;

bool ConsumeDigits(absl::string_view& text) {
  const size_t before = text.size();
  while (!text.empty() && absl::ascii_isdigit(static_cast<unsigned char>(text.front()))) {
    text.remove_prefix(1);
  }
  return text.size() != before;
}

// "[12:34]", packets and bytes.
bool AreCounters(absl::string_view text) {
  return absl::ConsumePrefix(&text, "[") && ConsumeDigits(text) &&
         absl::ConsumePrefix(&text, ":") && ConsumeDigits(text) && text == "]";
}

std::optional<Table> FindTable(absl::string_view name) {
  for (const Table table : netlink::kTables) {
    if (name == netlink::TableName(table)) return table;
  }
  return std::nullopt;
}

class SaveParser {
 public:
  SaveParser(Family family, absl::string_view text) : family_(family), rest_(text) {}

  absl::StatusOr<std::map<ChainId, ObservedChain>> Parse() && {
    if (const size_t nul = rest_.find('\0'); nul != absl::string_view::npos) {
      CountLines(rest_.substr(0, nul));
      return Error("a NUL byte", "");
    }
    while (!rest_.empty()) {
      if (absl::Status status = ParseLine(); !status.ok()) return status;
    }
    if (in_table_) return Error("the end, before the table's COMMIT", "");
    return std::move(chains_);
  }

 private:
  absl::Status Error(absl::string_view what, absl::string_view line) const {
    // Lines may be of any length and hold anything.
    constexpr size_t kShown = 60;
    return absl::InvalidArgumentError(absl::StrCat("iptables-save, line ", line_, ": ", what,
                                                   line.empty() ? "" : ": ",
                                                   absl::CHexEscape(line.substr(0, kShown))));
  }

  void CountLines(absl::string_view passed) {
    line_ += static_cast<size_t>(std::count(passed.begin(), passed.end(), '\n'));
  }

  // Takes `size` bytes and the newline behind them.
  void Advance(size_t size) {
    const size_t taken = std::min(size + 1, rest_.size());
    CountLines(rest_.substr(0, taken));
    rest_.remove_prefix(taken);
  }

  absl::Status ParseLine() {
    if (rest_.front() == '-' || rest_.front() == '[') return ParseRule();
    const absl::string_view line = rest_.substr(0, rest_.find('\n'));
    absl::Status status;
    if (absl::StartsWith(line, ":")) {
      status = DeclareChain(line);
    } else if (absl::StartsWith(line, "*")) {
      status = BeginTable(line);
    } else if (line == "COMMIT") {
      if (!in_table_) status = Error("COMMIT outside a table", "");
      in_table_ = false;
    } else if (!line.empty() && line.front() != '#') {
      status = Error("unknown line", line);
    }
    if (status.ok()) Advance(line.size());
    return status;
  }

  absl::Status BeginTable(absl::string_view line) {
    const absl::string_view name = absl::StripPrefix(line, "*");
    if (in_table_) return Error("a table before the last one's COMMIT", line);
    if (name.empty()) return Error("unknown line", line);
    if (!seen_.insert(std::string(name)).second) return Error("a table for the second time", line);
    in_table_ = true;
    has_rules_ = false;
    table_ = FindTable(name);
    declared_.clear();
    skipped_.clear();
    last_name_ = absl::string_view();
    last_ = nullptr;
    return absl::OkStatus();
  }

  absl::Status DeclareChain(absl::string_view line) {
    if (!in_table_ || has_rules_) return Error("a chain outside the head of a table", line);
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    static constexpr std::array<absl::string_view, 5> kPolicies = {"-", "ACCEPT", "DROP", "QUEUE",
                                                                   "RETURN"};
    if (words.size() != 3 || words[0].size() < 2 || !AreCounters(words[2]) ||
        std::find(kPolicies.begin(), kPolicies.end(), words[1]) == kPolicies.end()) {
      return Error("unknown line", line);
    }
    const absl::string_view name = words[0].substr(1);
    if (declared_.contains(name)) return Error("a chain for the second time", line);
    std::map<ChainId, ObservedChain>& owner = table_ ? chains_ : skipped_;
    ObservedChain& chain = owner[ChainId{
        .family = family_, .table = table_.value_or(Table::kFilter), .name = std::string(name)}];
    chain.hooked = words[1] != "-";
    declared_.emplace(name, &chain);
    return absl::OkStatus();
  }

  absl::Status ParseRule() {
    const std::optional<size_t> size = SplitSavedRule(rest_, words_);
    const absl::string_view line = rest_.substr(0, size ? *size : rest_.find('\n'));
    if (!size) return Error("a quote that does not end its word", line);
    absl::Span<const absl::string_view> words = words_;
    if (AreCounters(words[0])) words.remove_prefix(1);
    if (words.size() < 2 || words[0] != "-A") return Error("unknown line", line);
    if (!in_table_) return Error("a rule outside a table", line);
    const absl::string_view name = words[1];
    if (last_ == nullptr || name != last_name_) {
      const auto found = declared_.find(name);
      if (found == declared_.end()) return Error("a rule of a chain that is not declared", line);
      last_name_ = name;
      last_ = found->second;
    }
    has_rules_ = true;
    if (table_) {
      const size_t behind = static_cast<size_t>(name.data() - line.data()) + name.size();
      const absl::string_view text = absl::StripPrefix(line.substr(behind), " ");
      last_->rules.push_back(
          ObservedRule{.handle = last_->rules.size() + 1,
                       .content = ParseSavedRule(family_, declared_, text, words.subspan(2))});
    }
    Advance(line.size());
    return absl::OkStatus();
  }

  Family family_;
  absl::string_view rest_;
  size_t line_ = 1;  // of the first byte of rest_
  std::map<ChainId, ObservedChain> chains_;
  std::set<std::string> seen_;  // tables

  // Of the table at hand:
  bool in_table_ = false;
  bool has_rules_ = false;
  std::optional<Table> table_;  // none: one that is skipped
  std::map<ChainId, ObservedChain> skipped_;
  SavedChains declared_;
  // The last rule's chain: the next one's too, as a rule.
  absl::string_view last_name_;
  ObservedChain* last_ = nullptr;
  std::vector<absl::string_view> words_;
};

}  // namespace

absl::StatusOr<std::map<ChainId, ObservedChain>> ParseSave(Family family, absl::string_view text) {
  return SaveParser(family, text).Parse();
}

}  // namespace kipt::agent
