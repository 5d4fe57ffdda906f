// SPDX-License-Identifier: Apache-2.0
//
// A rule in plain words.
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/audit/explain_parts.h"

namespace kipt::agent {
namespace {

struct Masked {
  uint32_t value = 0;
  uint32_t mask = 0xffffffff;
};

// "0x4000/0x4000", "0x4000".
std::optional<Masked> ReadMasked(absl::string_view text) {
  // Of no text StrSplit makes no part at all, or one, as the view's pointer is null or not.
  if (text.empty()) return std::nullopt;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '/');
  Masked masked;
  if (parts.size() > 2 || !absl::SimpleHexAtoi(parts[0], &masked.value)) return std::nullopt;
  if (parts.size() == 2 && !absl::SimpleHexAtoi(parts[1], &masked.mask)) return std::nullopt;
  return masked;
}

std::string BitText(uint32_t bits) {
  const std::string hex = absl::StrFormat("0x%x", bits);
  return std::has_single_bit(bits)
             ? absl::StrCat("mark bit ", std::countr_zero(bits), " (", hex, ")")
             : absl::StrCat("mark bits ", hex);
}

std::string MarkCondition(const RuleWord& mark) {
  const std::optional<Masked> masked = ReadMasked(mark.text);
  if (masked && masked->value == masked->mask && masked->mask != 0xffffffff) {
    return absl::StrCat(mark.negated ? "without " : "with ", BitText(masked->value));
  }
  return absl::StrCat(mark.negated ? "whose mark is not " : "whose mark is ", mark.text);
}

// mark = (mark & ~mask) ^ value.
std::string MarkAction(const RuleWords& words) {
  const absl::string_view argument = words.TargetArgument("--set-xmark");
  const std::optional<Masked> masked = ReadMasked(argument);
  if (argument.empty() || !masked)
    return absl::StrCat("has its mark changed (", words.target_arguments, ")");
  if (masked->value == masked->mask) return absl::StrCat("gets ", BitText(masked->value));
  if (masked->mask == 0) return absl::StrCat("has ", BitText(masked->value), " turned over");
  if (masked->value == 0) return absl::StrCat("loses ", BitText(masked->mask));
  return absl::StrCat("gets the mark ", argument);
}

std::string PortText(const RuleWord& port) {
  const bool several = absl::StrContains(port.text, ",") || absl::StrContains(port.text, ":");
  return absl::StrCat(port.negated ? "other than port" : "port", several ? "s " : " ", port.text);
}

// "255.255.255.255" of a prefix of full length says nothing.
std::string Place(absl::string_view prefix) {
  const absl::string_view host = SingleHost(prefix);
  return std::string(host.empty() ? prefix : host);
}

void AddAddresses(const RuleWords& words, std::vector<std::string>& parts) {
  if (words.source) {
    parts.push_back(
        absl::StrCat(words.source.negated ? "from outside " : "from ", Place(words.source.text)));
  }
  if (words.source_type) {
    const bool local = words.source_type.text == "LOCAL";
    parts.push_back(local ? absl::StrCat(words.source_type.negated ? "not " : "", "from this node")
                          : absl::StrCat("from a source ", words.source_type.negated ? "not " : "",
                                         "of type ", words.source_type.text));
  }
  if (words.in_interface) {
    parts.push_back(absl::StrCat(words.in_interface.negated ? "not " : "", "coming in by ",
                                 words.in_interface.text));
  }
  if (words.source_port) parts.push_back(absl::StrCat("from ", PortText(words.source_port)));
  if (words.destination) {
    parts.push_back(absl::StrCat(words.destination.negated ? "to outside " : "to ",
                                 Place(words.destination.text)));
  }
  if (words.destination_type) {
    const bool local = words.destination_type.text == "LOCAL";
    parts.push_back(local ? absl::StrCat(words.destination_type.negated ? "not " : "",
                                         "to an address of this node")
                          : absl::StrCat("to a destination ",
                                         words.destination_type.negated ? "not " : "", "of type ",
                                         words.destination_type.text));
  }
  if (words.destination_port) {
    parts.push_back(absl::StrCat(words.destination ? "" : "to ", PortText(words.destination_port)));
  }
  if (words.out_interface) {
    parts.push_back(absl::StrCat(words.out_interface.negated ? "not " : "", "going out by ",
                                 words.out_interface.text));
  }
}

struct TargetText {
  absl::string_view target;
  absl::string_view text;
};
constexpr std::array kTargets = {
    TargetText{"ACCEPT", "is accepted"},
    TargetText{"DROP", "is dropped"},
    TargetText{"REJECT", "is refused"},
    TargetText{"RETURN", "goes back, and nothing else here concerns it"},
    TargetText{"MASQUERADE", "gets the address of the interface it leaves by as its source"},
    TargetText{"LOG", "is logged"},
    TargetText{"NFLOG", "is logged"},
    TargetText{"NOTRACK", "is not tracked"},
    TargetText{"REDIRECT", "is sent to this node itself"},
};

std::string ConditionText(const RuleWords& words) {
  std::vector<std::string> parts;
  AddAddresses(words, parts);
  if (words.set) {
    parts.push_back(absl::StrCat(words.set.negated ? "not " : "", "in the set ", words.set.text,
                                 " (", words.set_flags, ")"));
  }
  if (words.mark) parts.push_back(MarkCondition(words.mark));
  if (words.ct_state) {
    parts.push_back(absl::StrCat(words.ct_state.negated ? "of connections in none of the states "
                                                        : "of connections in state ",
                                 words.ct_state.text));
  }
  if (words.conn_label && !words.sets_label) {
    parts.push_back(absl::StrCat(
        words.conn_label.negated ? "of connections without label " : "of connections with label ",
        words.conn_label.text));
  }
  double probability = 0;
  if (absl::SimpleAtod(words.probability, &probability)) {
    parts.push_back(absl::StrFormat("by chance (%.3g %%)", probability * 100));
  }
  for (const absl::string_view other : words.others) parts.push_back(absl::StrCat("(", other, ")"));
  return absl::StrJoin(parts, " ");
}

}  // namespace

std::string ActionText(const RuleWords& words) {
  if (words.sets_label) {
    RuleWords rest = words;
    rest.sets_label = false;
    return absl::StrCat("gives its connection label ", words.conn_label.text,
                        words.target.empty() ? "" : absl::StrCat(" and ", ActionText(rest)));
  }
  if (words.target.empty()) return "is counted";
  if (words.target == "MARK") return MarkAction(words);
  if (words.target == "DNAT") {
    return absl::StrCat("is sent to ", words.TargetArgument("--to-destination"), " instead");
  }
  if (words.target == "SNAT") {
    return absl::StrCat("gets the source ", words.TargetArgument("--to-source"));
  }
  for (const TargetText& row : kTargets) {
    if (row.target == words.target) return std::string(row.text);
  }
  // A chain's name, or a target that nobody here knows.
  return absl::StrCat("goes to ", words.target, words.target_arguments.empty() ? "" : " ",
                      words.target_arguments);
}

std::string PacketText(const RuleWords& words) {
  const std::string condition = ConditionText(words);
  const std::string kind = !words.protocol ? "packet"
                                           : absl::StrCat(words.protocol.negated ? "non-" : "",
                                                          words.protocol.text, " packet");
  if (condition.empty()) return absl::StrCat("every ", kind);
  return absl::StrCat("a ", kind, " ", condition);
}

std::string RuleSentence(const RuleWords& words) {
  return absl::StrCat(PacketText(words), " ", ActionText(words));
}

}  // namespace kipt::agent
