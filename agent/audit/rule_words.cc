// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/rule_words.h"

#include <array>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agent/xtables/iptables_save_lines.h"

namespace kipt::agent {
namespace {

struct KnownOption {
  absl::string_view name;
  RuleWord RuleWords::*place;
};
constexpr std::array kOptions = {
    KnownOption{"-s", &RuleWords::source},
    KnownOption{"--source", &RuleWords::source},
    KnownOption{"--src", &RuleWords::source},
    KnownOption{"-d", &RuleWords::destination},
    KnownOption{"--destination", &RuleWords::destination},
    KnownOption{"--dst", &RuleWords::destination},
    KnownOption{"-i", &RuleWords::in_interface},
    KnownOption{"-o", &RuleWords::out_interface},
    KnownOption{"-p", &RuleWords::protocol},
    KnownOption{"--sport", &RuleWords::source_port},
    KnownOption{"--sports", &RuleWords::source_port},
    KnownOption{"--dport", &RuleWords::destination_port},
    KnownOption{"--dports", &RuleWords::destination_port},
    KnownOption{"--src-type", &RuleWords::source_type},
    KnownOption{"--dst-type", &RuleWords::destination_type},
    KnownOption{"--ctstate", &RuleWords::ct_state},
    KnownOption{"--state", &RuleWords::ct_state},
};

// Matches all of whose options are in kOptions, or below.
constexpr std::array<absl::string_view, 12> kMatches = {
    "tcp",   "udp",  "sctp",      "comment", "addrtype",  "conntrack",
    "state", "mark", "multiport", "set",     "statistic", "connlabel"};

bool IsKnownMatch(absl::string_view name) {
  for (const absl::string_view match : kMatches) {
    if (match == name) return true;
  }
  return false;
}

// Quotes and the backslashes in them off; any bytes.
void AppendUnquoted(absl::string_view word, std::string& out) {
  const bool quoted = word.size() >= 2 && word.front() == '"' && word.back() == '"';
  if (!quoted) {
    absl::StrAppend(&out, word);
    return;
  }
  for (size_t at = 1; at + 1 < word.size(); ++at) {
    if (word[at] == '\\' && at + 2 < word.size()) ++at;
    out += word[at];
  }
}

class Reader {
 public:
  Reader(absl::string_view text, const std::vector<absl::string_view>& words)
      : text_(text), words_(words) {}

  RuleWords Read() {
    while (at_ < words_.size()) {
      first_ = at_;
      const bool negated = words_[at_] == "!";
      if (negated) ++at_;
      if (at_ == words_.size()) break;
      const absl::string_view option = words_[at_++];
      if (option == "-j" || option == "-g") {
        ReadTarget(option == "-g");
        break;
      }
      ReadMatch(option, negated);
    }
    CloseOther();
    return std::move(rule_);
  }

 private:
  // The next word, as the argument of an option; old programs print the "!" in front of it.
  RuleWord Argument(bool negated) {
    if (at_ < words_.size() && words_[at_] == "!") {
      negated = true;
      ++at_;
    }
    return at_ < words_.size() ? RuleWord{words_[at_++], negated} : RuleWord{};
  }

  void ReadMatch(absl::string_view option, bool negated) {
    if (option == "-m") {
      match_ = Argument(false).text;
      if (IsKnownMatch(match_)) return CloseOther();
      CloseOther();
      return ExtendOther();
    }
    for (const KnownOption& known : kOptions) {
      if (known.name != option) continue;
      const RuleWord argument = Argument(negated);
      // A second one of the same option is none of ours to merge.
      if (rule_.*known.place) return ExtendOther();
      rule_.*known.place = argument;
      return CloseOther();
    }
    if (ReadOptionOfMatch(option, negated)) return CloseOther();
    // Whatever belongs to it stands behind it, up to the next option.
    while (at_ < words_.size() && !absl::StartsWith(words_[at_], "-") && words_[at_] != "!") ++at_;
    ExtendOther();
  }

  bool ReadOptionOfMatch(absl::string_view option, bool negated) {
    if (match_ == "comment" && option == "--comment") {
      if (!rule_.comment.empty()) rule_.comment += "; ";
      AppendUnquoted(Argument(false).text, rule_.comment);
      return true;
    }
    if (match_ == "mark" && option == "--mark") {
      rule_.mark = Argument(negated);
      return true;
    }
    if (match_ == "connlabel" && option == "--label" && !rule_.conn_label) {
      rule_.conn_label = Argument(negated);
      absl::string_view& label = rule_.conn_label.text;
      if (label.size() > 2 && label.front() == '"' && label.back() == '"') {
        label = label.substr(1, label.size() - 2);
      }
      return true;
    }
    if (match_ == "connlabel" && option == "--set" && rule_.conn_label && !rule_.sets_label) {
      rule_.sets_label = true;
      return true;
    }
    if (match_ == "set" && option == "--match-set" && !rule_.set) {
      rule_.set = Argument(negated);
      rule_.set_flags = Argument(false).text;
      return true;
    }
    if (match_ != "statistic") return false;
    const absl::string_view value = Argument(false).text;
    if (option == "--probability") rule_.probability = value;
    if (option != "--probability" && option != "--mode") ExtendOther();
    return true;
  }

  // `others` is one view for each run of words that are not understood.
  void ExtendOther() {
    if (first_ >= words_.size()) return;
    if (other_begin_ == nullptr) other_begin_ = words_[first_].data();
    const absl::string_view last = words_[at_ - 1];
    other_end_ = last.data() + last.size();
  }

  void CloseOther() {
    if (other_begin_ == nullptr) return;
    rule_.others.emplace_back(other_begin_, static_cast<size_t>(other_end_ - other_begin_));
    other_begin_ = nullptr;
  }

  void ReadTarget(bool go_to) {
    rule_.go_to = go_to;
    rule_.target = Argument(false).text;
    if (at_ >= words_.size()) return;
    const absl::string_view last = words_.back();
    const char* begin = words_[at_].data();
    rule_.target_arguments = text_.substr(static_cast<size_t>(begin - text_.data()),
                                          static_cast<size_t>(last.data() + last.size() - begin));
  }

  absl::string_view text_;
  const std::vector<absl::string_view>& words_;
  size_t at_ = 0;
  size_t first_ = 0;
  absl::string_view match_;
  const char* other_begin_ = nullptr;
  const char* other_end_ = nullptr;
  RuleWords rule_;
};

}  // namespace

absl::string_view RuleWords::TargetArgument(absl::string_view option) const {
  std::vector<absl::string_view> words;
  if (!SplitSavedRule(target_arguments, words)) return {};
  for (size_t at = 0; at + 1 < words.size(); ++at) {
    if (words[at] == option) return words[at + 1];
  }
  return {};
}

RuleWords ParseRuleWords(absl::string_view text) {
  std::vector<absl::string_view> words;
  words.reserve(24);
  if (!SplitSavedRule(text, words)) {
    RuleWords rule;
    rule.others.push_back(text);
    return rule;
  }
  return Reader(text, words).Read();
}

absl::string_view SingleHost(absl::string_view prefix) {
  const size_t slash = prefix.find('/');
  if (slash == absl::string_view::npos) return prefix;
  const absl::string_view length = prefix.substr(slash + 1);
  const bool ipv6 = absl::StrContains(prefix, ":");
  return length == (ipv6 ? "128" : "32") ? prefix.substr(0, slash) : absl::string_view();
}

absl::string_view ServiceInComment(absl::string_view comment) {
  for (const absl::string_view prefix :
       {"masquerade LOCAL traffic for ", "route LOCAL traffic for ", "masquerade traffic for ",
        "pod traffic for ", "other traffic to "}) {
    if (absl::ConsumePrefix(&comment, prefix)) break;
  }
  comment = comment.substr(0, comment.find(' '));
  // An unnamed port's, up to 1.19: "default/web:".
  absl::ConsumeSuffix(&comment, ":");
  const size_t slash = comment.find('/');
  const bool named = slash != absl::string_view::npos && slash != 0 && slash + 1 < comment.size();
  return named ? comment : absl::string_view();
}

}  // namespace kipt::agent
