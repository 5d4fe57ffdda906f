// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/saved_rule.h"

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "netlink/xt_info.h"

namespace kipt::agent {
namespace {

using netlink::Drop;
using netlink::Family;
using netlink::Jump;
using netlink::kAllMarks;
using netlink::Marks;
using netlink::Masquerade;
using netlink::OpaqueRule;
using netlink::Prefix;
using netlink::PrefixMatch;
using netlink::Return;
using netlink::Rule;
using netlink::SetMark;
using Words = absl::Span<const absl::string_view>;

// ---- what matches and targets do with the packet's mark and the connection's labels ----
//
// As in OpaqueRule::marks: an unknown one may test and set every bit, and give every label.

// The word after `option`: empty where the words end there, nothing where there is no such option.
std::optional<absl::string_view> ArgumentOf(Words words, absl::string_view option) {
  const auto* const found = absl::c_find(words, option);
  if (found == words.end()) return std::nullopt;
  return found + 1 == words.end() ? absl::string_view() : found[1];
}

// As xtables_strtoui with base 0: "16", "0x10", "020".
std::optional<uint32_t> ReadUint32(absl::string_view text) {
  // strtoull would skip spaces and take a sign.
  if (text.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(text.front()))) {
    return std::nullopt;
  }
  const std::string terminated(text);
  char* end = nullptr;
  const uint64_t value = std::strtoull(terminated.c_str(), &end, 0);
  if (end != terminated.c_str() + terminated.size() || value > kAllMarks) return std::nullopt;
  return static_cast<uint32_t>(value);
}

// In each of the spellings of libxt_MARK, which become mark = (mark & ~mask) ^ value.
Marks MarksOfMarkTarget(Words words) {
  const std::optional<SetMark> mark = words.size() == 2 ? ReadMaskedValue(words[1]) : std::nullopt;
  if (!mark) return {.set = kAllMarks};
  const auto [value, mask] = *mark;
  if (words[0] == "--and-mark") return {.cleared = ~value};
  if (words[0] == "--or-mark") return {.set = value};
  if (words[0] == "--xor-mark") return {.set = value, .cleared = value};
  if (words[0] == "--set-mark") return {.set = value, .cleared = mask & ~value};
  if (words[0] == "--set-xmark") return MarksOf(Rule{.target = *mark});
  return {.set = kAllMarks};
}

// Saving tests mark & nfmask, restoring is MarksOfRestore, and the others do not touch the packet.
Marks MarksOfConnmarkTarget(Words words) {
  // All bits where the rule has no mask, or one that is no number.
  const auto mask = [&](absl::string_view option) {
    std::optional<absl::string_view> given = ArgumentOf(words, option);
    if (!given) given = ArgumentOf(words, "--mask");
    return ReadUint32(given.value_or("")).value_or(kAllMarks);
  };
  const absl::string_view operation = words.empty() ? absl::string_view() : words[0];
  if (operation == "--restore-mark") {
    uint32_t bits = mask("--ctmask");
    for (const bool left : {true, false}) {
      const auto shift = ArgumentOf(words, left ? "--left-shift-mark" : "--right-shift-mark");
      if (!shift) continue;
      const uint32_t by = ReadUint32(*shift).value_or(kAllMarks);
      if (by > 31) return {.set = kAllMarks};
      bits = left ? bits << by : bits >> by;
    }
    return netlink::MarksOfRestore(mask("--nfmask"), bits);
  }
  if (operation == "--save-mark") return {.tested = mask("--nfmask")};
  constexpr absl::string_view kOfConnection[] = {"--set-xmark", "--set-mark", "--and-mark",
                                                 "--or-mark", "--xor-mark"};
  const bool of_connection = absl::c_linear_search(kOfConnection, operation);
  return of_connection ? Marks{} : netlink::MarksOfUnknownTarget();
}

// `[!] --label LABEL [--set]`. A name (connlabel.conf) may be any label's.
Marks MarksOfConnlabelMatch(Words options) {
  if (!absl::c_linear_search(options, "--set")) return {};
  absl::string_view label = ArgumentOf(options, "--label").value_or("");
  if (absl::ConsumePrefix(&label, "\"")) absl::ConsumeSuffix(&label, "\"");
  const std::optional<uint32_t> number = ReadUint32(label);
  const bool known = number && *number <= netlink::kMostConnLabel;
  return {.labels_set = known ? netlink::ConnLabelSet().set(*number) : netlink::AllConnLabels()};
}

// For the match `-m NAME`. Its options are the `words` before the next -m, -j or -g.
Marks MarksOfMatch(absl::string_view name, Words words) {
  const auto* const end = absl::c_find_if(
      words, [](absl::string_view word) { return word == "-m" || word == "-j" || word == "-g"; });
  const Words options = words.first(static_cast<size_t>(end - words.begin()));
  const auto all_if = [&](absl::string_view option) {
    return absl::c_linear_search(options, option) ? kAllMarks : 0;
  };
  if (name == "connlabel") return MarksOfConnlabelMatch(options);
  if (netlink::IsMatchWithoutMark(name)) return {};
  if (name == "mark") {
    const auto mark = ReadMaskedValue(ArgumentOf(options, "--mark").value_or(""));
    return {.tested = mark ? mark->mask : kAllMarks};
  }
  if (name == "rpfilter") return {.tested = all_if("--validmark")};
  // It copies the socket's mark to the packet.
  if (name == "socket") {
    return {.set = all_if("--restore-skmark"), .cleared = all_if("--restore-skmark")};
  }
  if (name == "bpf") return {.tested = kAllMarks};
  return netlink::MarksOfUnknownMatch();
}

// For the target `-j NAME`, which is no chain and no verdict. `words` are those after the name.
Marks MarksOfTarget(absl::string_view name, Words words) {
  if (netlink::IsTargetWithoutMark(name)) return {};
  if (name == "MARK") return MarksOfMarkTarget(words);
  if (name == "CONNMARK") return MarksOfConnmarkTarget(words);
  if (name == "TPROXY") {
    const std::optional<absl::string_view> given = ArgumentOf(words, "--tproxy-mark");
    const std::optional<SetMark> mark = ReadMaskedValue(given.value_or("0/0"));
    return mark ? MarksOf(Rule{.target = *mark}) : Marks{.set = kAllMarks};
  }
  if (name == "SET") return {.set = absl::c_linear_search(words, "--map-mark") ? kAllMarks : 0};
  if (name == "HMARK") return {.set = kAllMarks, .cleared = kAllMarks};
  return netlink::MarksOfUnknownTarget();
}

// ---- the rule ----

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
  // A bit after the length makes a match that can never hold: no Prefix expresses that.
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
    const auto* const known =
        absl::c_find_if(kStates, [&](const auto& state) { return state.first == name; });
    if (known == std::end(kStates) || (states & known->second) != 0) return std::nullopt;
    states = static_cast<uint16_t>(states | known->second);
  }
  return states;
}

// "114", quotes included: iptables-save quotes numbers, too, because names may have spaces.
std::optional<uint8_t> ReadLabel(absl::string_view word) {
  const bool quoted = absl::ConsumePrefix(&word, "\"") && absl::ConsumeSuffix(&word, "\"");
  const uint32_t label = ReadUint32(word).value_or(kAllMarks);
  if (!quoted || label > netlink::kMostConnLabel || absl::StrCat(label) != word)
    return std::nullopt;
  return static_cast<uint8_t>(label);
}

// Reads the words once. What a Rule cannot hold makes the rule opaque, and is a condition if it
// comes before the target.
class SavedRuleReader {
 public:
  SavedRuleReader(Family family, const SavedChains& chains, Words words)
      : family_(family), chains_(chains), words_(words) {}

  std::variant<Rule, OpaqueRule> Read(absl::string_view text) && {
    while (at_ < words_.size() && !AtTarget()) ReadMatch();
    if (at_ < words_.size()) {
      ReadTarget();
    } else if (fits_ && rule_.conn_label && rule_.conn_label->set) {
      rule_.target = netlink::NoTarget{};
    } else {
      fits_ = false;
      // A target that cannot be distinguished from a match's argument may do anything.
      opaque_.decides = absl::c_linear_search(words_, "-j") || absl::c_linear_search(words_, "-g");
      if (opaque_.decides) {
        opaque_.marks.set = kAllMarks;
        opaque_.marks.labels_set = netlink::AllConnLabels();
      }
    }
    if (fits_) return std::move(rule_);
    opaque_.text = std::string(text);
    opaque_.all_known = !unknown_condition_ && !perhaps_condition_;
    const bool known_match_all = !opaque_.in_interface && netlink::IsUnconditional(rule_);
    opaque_.unconditional = opaque_.all_known && known_match_all;
    opaque_.perhaps_unconditional = !unknown_condition_ && known_match_all;
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

  // The next `words` are a condition that a Rule has no place for.
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
      if (option != "-i" || opaque_.in_interface) return SkipUnknown(2);
      opaque_.in_interface = {std::string(Word(1)), negated};
      at_ += 2;
      fits_ = false;
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

  // False for a match that no Rule has; nothing is read then.
  bool ReadKnownMatch(absl::string_view name) {
    if (name == "comment" && Word() == "--comment") {
      ReadComment();
      return true;
    }
    const bool negated = Word() == "!";
    const size_t words = negated ? 3 : 2;
    const absl::string_view option = Word(words - 2);
    const absl::string_view value = Word(words - 1);
    if (name == "mark" && option == "--mark") {
      const std::optional<SetMark> mark = ReadHexadecimal(value);
      if (!mark) return false;
      Set(rule_.mark, {.value = mark->value, .mask = mark->mask, .negated = negated});
    } else if (name == "conntrack" && option == "--ctstate") {
      const std::optional<uint16_t> states = ReadStates(value);
      if (!states) return false;
      Set(rule_.ct_state, {.states = *states, .negated = negated});
    } else if (name == "connlabel" && option == "--label") {
      const std::optional<uint8_t> label = ReadLabel(value);
      if (!label) return false;
      const bool set = Word(words) == "--set";
      if (set) ++at_;
      Set(rule_.conn_label, {.label = *label, .set = set, .negated = negated});
    } else {
      return false;
    }
    at_ += words;
    return true;
  }

  // Its options are then read as options of unknown names.
  void ReadUnknownMatch(absl::string_view name) {
    if (name == "nfacct") opaque_.nfacct = true;
    const size_t option = Word() == "!" ? 1 : 0;
    if (name == "set" && Word(option) == "--match-set" && opaque_.set.empty()) {
      opaque_.set = std::string(Word(option + 1));
      if (option == 0) opaque_.set_directions = std::string(Word(option + 2));
    }
    const bool remembers = name == "recent" && Word() == "--set";
    if (netlink::Selects(name) && !remembers) return SkipUnknown(0);
    // Its options are its own, up to the next match or the target.
    while (at_ < words_.size() && Word() != "-m" && !AtTarget()) ++at_;
    fits_ = false;
    perhaps_condition_ = true;
  }

  void ReadAddress(std::optional<PrefixMatch>& place, bool negated) {
    const std::optional<Prefix> prefix = ReadPrefix(family_, Word(1));
    if (!prefix) return SkipUnknown(2);
    at_ += 2;
    Set(place, PrefixMatch{.prefix = *prefix, .negated = negated});
  }

  // A comment matches every packet.
  void ReadComment() {
    std::optional<std::string> comment = UnquoteSavedWord(Word(1));
    fits_ = fits_ && rule_.comment.empty() && comment && !comment->empty() &&
            comment->size() <= netlink::kMaxCommentLength;
    if (comment && rule_.comment.empty()) rule_.comment = *std::move(comment);
    at_ += 2;
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
        !is_verdict && chain != chains_.end() && chain->second == "-" && at_ == words_.size();
    opaque_.decides = is_chain || effect.decides;
    opaque_.terminal = is_goto || (!is_chain && (is_verdict || effect.terminal));
    opaque_.perhaps_terminal = !is_chain && !is_verdict && effect.perhaps_terminal;
    opaque_.returns = name == "RETURN";
    opaque_.drops = !is_chain && (name == "DROP" || name == "REJECT");
    opaque_.queues = !is_chain && (name == "NFQUEUE" || name == "QUEUE") &&
                     !absl::c_linear_search(words_.subspan(at_), "--queue-bypass");
    fits_ = fits_ && !is_goto;
    if (is_chain) {
      opaque_.jump = std::string(name);
      rule_.target = Jump{.chain = std::string(name)};
    } else {
      opaque_.target = std::string(name);
      if (!is_verdict) opaque_.marks |= MarksOfTarget(name, words_.subspan(at_));
      const std::optional<netlink::Target> target = OwnTarget(name);
      fits_ = fits_ && target;
      rule_.target = target.value_or(netlink::NoTarget{});
    }
  }

  // Nothing for a target that no Rule has.
  std::optional<netlink::Target> OwnTarget(absl::string_view name) const {
    const size_t arguments = words_.size() - at_;
    if (name == "DROP" && arguments == 0) return Drop{};
    if (name == "RETURN" && arguments == 0) return Return{};
    const bool random_fully = arguments == 1 && Word() == "--random-fully";
    if (name == "MASQUERADE" && (arguments == 0 || random_fully)) return Masquerade{random_fully};
    // The only spelling of iptables-save since xt_MARK's revision 2 (Linux 2.6.25).
    if (name != "MARK" || arguments != 2 || Word() != "--set-xmark") return std::nullopt;
    const std::optional<SetMark> mark = ReadHexadecimal(Word(1));
    if (!mark || !absl::StrContains(Word(1), '/')) return std::nullopt;
    return *mark;
  }

  Family family_;
  const SavedChains& chains_;
  Words words_;
  size_t at_ = 0;
  Rule rule_;
  OpaqueRule opaque_{.text = {}, .jump = {}, .decides = false};
  bool fits_ = true;
  bool unknown_condition_ = false;
  bool perhaps_condition_ = false;  // a match that may match every packet
};

}  // namespace

std::variant<Rule, OpaqueRule> ParseSavedRule(Family family, const SavedChains& chains,
                                              absl::string_view text) {
  std::vector<absl::string_view> words;
  words.reserve(24);
  SplitSavedRule(text, words);
  return SavedRuleReader(family, chains, words).Read(text);
}

std::optional<SetMark> ReadMaskedValue(absl::string_view word) {
  const size_t slash = word.find('/');
  const bool has_mask = slash != absl::string_view::npos;
  const std::optional<uint32_t> value = ReadUint32(word.substr(0, slash));
  const std::optional<uint32_t> mask = has_mask ? ReadUint32(word.substr(slash + 1)) : kAllMarks;
  if (!value || !mask) return std::nullopt;
  return SetMark{.value = *value, .mask = *mask};
}

}  // namespace kipt::agent
