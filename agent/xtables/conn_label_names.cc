// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/conn_label_names.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "agent/xtables/save_words.h"
#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

constexpr size_t kLargestFile = 64 << 10;
// libnetfilter_conntrack takes labels that the kernel does not have, and their names are taken.
constexpr uint64_t kLabelsWithNames = 1024;
// Its buffer, less the NUL: what is longer is read as several lines.
constexpr size_t kLongestLine = 1023;

// Spaces that stand around a name.
bool IsSpace(char c) { return c == ' ' || c == '\f' || c == '\r' || c == '\t' || c == '\v'; }

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == ' ' || c == '-';
}

std::string NameIn(const char* rest) {
  absl::string_view name(rest);
  name = name.substr(0, name.find('\n'));
  while (!name.empty() && IsSpace(name.front())) name.remove_prefix(1);
  while (!name.empty() && IsSpace(name.back())) name.remove_suffix(1);
  const bool sane = std::all_of(name.begin(), name.end(), IsNameCharacter);
  return sane ? std::string(name) : "";
}

bool HasName(const ConnLabelNames& names, int label) {
  return std::any_of(names.begin(), names.end(),
                     [&](const auto& name) { return name.second == label; });
}

// The label that `word`, quotes included, names; nothing where it is a number already, or nothing
// that we know.
std::optional<int> LabelNamed(absl::string_view word, const ConnLabelNames& names) {
  if (word.size() < 2 || word.front() != '"' || word.back() != '"') return std::nullopt;
  word = word.substr(1, word.size() - 2);
  const auto named = names.find(std::string(word));
  if (named == names.end() || named->second > netlink::kMostConnLabel) return std::nullopt;
  int number = 0;
  const bool is_number = absl::SimpleAtoi(word, &number) && absl::StrCat(number) == word;
  if (is_number && !HasName(names, number)) return std::nullopt;
  return named->second;
}

// The rule of which `words` are the words, the label's name replaced by its number.
std::string WithNumber(absl::string_view rule, const std::vector<absl::string_view>& words,
                       const ConnLabelNames& names) {
  std::string result;
  const char* copied = rule.data();
  for (size_t at = 0; at + 3 < words.size(); ++at) {
    if (words[at] != "-m" || words[at + 1] != "connlabel") continue;
    const size_t option = at + (words[at + 2] == "!" ? 3 : 2);
    if (option + 1 >= words.size() || words[option] != "--label") continue;
    const absl::string_view word = words[option + 1];
    const std::optional<int> label = LabelNamed(word, names);
    if (!label) continue;
    result.append(copied, word.data());
    absl::StrAppend(&result, "\"", *label, "\"");
    copied = word.data() + word.size();
  }
  return result.append(copied, rule.data() + rule.size());
}

}  // namespace

ConnLabelNames ParseConnLabelNames(absl::string_view text) {
  ConnLabelNames names;
  std::set<int> named;
  while (!text.empty()) {
    const size_t size = std::min(text.substr(0, kLongestLine).find('\n'), kLongestLine - 1) + 1;
    const std::string line(text.substr(0, size));
    text.remove_prefix(std::min(size, text.size()));
    if (absl::StartsWith(line, "#")) continue;
    char* end = nullptr;
    const uint64_t number = std::strtoul(line.c_str(), &end, 0);
    if (end == line.c_str() || number >= kLabelsWithNames) continue;
    const int label = static_cast<int>(number);
    std::string name = NameIn(end);
    if (name.empty() || named.count(label) != 0) continue;
    if (names.emplace(std::move(name), label).second) named.insert(label);
  }
  return names;
}

ConnLabelNames ReadConnLabelNames(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kLargestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || file.gcount() > static_cast<std::streamsize>(kLargestFile)) return {};
  text.resize(static_cast<size_t>(file.gcount()));
  return ParseConnLabelNames(text);
}

bool MentionsConnLabels(absl::string_view saved) {
  return absl::StrContains(saved, "-m connlabel ");
}

std::string WithConnLabelNumbers(absl::string_view saved, const ConnLabelNames& names) {
  if (names.empty()) return std::string(saved);
  std::string result;
  result.reserve(saved.size());
  std::vector<absl::string_view> words;
  while (!saved.empty()) {
    const bool is_rule = saved.front() == '-' || saved.front() == '[';
    std::optional<size_t> size = std::min(saved.find('\n'), saved.size());
    if (is_rule) size = SplitSavedRule(saved, words);
    if (!size) break;
    const absl::string_view line = saved.substr(0, *size + 1);
    absl::StrAppend(&result, is_rule ? WithNumber(line, words, names) : std::string(line));
    saved.remove_prefix(line.size());
  }
  return absl::StrCat(result, saved);
}

}  // namespace kipt::agent
