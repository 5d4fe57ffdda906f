// SPDX-License-Identifier: Apache-2.0
//
// Random rulesets of the model through both real backends, and a random change of each: both accept
// it, and then all sources agree (two_backends.h).
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "netlink/transaction.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"
#include "tests/fuzz/two_backends.h"
#include "tests/support/netns.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

constexpr size_t kMostRules = 40;
constexpr size_t kMostChanges = 12;

// In a namespace of this process' own, for all its life: opening costs more than emptying.
TwoBackends& Both() {
  static const std::unique_ptr<TwoBackends> both = [] {
    KIPT_REQUIRE(Netns::MoveToNew().ok());
    absl::StatusOr<std::unique_ptr<TwoBackends>> opened = TwoBackends::Open();
    KIPT_REQUIRE(opened.ok());
    return *std::move(opened);
  }();
  return *both;
}

// Bytes as choices; zeros when they are used up. (libFuzzer's own FuzzedDataProvider is a header of
// clang's, and the tests are compiled by g++, too.)
class Choices {
 public:
  explicit Choices(FuzzBytes bytes) : bytes_(bytes) {}

  bool done() const { return bytes_.empty(); }
  uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_.front();
    bytes_.remove_prefix(1);
    return byte;
  }
  uint32_t Word() {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word = word << 8 | Byte();
    return word;
  }
  // 0 to `count` - 1.
  size_t Below(size_t count) { return count == 0 ? 0 : Byte() % count; }
  bool Flag() { return (Byte() & 1) != 0; }

 private:
  FuzzBytes bytes_;
};

// Only the last two may masquerade: POSTROUTING leads to them, and no other built-in chain.
constexpr absl::string_view kUserChains[] = {"KUBE-A", "KUBE-B", "a-chain-with.28-bytes_in_it",
                                             "z"};
constexpr absl::string_view kMasqueradeChains[] = {"zz-MASQ", "zzz"};

constexpr absl::string_view kBaseChains[] = {"PREROUTING", "INPUT", "FORWARD", "OUTPUT",
                                             "POSTROUTING"};

std::vector<absl::string_view> ChainNames(Table table) {
  std::vector<absl::string_view> names;
  std::copy_if(std::begin(kBaseChains), std::end(kBaseChains), std::back_inserter(names),
               [&](absl::string_view name) { return FindBaseChain(table, name) != nullptr; });
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
PrefixMatch RandomPrefix(Family family, Choices& choices) {
  const uint8_t bits = family == Family::kIPv4 ? 32 : 128;
  PrefixMatch match;
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
  static constexpr uint16_t kStates[] = {kCtInvalid, kCtEstablished, kCtRelated,  kCtNew,
                                         kCtSnat,    kCtDnat,        kCtUntracked};
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

// Jumps go to user chains that come after it by name, so there is no loop, and every MASQUERADE is
// where only POSTROUTING leads to.
std::vector<ChainId> JumpTargets(const ChainId& chain) {
  const bool base = IsBaseChain(chain);
  std::vector<ChainId> targets;
  const auto add = [&](absl::string_view name) {
    const bool later = base || std::string(name) > chain.name;
    if (later) targets.push_back({chain.family, chain.table, std::string(name)});
  };
  if (!IsMasqueradeChain(chain)) {
    for (const absl::string_view name : kUserChains) add(name);
  }
  if (MayMasquerade(chain)) {
    for (const absl::string_view name : kMasqueradeChains) add(name);
  }
  return targets;
}

Target RandomTarget(const ChainId& chain, Choices& choices) {
  const std::vector<ChainId> targets = JumpTargets(chain);
  switch (choices.Below(5)) {
    case 0:
      // Of nat and old iptables: "The "nat" table is not intended for filtering".
      if (chain.table == Table::kNat) return Return{};
      return Drop{};
    case 1:
      if (!targets.empty()) return Jump{targets[choices.Below(targets.size())].name};
      return Return{};
    case 2: {
      const uint32_t mask = RandomMask(choices);
      return SetMark{.value = choices.Flag() ? mask : choices.Word(), .mask = mask};
    }
    case 3:
      if (MayMasquerade(chain)) return Masquerade{.random_fully = choices.Flag()};
      return Return{};
    default:
      return Return{};
  }
}

Rule RandomRule(const ChainId& chain, Choices& choices) {
  Rule rule;
  const uint8_t matches = choices.Byte();
  if ((matches & 1) != 0) rule.source = RandomPrefix(chain.family, choices);
  if ((matches & 2) != 0) rule.destination = RandomPrefix(chain.family, choices);
  if ((matches & 4) != 0) rule.comment = RandomComment(choices);
  if ((matches & 8) != 0) {
    const uint32_t mask = RandomMask(choices);
    rule.mark = MarkMatch{.value = choices.Flag() ? mask : choices.Word() & mask,
                          .mask = mask,
                          .negated = choices.Flag()};
  }
  if ((matches & 16) != 0) {
    rule.ct_state = CtStateMatch{.states = RandomStates(choices), .negated = choices.Flag()};
  }
  if ((matches & 32) != 0) {
    rule.conn_label =
        ConnLabelMatch{.label = static_cast<uint8_t>(choices.Below(kMostConnLabel + 1)),
                       .set = choices.Flag(),
                       .negated = choices.Flag()};
  }
  const bool only_sets = rule.conn_label && rule.conn_label->set && choices.Flag();
  rule.target = only_sets ? NoTarget{} : RandomTarget(chain, choices);
  return rule;
}

// A chain of those that rulesets are made of: the built-in ones, and user chains of every table.
ChainId RandomChain(Choices& choices) {
  const Family family = choices.Flag() ? Family::kIPv4 : Family::kIPv6;
  const Table table = kTables[choices.Below(kTables.size())];
  const std::vector<absl::string_view> names = ChainNames(table);
  return {family, table, std::string(names[choices.Below(names.size())])};
}

std::vector<Operation> RandomRuleset(Choices& choices) {
  std::set<ChainId> chains;
  std::vector<Operation> rules;
  while (!choices.done() && rules.size() < kMostRules) {
    const ChainId chain = RandomChain(choices);
    chains.insert(chain);
    for (const ChainId& target : JumpTargets(chain)) chains.insert(target);
    for (size_t count = choices.Below(4); count > 0; --count) {
      rules.emplace_back(AddRule{.chain = chain, .rule = RandomRule(chain, choices)});
    }
    if (choices.Below(8) == 0) break;
  }
  std::vector<Operation> operations;
  for (const ChainId& chain : chains) operations.emplace_back(CreateChain{chain});
  operations.insert(operations.end(), rules.begin(), rules.end());
  return operations;
}

// Chains of the model that are empty and that nothing jumps to, and that `operations` does not
// touch.
std::set<ChainId> Removable(const Snapshot& model, const std::vector<Operation>& operations) {
  std::set<ChainId> removable;
  for (const auto& [id, chain] : model.chains) {
    if (!IsBaseChain(id) && chain.rules.empty()) removable.insert(id);
  }
  const auto keep = [&](const ChainId& chain, const ObservedRule& rule) {
    removable.erase(chain);
    const std::string* jump = JumpTarget(rule);
    if (jump != nullptr) removable.erase({chain.family, chain.table, *jump});
  };
  for (const auto& [id, chain] : model.chains) {
    for (const ObservedRule& rule : chain.rules) keep(id, rule);
  }
  for (const Operation& operation : operations) {
    const auto* add = std::get_if<AddRule>(&operation);
    if (add != nullptr) keep(add->chain, {.content = add->rule});
  }
  return removable;
}

// Deletes rules, inserts rules before and after others, makes and removes chains.
std::vector<Operation> RandomChange(const Snapshot& model, Choices& choices) {
  std::set<ChainId> made;
  std::vector<Operation> changes;
  std::set<RuleHandle> taken;
  for (size_t count = choices.Below(kMostChanges) + 1; count > 0; --count) {
    auto chain = model.chains.begin();
    std::advance(chain, static_cast<ptrdiff_t>(choices.Below(model.chains.size())));
    const auto& [id, content] = *chain;
    const size_t place = choices.Below(content.rules.size());
    // The backend that uses numbers corrects this one (restore_plan.cc).
    const int number = static_cast<int>(place) + 1;
    const ObservedRule* present = content.rules.empty() ? nullptr : &content.rules[place];
    if (present != nullptr && taken.count(present->handle) != 0) present = nullptr;
    if (choices.Flag() && present != nullptr) {
      changes.emplace_back(DeleteRule{id, present->handle, number, *present->rule()});
      taken.insert(present->handle);
      continue;
    }
    for (const ChainId& target : JumpTargets(id)) made.insert(target);
    AddRule add{.chain = id, .rule = RandomRule(id, choices)};
    if (present != nullptr) add.before = present->handle;
    if (present != nullptr) add.number = number;
    changes.emplace_back(add);
  }
  std::vector<Operation> all;
  for (const ChainId& chain : made) all.emplace_back(CreateChain{chain});
  all.insert(all.end(), changes.begin(), changes.end());
  for (const ChainId& chain : Removable(model, changes)) {
    if (made.count(chain) == 0 && choices.Flag()) all.emplace_back(DeleteChain{chain});
  }
  return all;
}

void ApplyAndCompare(const std::vector<Operation>& operations) {
  const absl::Status status = Both().Apply(operations);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  KIPT_REQUIRE(status.ok());
  const absl::StatusOr<std::string> disagreement = Both().Disagreement();
  KIPT_REQUIRE(disagreement.ok());
  if (!disagreement->empty()) std::fprintf(stderr, "%s\n", disagreement->c_str());
  KIPT_REQUIRE(disagreement->empty());
}

}  // namespace

void FuzzBackends(FuzzBytes input) {
  Choices choices(input);
  KIPT_REQUIRE(Both().Flush().ok());
  const std::vector<Operation> ruleset = RandomRuleset(choices);
  if (ruleset.empty()) return;
  ApplyAndCompare(ruleset);
  if (choices.done()) return;
  ApplyAndCompare(RandomChange(Both().model(), choices));
}

}  // namespace kipt::testing
