// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/xtables/iptables_save.h"
#include "netlink/xt_info.h"

namespace kipt::agent {
namespace {

using netlink::Drop;
using netlink::Family;
using netlink::Jump;
using netlink::Masquerade;
using netlink::OpaqueRule;
using netlink::Prefix;
using netlink::PrefixMatch;
using netlink::Return;
using netlink::Rule;
using netlink::SetMark;

constexpr std::pair<absl::string_view, uint16_t> kStates[] = {
    {"INVALID", netlink::kCtInvalid},     {"NEW", netlink::kCtNew},
    {"RELATED", netlink::kCtRelated},     {"ESTABLISHED", netlink::kCtEstablished},
    {"UNTRACKED", netlink::kCtUntracked}, {"SNAT", netlink::kCtSnat},
    {"DNAT", netlink::kCtDnat},
};

std::optional<Prefix> ReadPrefix(Family family, absl::string_view word) {
  const absl::StatusOr<Prefix> prefix = netlink::ParsePrefix(family, word);
  const absl::StatusOr<Prefix> address =
      netlink::ParsePrefix(family, word.substr(0, word.find('/')));
  // A bit after the length makes a match that can never hold: no Prefix says that.
  if (!prefix.ok() || !address.ok() || prefix->address != address->address) return std::nullopt;
  return *prefix;
}

// "0x8000/0x8000" or "0x8000": iptables-save prints no other base.
std::optional<SetMark> ReadHexadecimal(absl::string_view word) {
  const size_t slash = word.find('/');
  const bool has_mask = slash != absl::string_view::npos;
  if (!absl::StartsWith(word, "0x") || (has_mask && !absl::StartsWith(word.substr(slash), "/0x"))) {
    return std::nullopt;
  }
  return ReadMaskedValue(word);
}

std::optional<uint16_t> ReadStates(absl::string_view word) {
  uint16_t states = 0;
  for (const absl::string_view name : absl::StrSplit(word, ',')) {
    const auto* const known = std::find_if(std::begin(kStates), std::end(kStates),
                                           [&](const auto& state) { return state.first == name; });
    if (known == std::end(kStates) || (states & known->second) != 0) return std::nullopt;
    states = static_cast<uint16_t>(states | known->second);
  }
  return states;
}

// "114", quotes included: iptables-save quotes numbers, too, for names may have spaces. Names
// themselves are no matter of one rule.
std::optional<uint8_t> ReadLabel(absl::string_view word) {
  int label = 0;
  const bool quoted = absl::ConsumePrefix(&word, "\"") && absl::ConsumeSuffix(&word, "\"");
  if (!quoted || !absl::SimpleAtoi(word, &label) || absl::StrCat(label) != word || label < 0 ||
      label > netlink::kMostConnLabel) {
    return std::nullopt;
  }
  return static_cast<uint8_t>(label);
}

// Goes through the words once. Whatever it cannot say in a Rule makes the rule opaque, and is taken
// for a condition where it stands before the target.
class SavedRuleReader {
 public:
  SavedRuleReader(Family family, const SavedChains& chains,
                  absl::Span<const absl::string_view> words)
      : family_(family), chains_(chains), words_(words) {}

  std::variant<Rule, OpaqueRule> Read(absl::string_view text) && {
    while (at_ < words_.size() && !AtTarget()) ReadMatch();
    if (at_ < words_.size()) {
      ReadTarget();
    } else if (fits_ && rule_.conn_label && rule_.conn_label->set) {
      rule_.target = netlink::NoTarget{};
    } else {
      fits_ = false;
      // A target that we cannot tell from a match's argument may do anything.
      const auto is_option = [](absl::string_view word) { return word == "-j" || word == "-g"; };
      opaque_.decides = std::any_of(words_.begin(), words_.end(), is_option);
      if (opaque_.decides) {
        opaque_.marks.set = netlink::kAllMarks;
        opaque_.marks.labels_set = netlink::AllConnLabels();
      }
    }
    if (fits_) return std::move(rule_);
    opaque_.text = std::string(text);
    opaque_.unconditional = !unknown_condition_ && netlink::IsUnconditional(rule_);
    opaque_.known = std::move(rule_);
    opaque_.known.target = netlink::NoTarget{};
    return std::move(opaque_);
  }

 private:
  absl::string_view Word(size_t ahead = 0) const {
    return at_ + ahead < words_.size() ? words_[at_ + ahead] : absl::string_view();
  }

  // A match's argument may be "-j" too (iptables-save does not quote it), but then an option
  // follows: no target's name begins like one.
  bool AtTarget() const {
    const absl::string_view name = Word(1);
    return (Word() == "-j" || Word() == "-g") && !name.empty() && name[0] != '-' &&
           name[0] != '"' && name != "!";
  }

  // What comes next is a condition that a Rule has no place for, of so many words.
  void SkipUnknown(size_t words) {
    at_ += words;
    fits_ = false;
    unknown_condition_ = true;
  }

  template <typename T>
  void Set(std::optional<T>& place, const T& value) {
    // A rule of two conditions.
    if (place) return SkipUnknown(0);
    place = value;
  }

  void ReadMatch() {
    const bool negated = Word() == "!";
    if (negated) ++at_;
    const absl::string_view option = Word();
    if (option == "-s" || option == "-d") {
      ReadAddress(option == "-s" ? rule_.source : rule_.destination, negated);
    } else if (option == "-i" || option == "-o" || option == "-p") {
      if (option == "-i" && !opaque_.in_interface) {
        opaque_.in_interface = {std::string(Word(1)), negated};
      }
      SkipUnknown(2);
    } else if (option == "-m" && at_ + 2 <= words_.size()) {
      const absl::string_view name = Word(1);
      at_ += 2;
      opaque_.marks |= MarksOfMatch(name, words_.subspan(at_));
      if (negated || !ReadKnownMatch(name)) ReadUnknownMatch(name);
    } else {
      // We do not know whether it has an argument.
      SkipUnknown(1);
    }
  }

  // False for a match that no Rule has.
  bool ReadKnownMatch(absl::string_view name) {
    bool negated = false;
    if (name == "comment" && Word() == "--comment") {
      ++at_;
      ReadComment();
    } else if (name == "mark") {
      if (const auto mark = ReadOption("--mark", ReadHexadecimal, negated)) {
        Set(rule_.mark, {.value = mark->value, .mask = mark->mask, .negated = negated});
      }
    } else if (name == "conntrack") {
      if (const auto states = ReadOption("--ctstate", ReadStates, negated)) {
        Set(rule_.ct_state, {.states = *states, .negated = negated});
      }
    } else if (name == "connlabel") {
      if (const auto label = ReadOption("--label", ReadLabel, negated)) {
        const bool set = Word() == "--set";
        if (set) ++at_;
        Set(rule_.conn_label, {.label = *label, .set = set, .negated = negated});
      }
    } else {
      return false;
    }
    return true;
  }

  void ReadUnknownMatch(absl::string_view name) {
    if (name == "nfacct") opaque_.nfacct = true;
    const size_t option = Word() == "!" ? 1 : 0;
    if (name == "set" && Word(option) == "--match-set" && opaque_.set.empty()) {
      opaque_.set = std::string(Word(option + 1));
    }
    SkipUnknown(0);
  }

  void ReadAddress(std::optional<PrefixMatch>& place, bool negated) {
    const std::optional<Prefix> prefix = ReadPrefix(family_, Word(1));
    if (!prefix) return SkipUnknown(2);
    at_ += 2;
    Set(place, PrefixMatch{.prefix = *prefix, .negated = negated});
  }

  // Matches every packet, whatever it says.
  void ReadComment() {
    std::optional<std::string> comment = UnquoteSavedWord(Word());
    fits_ = fits_ && rule_.comment.empty() && comment && !comment->empty() &&
            comment->size() <= netlink::kMaxCommentLength;
    if (comment && rule_.comment.empty()) rule_.comment = *std::move(comment);
    ++at_;
  }

  // `[!] OPTION VALUE`. Nothing, and the rule is opaque, if these are other words; they are then
  // read once more, as options of unknown names.
  template <typename T>
  std::optional<T> ReadOption(absl::string_view option, std::optional<T> (*read)(absl::string_view),
                              bool& negated) {
    negated = Word() == "!";
    const size_t at = negated ? 1 : 0;
    const std::optional<T> value = Word(at) == option ? read(Word(at + 1)) : std::nullopt;
    if (!value) SkipUnknown(0);
    if (value) at_ += at + 2;
    return value;
  }

  void ReadTarget() {
    const bool is_goto = Word() == "-g";
    const absl::string_view name = Word(1);
    at_ += 2;
    const netlink::TargetEffect effect = netlink::EffectOfTarget(name);
    const auto chain = chains_.find(name);
    // A verdict's name is never a chain's; an extension's may be.
    const bool is_verdict = name == "ACCEPT" || name == "DROP" || name == "RETURN";
    const bool is_chain =
        !is_verdict && chain != chains_.end() && !chain->second && at_ == words_.size();
    opaque_.decides = is_chain || effect.decides;
    opaque_.terminal = is_goto || (!is_chain && (is_verdict || effect.terminal));
    opaque_.returns = name == "RETURN";
    fits_ = fits_ && !is_goto;
    if (is_chain) {
      opaque_.jump = std::string(name);
      rule_.target = Jump{.chain = std::string(name)};
    } else {
      opaque_.target = std::string(name);
      if (!is_verdict) opaque_.marks |= MarksOfTarget(name, words_.subspan(at_));
      fits_ = fits_ && ReadOwnTarget(name);
    }
  }

  bool ReadOwnTarget(absl::string_view name) {
    const size_t arguments = words_.size() - at_;
    if (name == "DROP" && arguments == 0) {
      rule_.target = Drop{};
    } else if (name == "RETURN" && arguments == 0) {
      rule_.target = Return{};
    } else if (name == "MASQUERADE" &&
               (arguments == 0 || (arguments == 1 && Word() == "--random-fully"))) {
      rule_.target = Masquerade{.random_fully = arguments == 1};
    } else if (name == "MARK" && arguments == 2 && Word() == "--set-xmark") {
      // Whatever the rule was written with: since xt_MARK's revision 2 (Linux 2.6.25) iptables-save
      // knows only this spelling, up to 1.8.11 at least.
      const std::optional<SetMark> mark = ReadHexadecimal(Word(1));
      if (!mark || !absl::StrContains(Word(1), '/')) return false;
      rule_.target = *mark;
    } else {
      return false;
    }
    return true;
  }

  Family family_;
  const SavedChains& chains_;
  absl::Span<const absl::string_view> words_;
  size_t at_ = 0;
  Rule rule_;
  OpaqueRule opaque_{.text = {}, .jump = {}, .decides = false};
  bool fits_ = true;
  bool unknown_condition_ = false;
};

}  // namespace

std::variant<Rule, OpaqueRule> ParseSavedRule(Family family, const SavedChains& chains,
                                              absl::string_view text,
                                              absl::Span<const absl::string_view> words) {
  return SavedRuleReader(family, chains, words).Read(text);
}

std::optional<std::string> UnquoteSavedWord(absl::string_view word) {
  std::string plain(word);
  if (word.size() >= 2 && word.front() == '"' && word.back() == '"') {
    plain.clear();
    for (size_t at = 1; at + 1 < word.size(); ++at) {
      if (word[at] == '\\') ++at;
      plain += word[at];
    }
  }
  if (netlink::QuoteForSave(plain) != word) return std::nullopt;
  return plain;
}

}  // namespace kipt::agent
