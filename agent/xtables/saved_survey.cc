// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/saved_survey.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/text/printable.h"
#include "agent/xtables/saved_rule.h"

namespace kipt::agent {
namespace {

using netlink::Family;
using netlink::RuleCounters;
using netlink::Survey;
using netlink::SurveyChain;
using netlink::SurveyFilter;
using netlink::SurveyRule;
using netlink::TableId;

// The family that one option and its argument belong to.
std::optional<Family> FamilyOf(absl::string_view option, absl::string_view argument) {
  if (option == "-s" || option == "-d" || option == "--source" || option == "--destination") {
    for (const Family family : netlink::kFamilies) {
      if (netlink::ParsePrefix(family, argument.substr(0, argument.find('/'))).ok()) return family;
    }
  } else if (option == "-p") {
    if (argument == "icmp") return Family::kIPv4;
    if (argument == "ipv6-icmp" || argument == "icmpv6") return Family::kIPv6;
  } else if (option == "--reject-with") {
    if (absl::StartsWith(argument, "icmp6-")) return Family::kIPv6;
    if (absl::StartsWith(argument, "icmp-")) return Family::kIPv4;
  } else if (option == "--to-destination" || option == "--to-source") {
    if (absl::StartsWith(argument, "[")) return Family::kIPv6;
  }
  return std::nullopt;
}

// The family that the heading and the rules of `table` show.
absl::StatusOr<std::optional<Family>> FamilyOfTable(const SavedTable& table) {
  std::optional<Family> said;
  // "ip6tables-nft-save v1.8.9 (nf_tables) on ..."
  if (absl::StartsWith(table.heading, "iptables")) said = Family::kIPv4;
  if (absl::StartsWith(table.heading, "ip6tables")) said = Family::kIPv6;
  std::vector<absl::string_view> words;
  for (const SavedRule& rule : table.rules) {
    SplitSavedRule(rule.text, words);
    for (size_t at = 0; at + 1 < words.size(); ++at) {
      const std::optional<Family> family = FamilyOf(words[at], words[at + 1]);
      if (!family) continue;
      if (said.value_or(*family) != *family) {
        return absl::InvalidArgumentError(
            absl::StrCat("table ", table.name, ", rule ", QuoteForMessage(rule.text), " is of ",
                         *family == Family::kIPv4 ? "IPv4" : "IPv6",
                         ", and the rules before it are of the other family"));
      }
      said = family;
    }
  }
  return said;
}

SurveyRule ReadRule(Family family, const SavedChains& chains, absl::string_view text,
                    const RuleCounters& counters) {
  SurveyRule read = {{.content = ParseSavedRule(family, chains, text), .counters = counters}};
  // An opaque rule has its text already.
  if (read.rule() != nullptr && ToString(family, read) != text) read.spelling = std::string(text);
  return read;
}

// The name that begins there among SaveSifter's names.
absl::string_view NameAt(absl::string_view names, size_t begin) {
  return names.substr(begin + 1, names.find('\n', begin) - begin - 1);
}

// Bounds a line of iptables-save, and what follows a quote that does not end.
constexpr size_t kLongestSavedLine = size_t{1} << 20;

void AddToSurvey(const SavedTable& saved, Family family, const SurveyFilter& keep, Survey& survey) {
  const TableId id = {.family = std::string(netlink::FamilyName(family)),
                      .name = std::string(saved.name)};
  std::map<std::string, SurveyChain>& table = survey.tables[id];
  table.clear();
  for (const auto& [name, policy] : saved.chains) {
    SurveyChain& chain = table[std::string(name)];
    chain.base = policy != "-";
    if (policy == "ACCEPT" || policy == "DROP") chain.policy = std::string(policy);
  }
  // The last rule's chain, which is usually the next one's too.
  std::pair<const std::string, SurveyChain>* chain = nullptr;
  for (const SavedRule& rule : saved.rules) {
    if (chain == nullptr || chain->first != rule.chain) {
      chain = &*table.find(std::string(rule.chain));
    }
    SurveyRule read = ReadRule(family, saved.chains, rule.text, rule.counters);
    if (!keep || keep(id, chain->first, read)) chain->second.rules.push_back(std::move(read));
  }
}

}  // namespace

Survey SurveyOf(absl::string_view mode, Family family, const std::vector<SavedTable>& tables,
                const SurveyFilter& keep) {
  Survey survey = {.mode = std::string(mode), .generation = 0, .tables = {}};
  for (const SavedTable& table : tables) AddToSurvey(table, family, keep, survey);
  return survey;
}

absl::Status SaveSifter::Error(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat("iptables-save, line ", lines_, ": ", what));
}

absl::Status SaveSifter::Take(absl::string_view piece) {
  rest_.append(piece.data(), piece.size());
  absl::string_view left = rest_;
  absl::Status status;
  while (status.ok()) {
    const bool is_rule = !left.empty() && (left.front() == '-' || left.front() == '[');
    std::optional<size_t> size = left.find('\n');
    if (is_rule) size = SplitSavedRule(left, words_);
    // The rest of the line is to come; so may be the end of a quote.
    if (!size || *size >= left.size()) break;
    ++lines_;
    status = is_rule ? TakeRule(left.substr(0, *size)) : TakeLine(left.substr(0, *size));
    left.remove_prefix(*size + 1);
  }
  if (status.ok() && left.size() > kLongestSavedLine) status = Error("it does not end");
  rest_.erase(0, rest_.size() - left.size());
  return status;
}

absl::Status SaveSifter::Finish() {
  ++lines_;
  if (!rest_.empty()) return Error("it does not end");
  return in_table_ ? Error("the end, before the table's COMMIT") : absl::OkStatus();
}

absl::Status SaveSifter::TakeLine(absl::string_view line) {
  if (absl::StartsWith(line, ":")) return DeclareChain(line);
  if (absl::ConsumePrefix(&line, "*")) {
    if (in_table_) return Error("a table before the last one's COMMIT");
    table_ = {.family = std::string(netlink::FamilyName(family_)), .name = std::string(line)};
    if (!survey_.tables.try_emplace(table_).second) return Error("a table for the second time");
    in_table_ = true;
    return absl::OkStatus();
  }
  if (line == "COMMIT") return in_table_ ? EndTable() : Error("COMMIT outside a table");
  return line.empty() || line.front() == '#' ? absl::OkStatus() : Error("unknown line");
}

absl::Status SaveSifter::DeclareChain(absl::string_view line) {
  const absl::string_view policy = ReadSavedPolicy(line, words_);
  if (policy.empty() || !in_table_ || !sorted_.empty()) {
    return Error("a chain outside the head of a table, or of unknown form");
  }
  const absl::string_view name = words_[0].substr(1);
  if (policy != "-") {
    SurveyChain& base = survey_.tables[table_][std::string(name)];
    base.base = true;
    if (policy == "ACCEPT" || policy == "DROP") base.policy = std::string(policy);
  }
  absl::StrAppend(&names_, policy == "-" ? "-" : "+", name, "\n");
  return absl::OkStatus();
}

void SaveSifter::SortNames() {
  if (!sorted_.empty() || names_.empty()) return;
  sorted_.reserve(static_cast<size_t>(absl::c_count(names_, '\n')));
  for (size_t at = 0; at < names_.size(); at = names_.find('\n', at) + 1) {
    sorted_.push_back(static_cast<uint32_t>(at));
  }
  absl::c_sort(sorted_,
               [&](uint32_t a, uint32_t b) { return NameAt(names_, a) < NameAt(names_, b); });
  seen_.assign(sorted_.size(), false);
}

std::optional<size_t> SaveSifter::Find(absl::string_view chain) const {
  const auto found = std::lower_bound(
      sorted_.begin(), sorted_.end(), chain,
      [&](uint32_t at, absl::string_view name) { return NameAt(names_, at) < name; });
  if (found == sorted_.end() || NameAt(names_, *found) != chain) return std::nullopt;
  return static_cast<size_t>(found - sorted_.begin());
}

absl::Status SaveSifter::EnterChain(absl::string_view chain) {
  LeaveChain();
  const std::optional<size_t> place = Find(chain);
  if (!place) return Error("a rule of a chain that is not declared");
  seen_[*place] = true;
  chain_ = std::string(chain);
  base_ = names_[sorted_[*place]] == '+';
  return sieve_.Begin(table_, chain_, base_);
}

void SaveSifter::LeaveChain() {
  if (chain_.empty()) return;
  if (!kept_.empty() || sieve_.KeepBare() || base_) {
    std::vector<SurveyRule>& rules = survey_.tables[table_][chain_].rules;
    for (SurveyRule& rule : kept_) rules.push_back(std::move(rule));
  }
  kept_.clear();
  chain_.clear();
}

absl::Status SaveSifter::TakeRule(absl::string_view line) {
  absl::Span<const absl::string_view> words = words_;
  const std::optional<RuleCounters> counters = ReadSavedCounters(words[0]);
  if (counters) words.remove_prefix(1);
  if (words.size() < 2 || words[0] != "-A" || !in_table_) return Error("unknown line");
  SortNames();
  if (words[1] != chain_) {
    if (absl::Status status = EnterChain(words[1]); !status.ok()) return status;
  }
  // Only the chain that it may jump to decides what the rule is.
  SavedChains chains;
  for (size_t at = 2; at + 1 < words.size(); ++at) {
    if (words[at] != "-j" && words[at] != "-g") continue;
    if (const std::optional<size_t> place = Find(words[at + 1])) {
      chains.emplace(words[at + 1], names_[sorted_[*place]] == '-' ? "-" : "ACCEPT");
    }
  }
  const size_t end = static_cast<size_t>(words[1].data() - line.data()) + words[1].size();
  const std::string text(absl::StripPrefix(line.substr(end), " "));
  absl::StatusOr<std::string> complete = complete_(text);
  if (!complete.ok()) return complete.status();
  SurveyRule rule = ReadRule(family_, chains, *complete, counters.value_or(RuleCounters{}));
  if (sieve_.Keep(rule)) kept_.push_back(std::move(rule));
  return absl::OkStatus();
}

absl::Status SaveSifter::EndTable() {
  LeaveChain();
  SortNames();
  for (size_t i = 0; i < sorted_.size(); ++i) {
    if (seen_[i]) continue;
    chain_ = std::string(NameAt(names_, sorted_[i]));
    base_ = names_[sorted_[i]] == '+';
    if (absl::Status status = sieve_.Begin(table_, chain_, base_); !status.ok()) return status;
    LeaveChain();
  }
  names_.clear();
  sorted_.clear();
  in_table_ = false;
  return absl::OkStatus();
}

namespace {

// "# Table `nat' is incompatible, use 'nft' tool."
std::set<std::string> NotPrinted(absl::string_view text) {
  std::set<std::string> names;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!absl::ConsumePrefix(&line, "# Table ") || !absl::StrContains(line, " is incompatible")) {
      continue;
    }
    const absl::string_view name = line.substr(0, line.find(' '));
    names.emplace(absl::StripSuffix(absl::StripPrefix(absl::StripPrefix(name, "`"), "'"), "'"));
  }
  return names;
}

// The command that printed `text`, if that is another than iptables-save, and what it lacks.
absl::string_view OtherFormat(absl::string_view text) {
  struct FormatRow {
    absl::string_view begins;
    absl::string_view contains;
    absl::string_view format;
  };
  constexpr absl::string_view kList =
      "`iptables -L`, which lacks the tables' names and some options";
  constexpr absl::string_view kRules = "`iptables -S`, which lacks the tables' names";
  constexpr absl::string_view kRuleset = "`nft list ruleset`";
  static constexpr FormatRow kRows[] = {{"Chain ", "(policy ", kList},
                                        {"Chain ", " references)", kList},
                                        {"-P ", "", kRules},
                                        {"-N ", "", kRules},
                                        {"-A ", "", kRules},
                                        {"table ", "{", kRuleset},
                                        {"{", "\"nftables\"", "`nft --json list ruleset`"}};
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || absl::StartsWith(line, "#")) continue;
    for (const FormatRow& row : kRows) {
      if (absl::StartsWith(line, row.begins) && absl::StrContains(line, row.contains)) {
        return row.format;
      }
    }
    return "";
  }
  return "";
}

// Without spaces and tabs at the beginnings of lines.
std::string Unindented(absl::string_view text) {
  return absl::StrJoin(
      absl::StrSplit(text, '\n'), "\n", [](std::string* out, absl::string_view line) {
        const size_t begin = line.find_first_not_of(" \t");
        absl::StrAppend(
            out, begin == absl::string_view::npos ? absl::string_view() : line.substr(begin));
      });
}

absl::StatusOr<Survey> SurveyOfSaves(const std::vector<SavedTable>& tables) {
  std::vector<std::optional<Family>> families;
  // For each save, the family of the first table that shows one.
  std::map<size_t, Family> of_saves;
  for (const SavedTable& table : tables) {
    const absl::StatusOr<std::optional<Family>> family = FamilyOfTable(table);
    if (!family.ok()) return family.status();
    families.push_back(*family);
    if (*family) of_saves.emplace(table.save, **family);
  }
  Survey survey = {.mode = "", .generation = 0, .tables = {}};
  for (size_t i = 0; i < tables.size(); ++i) {
    const SavedTable& table = tables[i];
    const Family otherwise = of_saves.emplace(table.save, Family::kIPv4).first->second;
    AddToSurvey(table, families[i].value_or(otherwise), nullptr, survey);
  }
  return survey;
}

}  // namespace

absl::StatusOr<Survey> ParseSavedFile(absl::string_view text) {
  absl::StatusOr<std::vector<SavedTable>> tables = ReadSave(text, TablesMayRepeat::kYes);
  std::string unindented;
  if (!tables.ok()) {
    unindented = Unindented(text);
    tables = ReadSave(unindented, TablesMayRepeat::kYes);
  }
  std::set<std::string> not_printed = NotPrinted(text);
  if (!tables.ok() || (tables->empty() && not_printed.empty())) {
    if (const absl::string_view format = OtherFormat(text); !format.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("this is the output of ", format,
                       "; run iptables-save (and ip6tables-save), and give that"));
    }
    if (!tables.ok()) return tables.status();
    return absl::InvalidArgumentError("no table: this is not what iptables-save printed");
  }
  absl::StatusOr<Survey> survey = SurveyOfSaves(*tables);
  if (survey.ok()) survey->not_printed = std::move(not_printed);
  return survey;
}

}  // namespace kipt::agent
