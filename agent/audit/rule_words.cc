// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
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
#include "agent/audit/audit_parts.h"
#include "agent/xtables/iptables_save.h"
#include "agent/xtables/saved_rule.h"

namespace kipt::agent {
namespace {

// ---- reading ----

struct KnownOption {
  absl::string_view match;  // empty: of any, or of none
  absl::string_view name;
  RuleWord RuleWords::*place;
};
constexpr KnownOption kOptions[] = {
    {"", "-s", &RuleWords::source},
    {"", "--source", &RuleWords::source},
    {"", "--src", &RuleWords::source},
    {"", "-d", &RuleWords::destination},
    {"", "--destination", &RuleWords::destination},
    {"", "--dst", &RuleWords::destination},
    {"", "-i", &RuleWords::in_interface},
    {"", "-o", &RuleWords::out_interface},
    {"", "-p", &RuleWords::protocol},
    {"", "--sport", &RuleWords::source_port},
    {"", "--sports", &RuleWords::source_port},
    {"", "--dport", &RuleWords::destination_port},
    {"", "--dports", &RuleWords::destination_port},
    {"", "--src-type", &RuleWords::source_type},
    {"", "--dst-type", &RuleWords::destination_type},
    {"", "--ctstate", &RuleWords::ct_state},
    {"", "--state", &RuleWords::ct_state},
    {"mark", "--mark", &RuleWords::mark},
    {"connlabel", "--label", &RuleWords::conn_label},
    {"set", "--match-set", &RuleWords::set},
    {"statistic", "--probability", &RuleWords::probability},
};

// Matches all of whose options are in kOptions, or below.
constexpr absl::string_view kMatches[] = {"tcp",       "udp",       "sctp",      "comment",
                                          "addrtype",  "conntrack", "state",     "mark",
                                          "multiport", "set",       "statistic", "connlabel"};

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

  RuleWords Read() && {
    while (at_ < words_.size()) {
      first_ = at_;
      const bool negated = words_[at_] == "!";
      if (negated) ++at_;
      if (at_ == words_.size()) break;
      const absl::string_view option = words_[at_++];
      if (option == "-j" || option == "-g") {
        ReadTarget();
        break;
      }
      if (ReadMatch(option, negated)) {
        CloseOther();
      } else {
        ExtendOther();
      }
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

  // False where it is not understood.
  bool ReadMatch(absl::string_view option, bool negated) {
    if (option == "-m") {
      match_ = Argument(false).text;
      CloseOther();
      return absl::c_find(kMatches, match_) != std::end(kMatches);
    }
    const auto known = absl::c_find_if(kOptions, [&](const KnownOption& row) {
      return row.name == option && (row.match.empty() || row.match == match_);
    });
    if (known != std::end(kOptions)) return ReadOption(rule_.*known->place, negated);
    if (match_ == "comment" && option == "--comment") {
      if (!rule_.comment.empty()) rule_.comment += "; ";
      AppendUnquoted(Argument(false).text, rule_.comment);
      return true;
    }
    if (match_ == "connlabel" && option == "--set" && rule_.conn_label && !rule_.sets_label) {
      rule_.sets_label = true;
      return true;
    }
    if (match_ == "statistic") {
      (void)Argument(false);
      if (option != "--mode") ExtendOther();
      return true;
    }
    // Whatever belongs to it stands behind it, up to the next option.
    while (at_ < words_.size() && !absl::StartsWith(words_[at_], "-") && words_[at_] != "!") ++at_;
    return false;
  }

  bool ReadOption(RuleWord& place, bool negated) {
    const RuleWord argument = Argument(negated);
    // A second one of the same option is none of ours to merge.
    if (place) return false;
    place = argument;
    if (&place == &rule_.set) rule_.set_flags = Argument(false).text;
    if (&place == &rule_.conn_label && absl::ConsumePrefix(&place.text, "\"")) {
      absl::ConsumeSuffix(&place.text, "\"");
    }
    return true;
  }

  // `others` is one view for each run of words that are not understood.
  void ExtendOther() {
    if (other_begin_ == nullptr) other_begin_ = words_[first_].data();
    other_end_ = words_[at_ - 1].data() + words_[at_ - 1].size();
  }

  void CloseOther() {
    if (other_begin_ == nullptr) return;
    rule_.others.emplace_back(other_begin_, static_cast<size_t>(other_end_ - other_begin_));
    other_begin_ = nullptr;
  }

  void ReadTarget() {
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

// ---- plain words ----

// How a sentence names a word. "%s" is its text, "%h" too, but for the length of a single host's
// prefix; "%p" makes "port" many; "%f" are the flags of a set.
struct Phrase {
  RuleWord RuleWords::*place;
  absl::string_view only;  // where the text is this; empty: any
  absl::string_view yes;
  absl::string_view no;  // negated
};
// In the order of a sentence. Of the rows of one word the first that fits.
constexpr Phrase kPhrases[] = {
    {&RuleWords::source, "", "from %h", "from outside %h"},
    {&RuleWords::source_type, "LOCAL", "from this node", "not from this node"},
    {&RuleWords::source_type, "", "from a source of type %s", "from a source not of type %s"},
    {&RuleWords::in_interface, "", "coming in by %s", "not coming in by %s"},
    {&RuleWords::source_port, "", "from port%p %s", "from other than port%p %s"},
    {&RuleWords::destination, "", "to %h", "to outside %h"},
    {&RuleWords::destination_type, "LOCAL", "to an address of this node",
     "not to an address of this node"},
    {&RuleWords::destination_type, "", "to a destination of type %s",
     "to a destination not of type %s"},
    {&RuleWords::destination_port, "", "port%p %s", "other than port%p %s"},
    {&RuleWords::out_interface, "", "going out by %s", "not going out by %s"},
    {&RuleWords::set, "", "in the set %s (%f)", "not in the set %s (%f)"},
    {&RuleWords::mark, "", "whose mark is %s", "whose mark is not %s"},
    {&RuleWords::ct_state, "", "of connections in state %s",
     "of connections in none of the states %s"},
    {&RuleWords::conn_label, "", "of connections with label %s", "of connections without label %s"},
};

std::string BitText(uint32_t bits) {
  const std::string hex = absl::StrFormat("0x%x", bits);
  return std::has_single_bit(bits)
             ? absl::StrCat("mark bit ", std::countr_zero(bits), " (", hex, ")")
             : absl::StrCat("mark bits ", hex);
}

std::string PhraseText(const Phrase& phrase, const RuleWords& words) {
  const RuleWord& word = words.*phrase.place;
  if (phrase.place == &RuleWords::mark) {
    const std::optional<netlink::SetMark> mark = ReadMaskedValue(word.text);
    if (mark && mark->value == mark->mask && mark->mask != netlink::kAllMarks) {
      return absl::StrCat(word.negated ? "without " : "with ", BitText(mark->value));
    }
  }
  const absl::string_view host = SingleHost(word.text);
  const bool several = absl::StrContains(word.text, ",") || absl::StrContains(word.text, ":");
  // "to 10.96.0.10 port 53", "to port 53".
  const bool alone = phrase.place == &RuleWords::destination_port && !words.destination;
  return absl::StrCat(alone ? "to " : "",
                      absl::StrReplaceAll(word.negated ? phrase.no : phrase.yes,
                                          {{"%s", word.text},
                                           {"%h", host.empty() ? word.text : host},
                                           {"%p", several ? "s" : ""},
                                           {"%f", words.set_flags}}));
}

std::string ConditionText(const RuleWords& words) {
  std::vector<std::string> parts;
  RuleWord RuleWords::*last = nullptr;
  for (const Phrase& phrase : kPhrases) {
    const RuleWord& word = words.*phrase.place;
    if (!word || phrase.place == last || (!phrase.only.empty() && phrase.only != word.text) ||
        (phrase.place == &RuleWords::conn_label && words.sets_label)) {
      continue;
    }
    last = phrase.place;
    parts.push_back(PhraseText(phrase, words));
  }
  double probability = 0;
  if (absl::SimpleAtod(words.probability.text, &probability)) {
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
    {"RETURN", "goes back, and nothing else here concerns it"},
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
  // A chain's name, or a target that nobody here knows.
  return absl::StrCat("goes to ", words.target, words.target_arguments.empty() ? "" : " ",
                      words.target_arguments);
}

}  // namespace

absl::string_view RuleWords::TargetArgument(absl::string_view option) const {
  std::vector<absl::string_view> words;
  if (!SplitSavedRule(target_arguments, words)) return {};
  const auto found = absl::c_find(words, option);
  return words.end() - found < 2 ? absl::string_view() : *(found + 1);
}

RuleWords ParseRuleWords(absl::string_view text) {
  std::vector<absl::string_view> words;
  words.reserve(24);
  if (SplitSavedRule(text, words)) return Reader(text, words).Read();
  RuleWords rule;
  rule.others.push_back(text);
  return rule;
}

std::string PacketText(const RuleWords& words) {
  const std::string condition = ConditionText(words);
  const RuleWord& protocol = words.protocol;
  return absl::StrCat(condition.empty() ? "every " : "a ", protocol.negated ? "non-" : "",
                      protocol.text, protocol ? " " : "", "packet", condition.empty() ? "" : " ",
                      condition);
}

std::string RuleSentence(const RuleWords& words) {
  const std::string packet = PacketText(words);
  if (!words.sets_label) {
    return absl::StrCat(packet, " ", words.target.empty() ? "is counted" : ActionText(words));
  }
  return absl::StrCat(packet, " gives its connection label ", words.conn_label.text,
                      words.target.empty() ? "" : " and ",
                      words.target.empty() ? "" : ActionText(words));
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
