// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/random_rules.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/string_view.h"

namespace kipt::testing {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::Rule;
using netlink::Table;

// Only the last two may masquerade: POSTROUTING leads to them, and no other built-in chain.
constexpr absl::string_view kUserChains[] = {"KUBE-A", "KUBE-B", "a-chain-with.28-bytes_in_it",
                                             "z"};
constexpr absl::string_view kMasqueradeChains[] = {"zz-MASQ", "zzz"};

constexpr absl::string_view kBaseChains[] = {"PREROUTING", "INPUT", "FORWARD", "OUTPUT",
                                             "POSTROUTING"};

std::vector<absl::string_view> ChainNames(Table table) {
  std::vector<absl::string_view> names;
  std::copy_if(
      std::begin(kBaseChains), std::end(kBaseChains), std::back_inserter(names),
      [&](absl::string_view name) { return netlink::FindBaseChain(table, name) != nullptr; });
  names.insert(names.end(), std::begin(kUserChains), std::end(kUserChains));
  names.insert(names.end(), std::begin(kMasqueradeChains), std::end(kMasqueradeChains));
  return names;
}

bool IsMasqueradeChain(const ChainId& chain) {
  return chain.table == Table::kNat &&
         std::find(std::begin(kMasqueradeChains), std::end(kMasqueradeChains), chain.name) !=
             std::end(kMasqueradeChains);
}

bool MayMasquerade(const ChainId& chain) {
  return IsMasqueradeChain(chain) || (chain.table == Table::kNat && chain.name == "POSTROUTING");
}

// Of the full length as often as not.
netlink::PrefixMatch RandomPrefix(Family family, Choices& choices) {
  const uint8_t bits = family == Family::kIPv4 ? 32 : 128;
  netlink::PrefixMatch match;
  match.negated = choices.Flag();
  // 1 at least: 0.0.0.0/0 is no condition, which iptables does not print and no rule of ours has.
  match.prefix.length = choices.Flag() ? bits : static_cast<uint8_t>(1 + choices.Below(bits));
  for (size_t i = 0; i < bits / 8U; ++i) match.prefix.address[i] = choices.Byte();
  for (size_t bit = match.prefix.length; bit < bits; ++bit) {
    uint8_t& byte = match.prefix.address[bit / 8];
    byte = static_cast<uint8_t>(byte & ~(0x80U >> (bit % 8)));
  }
  return match;
}

// Printable, and what a shell or a parser might stumble over. No control characters: a newline is
// what iptables-restore has no words for (agent/xtables/restore_plan.cc), and refuses, where
// netlink does not.
std::string RandomComment(Choices& choices) {
  static constexpr absl::string_view kWords[] = {"kubernetes", " ",  "\"", "'",  "\\", "-j DROP",
                                                 "#",          "%s", "ü",  "--", "!",  "$(x)"};
  std::string comment;
  for (size_t words = choices.Below(8); words > 0; --words) {
    const absl::string_view word = kWords[choices.Below(std::size(kWords))];
    comment.append(word.data(), word.size());
  }
  if (choices.Below(16) == 0) comment.append(255 - comment.size(), 'x');
  return comment;
}

uint16_t RandomStates(Choices& choices) {
  static constexpr uint16_t kStates[] = {
      netlink::kCtInvalid, netlink::kCtEstablished, netlink::kCtRelated,  netlink::kCtNew,
      netlink::kCtSnat,    netlink::kCtDnat,        netlink::kCtUntracked};
  uint16_t states = kStates[choices.Below(std::size(kStates))];
  const uint8_t more = choices.Byte();
  for (size_t i = 0; i < std::size(kStates); ++i) {
    if ((more >> i & 1) != 0) states = static_cast<uint16_t>(states | kStates[i]);
  }
  return states;
}

uint32_t RandomMask(Choices& choices) {
  switch (choices.Below(4)) {
    case 0:
      return 0xffffffff;
    case 1:
      return choices.Word();
    default:
      return uint32_t{1} << choices.Below(32);
  }
}

netlink::Target RandomTarget(const ChainId& chain, Choices& choices) {
  const std::vector<ChainId> targets = JumpTargets(chain);
  switch (choices.Below(5)) {
    case 0:
      // Of nat and old iptables: "The "nat" table is not intended for filtering".
      if (chain.table == Table::kNat) return netlink::Return{};
      return netlink::Drop{};
    case 1:
      if (!targets.empty()) return netlink::Jump{targets[choices.Below(targets.size())].name};
      return netlink::Return{};
    case 2: {
      const uint32_t mask = RandomMask(choices);
      return netlink::SetMark{.value = choices.Flag() ? mask : choices.Word(), .mask = mask};
    }
    case 3:
      if (MayMasquerade(chain)) return netlink::Masquerade{.random_fully = choices.Flag()};
      return netlink::Return{};
    default:
      return netlink::Return{};
  }
}

}  // namespace

uint8_t Choices::Byte() {
  if (bytes_.empty()) return 0;
  const uint8_t byte = bytes_.front();
  bytes_.remove_prefix(1);
  return byte;
}

uint32_t Choices::Word() {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word = word << 8 | Byte();
  return word;
}

std::vector<ChainId> AllChains() {
  std::vector<ChainId> chains;
  for (const Family family : netlink::kFamilies) {
    for (const Table table : netlink::kTables) {
      for (const absl::string_view name : ChainNames(table)) {
        chains.push_back({family, table, std::string(name)});
      }
    }
  }
  return chains;
}

ChainId RandomChain(Choices& choices) {
  const Family family = choices.Flag() ? Family::kIPv4 : Family::kIPv6;
  const Table table = netlink::kTables[choices.Below(netlink::kTables.size())];
  const std::vector<absl::string_view> names = ChainNames(table);
  return {family, table, std::string(names[choices.Below(names.size())])};
}

std::vector<ChainId> JumpTargets(const ChainId& chain) {
  const bool base = netlink::FindBaseChain(chain.table, chain.name) != nullptr;
  std::vector<ChainId> targets;
  const auto add = [&](absl::string_view name) {
    const bool behind = base || std::string(name) > chain.name;
    if (behind) targets.push_back({chain.family, chain.table, std::string(name)});
  };
  if (!IsMasqueradeChain(chain)) {
    for (const absl::string_view name : kUserChains) add(name);
  }
  if (MayMasquerade(chain)) {
    for (const absl::string_view name : kMasqueradeChains) add(name);
  }
  return targets;
}

Rule RandomRule(const ChainId& chain, Choices& choices) {
  Rule rule;
  const uint8_t matches = choices.Byte();
  if ((matches & 1) != 0) rule.source = RandomPrefix(chain.family, choices);
  if ((matches & 2) != 0) rule.destination = RandomPrefix(chain.family, choices);
  if ((matches & 4) != 0) rule.comment = RandomComment(choices);
  if ((matches & 8) != 0) {
    const uint32_t mask = RandomMask(choices);
    rule.mark = netlink::MarkMatch{.value = choices.Flag() ? mask : choices.Word() & mask,
                                   .mask = mask,
                                   .negated = choices.Flag()};
  }
  if ((matches & 16) != 0) {
    rule.ct_state =
        netlink::CtStateMatch{.states = RandomStates(choices), .negated = choices.Flag()};
  }
  if ((matches & 32) != 0) {
    rule.conn_label = netlink::ConnLabelMatch{
        .label = static_cast<uint8_t>(choices.Below(netlink::kMostConnLabel + 1)),
        .set = choices.Flag(),
        .negated = choices.Flag()};
  }
  const bool only_sets = rule.conn_label && rule.conn_label->set && choices.Flag();
  rule.target = only_sets ? netlink::NoTarget{} : RandomTarget(chain, choices);
  return rule;
}

}  // namespace kipt::testing
