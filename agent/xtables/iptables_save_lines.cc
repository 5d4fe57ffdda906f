// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/xtables/iptables_save.h"
#include "featuregates/go_text.h"
#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::RuleCounters;
using netlink::Table;

bool ReadNumber(absl::string_view text, uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// "[12:34]", packets and bytes.
std::optional<RuleCounters> ReadCounters(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, "[") || !absl::ConsumeSuffix(&text, "]")) return std::nullopt;
  const std::pair<absl::string_view, absl::string_view> numbers =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  RuleCounters counters;
  if (!ReadNumber(numbers.first, counters.packets) || !ReadNumber(numbers.second, counters.bytes)) {
    return std::nullopt;
  }
  return counters;
}

// After the closing quote of the word that begins at `begin`.
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

class SaveReader {
 public:
  SaveReader(absl::string_view text, SavedTables tables, SaveVisitor& visitor)
      : text_(text), rest_(text), tables_(tables), visitor_(visitor) {}

  absl::Status Read() && {
    if (const size_t nul = rest_.find('\0'); nul != absl::string_view::npos) {
      rest_.remove_prefix(nul);
      return Error("a NUL byte", "");
    }
    while (!rest_.empty()) {
      if (absl::Status status = ReadLine(); !status.ok()) return status;
    }
    if (in_table_) return Error("the end, before the table's COMMIT", "");
    return absl::OkStatus();
  }

 private:
  absl::Status Error(absl::string_view what, absl::string_view line) const {
    // Lines may be of any length and hold anything.
    constexpr size_t kShown = 60;
    const auto number = 1 + std::count(text_.begin(), text_.end() - rest_.size(), '\n');
    return absl::InvalidArgumentError(
        absl::StrCat("iptables-save, line ", number, ": ", what, line.empty() ? "" : ": ",
                     featuregates::Printable(line.substr(0, kShown))));
  }

  // Takes `size` bytes and the newline after them.
  void Advance(size_t size) { rest_.remove_prefix(std::min(size + 1, rest_.size())); }

  absl::Status ReadLine() {
    if (rest_.front() == '-' || rest_.front() == '[') return ReadRule();
    const absl::string_view line = rest_.substr(0, rest_.find('\n'));
    absl::Status status;
    if (absl::EndsWith(line, "\r")) {
      status = CrLfError();
    } else if (absl::StartsWith(line, ":")) {
      status = DeclareChain(line);
    } else if (absl::StartsWith(line, "*")) {
      status = BeginTable(line);
    } else if (line == "COMMIT") {
      if (!in_table_) status = Error("COMMIT outside a table", "");
      in_table_ = false;
    } else if (absl::StartsWith(line, "#")) {
      visitor_.Comment(line);
    } else if (!line.empty()) {
      status = Error("unknown line", line);
    }
    if (status.ok()) Advance(line.size());
    return status;
  }

  absl::Status CrLfError() const {
    return Error("it ends in CR LF, which iptables-restore does not take either; make it LF", "");
  }

  absl::Status BeginTable(absl::string_view line) {
    const absl::string_view name = absl::StripPrefix(line, "*");
    if (in_table_) return Error("a table before the last one's COMMIT", line);
    if (name.empty()) return Error("unknown line", line);
    if (!seen_.insert(std::string(name)).second && tables_ == SavedTables::kOnce) {
      return Error("a table for the second time", line);
    }
    in_table_ = true;
    has_rules_ = false;
    declared_.clear();
    visitor_.BeginTable(name);
    return absl::OkStatus();
  }

  absl::Status DeclareChain(absl::string_view line) {
    if (!in_table_ || has_rules_) return Error("a chain outside the head of a table", line);
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    static constexpr std::array<absl::string_view, 5> kPolicies = {"-", "ACCEPT", "DROP", "QUEUE",
                                                                   "RETURN"};
    if (words.size() != 3 || words[0].size() < 2 || !ReadCounters(words[2]) ||
        std::find(kPolicies.begin(), kPolicies.end(), words[1]) == kPolicies.end()) {
      return Error("unknown line", line);
    }
    const absl::string_view name = words[0].substr(1);
    if (!declared_.emplace(name, words[1] != "-").second) {
      return Error("a chain for the second time", line);
    }
    visitor_.DeclareChain(name, words[1]);
    return absl::OkStatus();
  }

  absl::Status ReadRule() {
    const std::optional<size_t> size = SplitSavedRule(rest_, words_);
    const absl::string_view line = rest_.substr(0, size ? *size : rest_.find('\n'));
    if (absl::EndsWith(line, "\r")) return CrLfError();
    if (!size) return Error("a quote that does not end its word", line);
    absl::Span<const absl::string_view> words = words_;
    const std::optional<RuleCounters> counters = ReadCounters(words[0]);
    if (counters) words.remove_prefix(1);
    if (words.size() < 2 || words[0] != "-A") return Error("unknown line", line);
    if (!in_table_) return Error("a rule outside a table", line);
    const absl::string_view name = words[1];
    if (!declared_.contains(name)) return Error("a rule of a chain that is not declared", line);
    has_rules_ = true;
    const size_t behind = static_cast<size_t>(name.data() - line.data()) + name.size();
    visitor_.AddRule(SavedRule{.chain = name,
                               .text = absl::StripPrefix(line.substr(behind), " "),
                               .words = words.subspan(2),
                               .counters = counters.value_or(RuleCounters{})},
                     declared_);
    Advance(line.size());
    return absl::OkStatus();
  }

  const absl::string_view text_;
  absl::string_view rest_;  // of text_
  const SavedTables tables_;
  SaveVisitor& visitor_;
  std::set<std::string> seen_;  // tables

  // Of the table at hand:
  bool in_table_ = false;
  bool has_rules_ = false;
  SavedChains declared_;
  std::vector<absl::string_view> words_;
};

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

Fingerprinter::Fingerprinter(const FingerprintKey& key)
    : state_{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d ^ 0xee,
             key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573} {}

void Fingerprinter::Round() {
  auto& [v0, v1, v2, v3] = state_;
  v0 += v1;
  v1 = std::rotl(v1, 13) ^ v0;
  v0 = std::rotl(v0, 32);
  v2 += v3;
  v3 = std::rotl(v3, 16) ^ v2;
  v0 += v3;
  v3 = std::rotl(v3, 21) ^ v0;
  v2 += v1;
  v1 = std::rotl(v1, 17) ^ v2;
  v2 = std::rotl(v2, 32);
}

void Fingerprinter::Compress(uint64_t word) {
  state_[3] ^= word;
  Round();
  Round();
  state_[0] ^= word;
}

void Fingerprinter::Add(absl::string_view text) {
  for (const char c : text) {
    pending_ |= uint64_t{static_cast<unsigned char>(c)} << (8 * (length_ % 8));
    if (++length_ % 8 != 0) continue;
    Compress(pending_);
    pending_ = 0;
  }
}

Fingerprint Fingerprinter::Finish() {
  Compress(pending_ | uint64_t{length_ & 0xff} << 56);
  const auto half = [this](size_t word, uint64_t tweak) {
    state_[word] ^= tweak;
    for (int i = 0; i < 4; ++i) Round();
    return state_[0] ^ state_[1] ^ state_[2] ^ state_[3];
  };
  const uint64_t first = half(2, 0xee);
  return {first, half(1, 0xdd)};
}

FingerprintKey RandomFingerprintKey() {
  std::random_device random;
  const auto word = [&random] { return uint64_t{random()} << 32 | random(); };
  const uint64_t first = word();
  return {first, word()};
}

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

absl::Status ReadSave(absl::string_view text, SavedTables tables, SaveVisitor& visitor) {
  return SaveReader(text, tables, visitor).Read();
}

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
    if (absl::StartsWith(line, "*")) {
      table = netlink::FindTable(absl::StripSuffix(line.substr(1), "\n"));
    }
    if (!IsRule(line) || IsSelected(line, family, table, selection)) {
      absl::StrAppend(&selected, line);
    } else {
      selected.append(static_cast<size_t>(std::count(line.begin(), line.end(), '\n')), '\n');
    }
  }
  return selected;
}

}  // namespace kipt::agent
