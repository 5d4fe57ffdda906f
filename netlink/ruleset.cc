// SPDX-License-Identifier: Apache-2.0
#include "netlink/ruleset.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstddef>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "netlink/nf_tables.h"

namespace kipt::netlink {
namespace {

constexpr BaseChain kBaseChains[] = {
    {Table::kFilter, "INPUT", NF_INET_LOCAL_IN, 0, "filter"},
    {Table::kFilter, "FORWARD", NF_INET_FORWARD, 0, "filter"},
    {Table::kFilter, "OUTPUT", NF_INET_LOCAL_OUT, 0, "filter"},
    {Table::kNat, "PREROUTING", NF_INET_PRE_ROUTING, -100, "nat"},
    {Table::kNat, "INPUT", NF_INET_LOCAL_IN, 100, "nat"},
    {Table::kNat, "OUTPUT", NF_INET_LOCAL_OUT, -100, "nat"},
    {Table::kNat, "POSTROUTING", NF_INET_POST_ROUTING, 100, "nat"},
    {Table::kMangle, "PREROUTING", NF_INET_PRE_ROUTING, -150, "filter"},
    {Table::kMangle, "INPUT", NF_INET_LOCAL_IN, -150, "filter"},
    {Table::kMangle, "FORWARD", NF_INET_FORWARD, -150, "filter"},
    // "route": a changed mark makes the kernel route the packet again.
    {Table::kMangle, "OUTPUT", NF_INET_LOCAL_OUT, -150, "route"},
    {Table::kMangle, "POSTROUTING", NF_INET_POST_ROUTING, -150, "filter"},
};

int AddressFamily(Family family) { return family == Family::kIPv4 ? AF_INET : AF_INET6; }

unsigned AddressBits(Family family) { return family == Family::kIPv4 ? 32 : 128; }

// A prefix of no bits matches everything: iptables-save does not print it unless it is negated.
bool Restricts(const std::optional<PrefixMatch>& match) {
  return match.has_value() && (match->negated || match->prefix.length != 0);
}

std::string OptionText(absl::string_view option, bool negated, absl::string_view value) {
  return absl::StrCat(negated ? "! " : "", option, " ", value);
}

// In the order of libxt_conntrack's printing, which is neither that of the bits nor of the
// argument.
std::string CtStatesText(uint16_t states) {
  static constexpr std::pair<uint16_t, const char*> kNames[] = {{kCtInvalid, "INVALID"},
                                                                {kCtNew, "NEW"},
                                                                {kCtRelated, "RELATED"},
                                                                {kCtEstablished, "ESTABLISHED"},
                                                                {kCtUntracked, "UNTRACKED"},
                                                                {kCtSnat, "SNAT"},
                                                                {kCtDnat, "DNAT"}};
  std::vector<const char*> present;
  for (const auto& [bit, name] : kNames) {
    if ((states & bit) != 0) present.push_back(name);
  }
  return absl::StrJoin(present, ",");
}

std::string Hex(uint32_t value) { return absl::StrCat("0x", absl::Hex(value)); }

struct TargetText {
  std::string operator()(const Drop&) const { return "DROP"; }
  std::string operator()(const Return&) const { return "RETURN"; }
  std::string operator()(const Jump& jump) const { return jump.chain; }
  std::string operator()(const SetMark& mark) const {
    return absl::StrCat("MARK --set-xmark ", Hex(mark.value), "/", Hex(mark.mask));
  }
  std::string operator()(const Masquerade& masquerade) const {
    return masquerade.random_fully ? "MASQUERADE --random-fully" : "MASQUERADE";
  }
  std::string operator()(const NoTarget&) const { return ""; }
};

}  // namespace

absl::string_view FamilyName(Family family) { return family == Family::kIPv4 ? "ip" : "ip6"; }

absl::string_view TableName(Table table) {
  constexpr absl::string_view kNames[] = {"mangle", "nat", "filter"};
  return kNames[static_cast<size_t>(table)];
}

std::optional<Table> FindTable(absl::string_view name) {
  for (const Table table : kTables) {
    if (TableName(table) == name) return table;
  }
  return std::nullopt;
}

const BaseChain* FindBaseChain(Table table, absl::string_view name) {
  for (const BaseChain& chain : kBaseChains) {
    if (chain.table == table && name == chain.name) return &chain;
  }
  return nullptr;
}

std::string ToString(const ChainId& chain) {
  return absl::StrCat(FamilyName(chain.family), " ", TableName(chain.table), " ", chain.name);
}

absl::StatusOr<Prefix> ParsePrefix(Family family, absl::string_view text) {
  const auto invalid = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not an ", FamilyName(family), " prefix"));
  };
  const size_t slash = text.find('/');
  uint32_t length = AddressBits(family);
  if (slash != absl::string_view::npos) {
    const absl::string_view digits = text.substr(slash + 1);
    // SimpleAtoi alone would take "+8" and " 8".
    if (!std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) ||
        !absl::SimpleAtoi(digits, &length) || length > AddressBits(family)) {
      return invalid();
    }
  }
  const std::string address(text.substr(0, slash));
  Prefix prefix;
  // inet_pton would stop at an embedded NUL.
  if (address.find('\0') != std::string::npos ||
      inet_pton(AddressFamily(family), address.c_str(), prefix.address.data()) != 1) {
    return invalid();
  }
  prefix.length = static_cast<uint8_t>(length);
  const std::array<uint8_t, 16> mask = PrefixMask(prefix.length);
  absl::c_transform(prefix.address, mask, prefix.address.begin(), std::bit_and<uint8_t>());
  return prefix;
}

std::array<uint8_t, 16> PrefixMask(uint8_t length) {
  std::array<uint8_t, 16> mask = {};
  for (unsigned bit = 0; bit < length; ++bit) {
    mask[bit / 8] = static_cast<uint8_t>(mask[bit / 8] | (0x80U >> (bit % 8)));
  }
  return mask;
}

std::string ToString(Family family, const Prefix& prefix) {
  char address[INET6_ADDRSTRLEN] = {};
  inet_ntop(AddressFamily(family), prefix.address.data(), address, sizeof(address));
  return absl::StrCat(address, "/", static_cast<unsigned>(prefix.length));
}

bool IsUnconditional(const Rule& rule) {
  // A mask of no bits finds 0 in every mark.
  const bool any_mark =
      !rule.mark || (rule.mark->mask == 0 && (rule.mark->value == 0) != rule.mark->negated);
  return !Restricts(rule.source) && !Restricts(rule.destination) && any_mark && !rule.ct_state &&
         !rule.conn_label;
}

bool IsTerminal(const Target& target) {
  return !std::holds_alternative<Jump>(target) && !std::holds_alternative<SetMark>(target) &&
         !std::holds_alternative<NoTarget>(target);
}

absl::Status CheckConnLabel(const Rule& rule) {
  if (rule.conn_label && rule.conn_label->label > kMostConnLabel) {
    return absl::InvalidArgumentError(
        absl::StrCat("a connection's label is between 0 and ", kMostConnLabel));
  }
  const bool sets_label = rule.conn_label && rule.conn_label->set;
  if (std::holds_alternative<NoTarget>(rule.target) && !sets_label) {
    return absl::InvalidArgumentError("a rule without a target that sets no label either");
  }
  return absl::OkStatus();
}

std::string ToString(Family family, const Rule& rule) {
  std::vector<std::string> words;
  const auto address = [&](const char* option, const std::optional<PrefixMatch>& match) {
    if (!Restricts(match)) return;
    words.push_back(OptionText(option, match->negated, ToString(family, match->prefix)));
  };
  address("-s", rule.source);
  address("-d", rule.destination);
  if (!rule.comment.empty()) {
    words.push_back(absl::StrCat("-m comment --comment ", QuoteForSave(rule.comment)));
  }
  if (rule.mark) {
    std::string value = Hex(rule.mark->value);
    if (rule.mark->mask != kAllMarks) absl::StrAppend(&value, "/", Hex(rule.mark->mask));
    words.push_back(absl::StrCat("-m mark ", OptionText("--mark", rule.mark->negated, value)));
  }
  if (rule.ct_state) {
    words.push_back(absl::StrCat("-m conntrack ", OptionText("--ctstate", rule.ct_state->negated,
                                                             CtStatesText(rule.ct_state->states))));
  }
  if (rule.conn_label) {
    // iptables quotes the number, for it may be a name (connlabel.conf).
    words.push_back(absl::StrCat("-m connlabel ",
                                 OptionText("--label", rule.conn_label->negated,
                                            absl::StrCat("\"", rule.conn_label->label, "\"")),
                                 rule.conn_label->set ? " --set" : ""));
  }
  if (!std::holds_alternative<NoTarget>(rule.target)) {
    words.push_back(absl::StrCat("-j ", std::visit(TargetText{}, rule.target)));
  }
  return absl::StrJoin(words, " ");
}

std::string ToString(Family family, const ObservedRule& rule) {
  return rule.rule() != nullptr ? ToString(family, *rule.rule()) : rule.opaque()->text;
}

bool IsUnconditional(const ObservedRule& rule) {
  return rule.opaque() != nullptr ? rule.opaque()->unconditional : IsUnconditional(*rule.rule());
}

bool IsTerminal(const ObservedRule& rule) {
  return rule.opaque() != nullptr ? rule.opaque()->terminal : IsTerminal(rule.rule()->target);
}

bool Returns(const ObservedRule& rule) {
  if (rule.opaque() != nullptr) return rule.opaque()->returns;
  return std::holds_alternative<Return>(rule.rule()->target);
}

bool DropsMatches(const ObservedRule& rule) {
  if (rule.opaque() != nullptr) return rule.opaque()->drops;
  return std::holds_alternative<Drop>(rule.rule()->target);
}

bool MayDecide(const ObservedRule& rule) {
  if (rule.opaque() != nullptr) return rule.opaque()->decides;
  return !std::holds_alternative<NoTarget>(rule.rule()->target);
}

bool IsUnconditionalTerminal(const ObservedRule& rule) {
  return IsUnconditional(rule) && IsTerminal(rule);
}

bool IsPerhapsUnconditional(const ObservedRule& rule) {
  return IsUnconditional(rule) ||
         (rule.opaque() != nullptr && rule.opaque()->perhaps_unconditional);
}

bool IsPerhapsTerminal(const ObservedRule& rule) {
  return IsTerminal(rule) || (rule.opaque() != nullptr && rule.opaque()->perhaps_terminal);
}

bool IsPerhapsUnconditionalTerminal(const ObservedRule& rule) {
  return IsPerhapsUnconditional(rule) && IsPerhapsTerminal(rule);
}

const Rule& KnownMatches(const ObservedRule& rule) {
  return rule.opaque() != nullptr ? rule.opaque()->known : *rule.rule();
}

std::string TargetName(const ObservedRule& rule) {
  if (rule.opaque() != nullptr) return rule.opaque()->target;
  if (JumpTarget(rule) != nullptr) return "";
  const std::string text = std::visit(TargetText{}, rule.rule()->target);
  return text.substr(0, text.find(' '));
}

const std::string* JumpTarget(const ObservedRule& rule) {
  if (const OpaqueRule* opaque = rule.opaque()) {
    return opaque->jump.has_value() ? &*opaque->jump : nullptr;
  }
  const Jump* jump = std::get_if<Jump>(&rule.rule()->target);
  return jump != nullptr ? &jump->chain : nullptr;
}

Marks& Marks::operator|=(const Marks& other) {
  tested |= other.tested;
  set |= other.set;
  cleared |= other.cleared;
  labels_set |= other.labels_set;
  return *this;
}

Marks MarksOf(const Rule& rule) {
  Marks marks;
  if (rule.mark) marks.tested = rule.mark->mask;
  if (const auto* mark = std::get_if<SetMark>(&rule.target)) {
    marks.set = mark->value;
    marks.cleared = mark->mask ^ mark->value;
  }
  const std::optional<ConnLabelMatch>& match = rule.conn_label;
  // Negated, too: the kernel sets it before it answers.
  if (match && match->set && match->label <= kMostConnLabel) marks.labels_set.set(match->label);
  return marks;
}

Marks MarksOf(const ObservedRule& rule) {
  return rule.opaque() != nullptr ? rule.opaque()->marks : MarksOf(*rule.rule());
}

const ObservedChain* Snapshot::Find(const ChainId& chain) const {
  const auto found = chains.find(chain);
  return found != chains.end() ? &found->second : nullptr;
}

std::string QuoteForSave(absl::string_view text) {
  const auto needs_no_quotes = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), needs_no_quotes)) {
    return std::string(text);
  }
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\' || c == '\'') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace kipt::netlink
