// SPDX-License-Identifier: Apache-2.0
#include "netlink/reach.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace kipt::netlink {
namespace {

ChainId Sibling(const ChainId& chain, const std::string& name) {
  return {.family = chain.family, .table = chain.table, .name = name};
}

bool IsGoto(const ObservedRule& rule) {
  const OpaqueRule* opaque = rule.opaque();
  return opaque != nullptr && opaque->jump && opaque->terminal;
}

bool IsAsked(absl::Span<const ChainQuery> queries, const ChainId& chain, bool with_rules) {
  return std::any_of(queries.begin(), queries.end(), [&](const ChainQuery& query) {
    return query.with_rules == with_rules && query.chain == chain;
  });
}

// How many of the rules of `query`'s chain are on the way to another chain that is asked for.
size_t LengthOfWay(const ChainQuery& query, const ObservedChain& chain,
                   absl::Span<const ChainQuery> queries) {
  // In a chain of no base chain's name any rule may be the one that matters.
  if (!IsBaseChain(query.chain)) return chain.rules.size();
  for (size_t length = chain.rules.size(); length > 0; --length) {
    const ObservedRule& rule = chain.rules[length - 1];
    const std::string* jump = JumpTarget(rule);
    if (jump != nullptr && IsPerhapsUnconditional(rule) &&
        IsAsked(queries, Sibling(query.chain, *jump), /*with_rules=*/true)) {
      return length;
    }
  }
  // The way may lead through chains that the query does not name.
  return chain.rules.size();
}

}  // namespace

bool Walk::TakesAll(const ObservedRule& rule, Doubt doubt) {
  return doubt == Doubt::kStops ? IsPerhapsUnconditional(rule) : IsUnconditional(rule);
}

bool Walk::Ends(const ObservedRule& rule, Doubt doubt) {
  return doubt == Doubt::kStops ? IsPerhapsUnconditionalTerminal(rule)
                                : IsUnconditionalTerminal(rule);
}

std::set<ChainId> ChainsOnTheWay(const std::map<ChainId, ObservedChain>& chains,
                                 absl::Span<const ChainQuery> queries,
                                 const std::set<ChainId>& read) {
  std::set<ChainId> seen;
  std::set<ChainId> missing;
  std::vector<ChainId> ahead;
  const auto check = [&](const ChainId& id, absl::Span<const ObservedRule> rules) {
    for (const ObservedRule& rule : rules) {
      const std::string* jump = JumpTarget(rule);
      if (!IsPerhapsUnconditional(rule)) continue;
      if (jump != nullptr) {
        const ChainId next = Sibling(id, *jump);
        // Never the rules of a chain that is asked for without them: they may be tens of thousands.
        const bool excluded = IsAsked(queries, next, /*with_rules=*/false);
        if (!excluded && seen.insert(next).second) ahead.push_back(next);
      }
      if (IsUnconditionalTerminal(rule)) return;
    }
  };
  for (const ChainQuery& query : queries) {
    const auto chain = chains.find(query.chain);
    if (!query.follow || chain == chains.end()) continue;
    const size_t length = LengthOfWay(query, chain->second, queries);
    check(query.chain, absl::MakeConstSpan(chain->second.rules).first(length));
  }
  while (!ahead.empty()) {
    const ChainId id = ahead.back();
    ahead.pop_back();
    const auto chain = chains.find(id);
    if (read.count(id) == 0) {
      missing.insert(id);
    } else if (chain != chains.end()) {
      check(id, chain->second.rules);
    }
  }
  return missing;
}

bool Walk::Stops(const ChainId& chain, const ObservedRule& rule, Doubt doubt) {
  if (Ends(rule, doubt)) return true;
  const std::string* jump = JumpTarget(rule);
  return jump != nullptr && TakesAll(rule, doubt) &&
         KeepsEveryPacket(Sibling(chain, *jump), doubt, 0);
}

bool Walk::KeepsEveryPacket(const ChainId& id, Doubt doubt, int depth) {
  const auto [known, is_new] = keeps_.emplace(std::pair(id, doubt), false);
  const ObservedChain* chain = snapshot_.Find(id);
  if (!is_new || chain == nullptr || depth > kDeepestJump) return known->second;
  for (const ObservedRule& rule : chain->rules) {
    // Some packets come back.
    if (Returns(rule)) return false;
    const std::string* jump = JumpTarget(rule);
    const bool kept = jump != nullptr && KeepsEveryPacket(Sibling(id, *jump), doubt, depth + 1);
    // What comes back from there comes back from here, too.
    if (IsGoto(rule) && !kept) return false;
    if (!TakesAll(rule, doubt)) continue;
    if (kept || (jump == nullptr && Ends(rule, doubt))) return known->second = true;
  }
  return false;
}

bool Walk::Drops(const ChainId& chain, const ObservedRule& rule, bool unheard, int depth) {
  if (!IsUnconditional(rule) || depth > kDeepestJump) return false;
  if (DropsMatches(rule)) return true;
  if (unheard && rule.opaque() != nullptr && rule.opaque()->queues) return true;
  const std::string* jump = JumpTarget(rule);
  const ObservedChain* next = jump != nullptr ? snapshot_.Find(Sibling(chain, *jump)) : nullptr;
  if (next == nullptr) return false;
  for (const ObservedRule& each : next->rules) {
    if (Drops(Sibling(chain, *jump), each, unheard, depth + 1)) return true;
    // It may let some packets get away.
    if (!DropsMatches(each) && (JumpTarget(each) != nullptr || IsPerhapsTerminal(each)))
      return false;
  }
  return false;
}

bool Walk::Leads(const ChainId& from, const ChainId& to) {
  std::set<ChainId> seen;
  return Leads(from, to, 0, seen);
}

bool Walk::Leads(const ChainId& from, const ChainId& to, int depth, std::set<ChainId>& seen) {
  const ObservedChain* chain = snapshot_.Find(from);
  if (chain == nullptr || depth > kDeepestJump || !seen.insert(from).second) return false;
  for (const ObservedRule& rule : chain->rules) {
    const std::string* jump = JumpTarget(rule);
    if (jump != nullptr && IsUnconditional(rule)) {
      const ChainId next = Sibling(from, *jump);
      if (next == to || Leads(next, to, depth + 1, seen)) return true;
    }
    if (Stops(from, rule)) return false;
  }
  return false;
}

}  // namespace kipt::netlink
