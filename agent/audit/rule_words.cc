// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/rule_words.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "agent/xtables/iptables_save.h"
#include "agent/xtables/saved_rule.h"

namespace kipt::agent {
namespace {

// ---- reading ----

using WordPair = std::pair<absl::string_view, absl::string_view>;

// Options that are understood after any match, and those of one match.
constexpr absl::string_view kOptions[] = {
    "-s", "-d", "-i", "-o", "-p", "--sport", "--dport", "--src-type", "--dst-type", "--ctstate"};
constexpr WordPair kMatchOptions[] = {{"mark", "--mark"},
                                      {"connlabel", "--label"},
                                      {"set", "--match-set"},
                                      {"statistic", "--probability"}};

// Other names of these.
constexpr WordPair kAliases[] = {
    {"--source", "-s"},      {"--src", "-s"},         {"--destination", "-d"}, {"--dst", "-d"},
    {"--sports", "--sport"}, {"--dports", "--dport"}, {"--state", "--ctstate"}};

// Matches all of whose options are in kOptions, or below.
constexpr absl::string_view kMatches[] = {"tcp",       "udp",       "sctp",      "comment",
                                          "addrtype",  "conntrack", "state",     "mark",
                                          "multiport", "set",       "statistic", "connlabel"};

// What is between the beginning of `first` and the end of `last`, two words of one text.
absl::string_view Between(absl::string_view first, absl::string_view last) {
  return {first.data(), static_cast<size_t>(last.data() + last.size() - first.data())};
}

class Reader {
 public:
  explicit Reader(const std::vector<absl::string_view>& words) : words_(words) {}

  RuleWords Read() && {
    while (at_ < words_.size()) {
      first_ = at_;
      const bool negated = words_[at_] == "!";
      if (negated && ++at_ == words_.size()) break;
      const absl::string_view option = words_[at_++];
      if (option == "-j" || option == "-g") {
        rule_.target = Argument().text;
        if (at_ < words_.size()) rule_.target_arguments = Between(words_[at_], words_.back());
        break;
      }
      const bool understood = ReadMatch(option, negated);
      if (!understood) AddOther();
      in_other_ = !understood;
    }
    return std::move(rule_);
  }

 private:
  // The next word, as the argument of an option; old programs print the "!" in front of it.
  RuleWord Argument(bool negated = false) {
    if (at_ < words_.size() && words_[at_] == "!") {
      negated = true;
      ++at_;
    }
    return at_ < words_.size() ? RuleWord{words_[at_++], negated} : RuleWord{};
  }

  // False where it is not understood.
  bool ReadMatch(absl::string_view option, bool negated) {
    if (option == "-m") {
      match_ = Argument().text;
      in_other_ = false;
      return absl::c_linear_search(kMatches, match_);
    }
    for (const auto& [alias, name] : kAliases) {
      if (option == alias) option = name;
    }
    if (absl::c_linear_search(kOptions, option) ||
        absl::c_linear_search(kMatchOptions, WordPair(match_, option))) {
      return ReadOption(option, negated);
    }
    if (match_ == "connlabel" && option == "--set" && rule_.Get("--label") && !rule_.sets_label) {
      rule_.sets_label = true;
      return true;
    }
    // Comments restrict nothing.
    if (match_ == "statistic" || (match_ == "comment" && option == "--comment")) {
      (void)Argument();
      if (match_ == "statistic" && option != "--mode") AddOther();
      return true;
    }
    // Its arguments follow it, up to the next option.
    while (at_ < words_.size() && !absl::StartsWith(words_[at_], "-") && words_[at_] != "!") ++at_;
    return false;
  }

  bool ReadOption(absl::string_view name, bool negated) {
    const RuleWord argument = Argument(negated);
    RuleWord& place = rule_.options[name];
    // It comes for the second time.
    if (place) return false;
    place = argument;
    if (name == "--match-set") rule_.set_flags = Argument().text;
    if (name == "--label" && absl::ConsumePrefix(&place.text, "\"")) {
      absl::ConsumeSuffix(&place.text, "\"");
    }
    return true;
  }

  // `others` has one view for each run of words that are not understood.
  void AddOther() {
    if (!in_other_) rule_.others.push_back(words_[first_]);
    rule_.others.back() = Between(rule_.others.back(), words_[at_ - 1]);
  }

  const std::vector<absl::string_view>& words_;
  size_t at_ = 0;
  size_t first_ = 0;  // of the option that is read
  absl::string_view match_;
  bool in_other_ = false;
  RuleWords rule_;
};

// ---- plain words ----

// How a sentence names an option. "%s" is its argument, "%h" the same without the length of a
// single host's prefix; "%p" makes "port" many; "%f" are the flags of a set.
struct Phrase {
  absl::string_view option;
  absl::string_view only;  // where the argument is this; empty: any
  absl::string_view yes;
  absl::string_view no;  // negated
};
// In the order of a sentence. The first row that fits an option counts.
constexpr Phrase kPhrases[] = {
    {"-s", "", "from %h", "from outside %h"},
    {"--src-type", "LOCAL", "from this node", "not from this node"},
    {"--src-type", "", "from a source of type %s", "from a source not of type %s"},
    {"-i", "", "coming in by %s", "not coming in by %s"},
    {"--sport", "", "from port%p %s", "from other than port%p %s"},
    {"-d", "", "to %h", "to outside %h"},
    {"--dst-type", "LOCAL", "to an address of this node", "not to an address of this node"},
    {"--dst-type", "", "to a destination of type %s", "to a destination not of type %s"},
    {"--dport", "", "port%p %s", "other than port%p %s"},
    {"-o", "", "going out by %s", "not going out by %s"},
    {"--match-set", "", "in the set %s (%f)", "not in the set %s (%f)"},
    {"--mark", "", "with mark %s", "with a mark other than %s"},
    {"--ctstate", "", "of connections in state %s", "of connections in none of the states %s"},
    {"--label", "", "of connections with label %s", "of connections without label %s"},
};

std::string BitText(uint32_t bits) {
  const std::string hex = absl::StrFormat("0x%x", bits);
  return std::has_single_bit(bits)
             ? absl::StrCat("mark bit ", std::countr_zero(bits), " (", hex, ")")
             : absl::StrCat("mark bits ", hex);
}

std::string PhraseText(const Phrase& phrase, const RuleWord& word, const RuleWords& words) {
  if (phrase.option == "--mark") {
    const std::optional<netlink::SetMark> mark = ReadMaskedValue(word.text);
    if (mark && mark->value == mark->mask && mark->mask != netlink::kAllMarks) {
      return absl::StrCat(word.negated ? "without " : "with ", BitText(mark->value));
    }
  }
  const absl::string_view host = SingleHost(word.text);
  // "to 10.96.0.10 port 53", "to port 53".
  return absl::StrCat(
      phrase.option == "--dport" && !words.Get("-d") ? "to " : "",
      absl::StrReplaceAll(word.negated ? phrase.no : phrase.yes,
                          {{"%s", word.text},
                           {"%h", host.empty() ? word.text : host},
                           {"%p", word.text.find_first_of(",:") == host.npos ? "" : "s"},
                           {"%f", words.set_flags}}));
}

std::string ConditionText(const RuleWords& words) {
  std::vector<std::string> parts;
  absl::string_view last;
  for (const Phrase& phrase : kPhrases) {
    const RuleWord word = words.Get(phrase.option);
    if (!word || phrase.option == last || (!phrase.only.empty() && phrase.only != word.text) ||
        (phrase.option == "--label" && words.sets_label)) {
      continue;
    }
    last = phrase.option;
    parts.push_back(PhraseText(phrase, word, words));
  }
  double probability = 0;
  if (absl::SimpleAtod(words.Get("--probability").text, &probability)) {
    parts.push_back(absl::StrFormat("by chance (%.3g %%)", probability * 100));
  }
  for (const absl::string_view other : words.others) parts.push_back(absl::StrCat("(", other, ")"));
  return absl::StrJoin(parts, " ");
}

// mark = (mark & ~mask) ^ value.
std::string MarkAction(const RuleWords& words) {
  const absl::string_view argument = words.TargetArgument("--set-xmark");
  const std::optional<netlink::SetMark> mark = ReadMaskedValue(argument);
  if (!mark) return absl::StrCat("has its mark changed (", words.target_arguments, ")");
  if (mark->value == mark->mask) return absl::StrCat("gets ", BitText(mark->value));
  if (mark->mask == 0) return absl::StrCat("has ", BitText(mark->value), " turned over");
  if (mark->value == 0) return absl::StrCat("loses ", BitText(mark->mask));
  return absl::StrCat("gets the mark ", argument);
}

struct TargetRow {
  absl::string_view target;
  absl::string_view text;
  absl::string_view option = {};  // whose argument "%s" is
};
constexpr TargetRow kTargets[] = {
    {"ACCEPT", "is accepted"},
    {"DROP", "is dropped"},
    {"REJECT", "is refused"},
    {"RETURN", "returns, and no other rule here applies to it"},
    {"MASQUERADE", "gets the address of the interface it leaves by as its source"},
    {"LOG", "is logged"},
    {"NFLOG", "is logged"},
    {"NOTRACK", "is not tracked"},
    {"REDIRECT", "is sent to this node itself"},
    {"DNAT", "is sent to %s instead", "--to-destination"},
    {"SNAT", "gets the source %s", "--to-source"},
};

// What is done with the packets: "is dropped", "goes to KUBE-SVC-X".
std::string ActionText(const RuleWords& words) {
  if (words.target == "MARK") return MarkAction(words);
  for (const TargetRow& row : kTargets) {
    if (row.target != words.target) continue;
    return absl::StrReplaceAll(row.text, {{"%s", words.TargetArgument(row.option)}});
  }
  // A chain's name, or a target that is not in the table.
  return absl::StrCat("jumps to ", words.target, words.target_arguments.empty() ? "" : " ",
                      words.target_arguments);
}

}  // namespace

RuleWord RuleWords::Get(absl::string_view option) const {
  const auto found = options.find(option);
  return found == options.end() ? RuleWord() : found->second;
}

absl::string_view RuleWords::TargetArgument(absl::string_view option) const {
  std::vector<absl::string_view> words;
  if (!SplitSavedRule(target_arguments, words)) return {};
  const auto found = absl::c_find(words, option);
  return words.end() - found < 2 ? absl::string_view() : *(found + 1);
}

RuleWords ParseRuleWords(absl::string_view text) {
  std::vector<absl::string_view> words;
  words.reserve(24);
  if (SplitSavedRule(text, words)) return Reader(words).Read();
  RuleWords rule;
  rule.others.push_back(text);
  return rule;
}

std::string PacketText(const RuleWords& words) {
  const std::string condition = ConditionText(words);
  const RuleWord protocol = words.Get("-p");
  return absl::StrCat(condition.empty() ? "every " : "a ", protocol.negated ? "non-" : "",
                      protocol.text, protocol ? " " : "", "packet", condition.empty() ? "" : " ",
                      condition);
}

std::string RuleSentence(const RuleWords& words) {
  const std::string action = words.target.empty() ? "" : ActionText(words);
  const std::string packet = PacketText(words);
  if (!words.sets_label) return absl::StrCat(packet, " ", action.empty() ? "is counted" : action);
  return absl::StrCat(packet, " gives its connection label ", words.Get("--label").text,
                      action.empty() ? "" : " and ", action);
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

std::string AboutService(absl::string_view service, absl::string_view sentence) {
  return absl::StrCat(service, service.empty() ? "" : ": ", sentence);
}

}  // namespace kipt::agent
