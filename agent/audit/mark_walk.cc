// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/mark_walk.h"

#include <linux/netfilter.h>

#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/audit/mark_path.h"

namespace kipt::agent {
namespace {

using netlink::SurveyChain;
using netlink::SurveyChains;
using netlink::SurveyRule;

// The priority of iptables' nat PREROUTING, where packets to this node are marked.
constexpr int32_t kMarkingPriority = -100;

// Packets that are masqueraded are those that leave. A drop by the mark comes after the mark.
bool ComesAfterMarking(const std::string& name, const SurveyChain& chain, MarkAction action) {
  if (!chain.base) return false;
  // Where the hook is not known, iptables gave the chain its name.
  if (action == MarkAction::kMasquerade) {
    return chain.hook ? chain.hook->hook == NF_INET_POST_ROUTING : name == "POSTROUTING";
  }
  if (!chain.hook) return name == "INPUT";
  return chain.hook->hook == NF_INET_LOCAL_IN ||
         (chain.hook->hook == NF_INET_PRE_ROUTING && chain.hook->priority > kMarkingPriority);
}

// How a rule's match of the mark decides for packets with the bits.
enum class MarkTest : uint8_t { kNone, kMatches, kMisses, kUnknown };

MarkTest TestOf(const SurveyRule& rule, uint32_t bits) {
  if ((MarksTested(rule) & bits) == 0) return MarkTest::kNone;
  const std::optional<netlink::MarkMatch>& mark = KnownMatches(rule).mark;
  if (!mark || (mark->mask & bits) == 0) return MarkTest::kUnknown;
  const bool differs = (bits & mark->mask) != (mark->value & bits);
  if (differs) return mark->negated ? MarkTest::kMatches : MarkTest::kMisses;
  if ((mark->mask & ~bits) != 0) return MarkTest::kUnknown;
  return mark->negated ? MarkTest::kMisses : MarkTest::kMatches;
}

class MarkWalk {
 public:
  MarkWalk(const SurveyChains& chains, uint32_t bits, MarkAction action)
      : chains_(chains), bits_(bits), action_(action) {}

  // `tested`: only packets with the mark get to `name`. Whether some of them return from it. Each
  // chain is walked once for each value, however many paths lead to it.
  bool Through(const std::string& name, bool tested, int depth = 0) {
    const auto chain = chains_.find(name);
    if (chain == chains_.end() || depth > netlink::kDeepestJump) return true;
    const auto [known, is_new] = returns_.try_emplace({name, tested}, true);
    if (is_new) known->second = ThroughRules(*chain, tested, depth);
    return known->second;
  }

  const std::set<std::string>& acting() const { return acting_; }

 private:
  bool ThroughRules(const SurveyChains::value_type& chain, bool tested, int depth) {
    bool some_left = false;  // whatever they bear
    for (const SurveyRule& rule : chain.second.rules) {
      const MarkTest test = TestOf(rule, bits_);
      if (test == MarkTest::kMisses) {
        // From here on there are only packets with the mark.
        tested |= IsTerminal(rule) && TestsMarkAlone(rule);
        continue;
      }
      const bool all =
          IsUnconditional(rule) || (test == MarkTest::kMatches && TestsMarkAlone(rule));
      const bool by_mark = tested || test != MarkTest::kNone;
      const bool acts = IsMarkAction(rule, action_ == MarkAction::kMasquerade);
      if (acts && (by_mark || (all && !some_left))) acting_.insert(chain.first);
      some_left |= !all && !acts && test == MarkTest::kNone && IsPerhapsTerminal(rule);
      const std::string* jump = JumpTarget(rule);
      const bool returns = jump == nullptr || Through(*jump, by_mark, depth + 1);
      if (!all) continue;
      if (TargetName(rule) == "RETURN") return true;
      if (!returns || (jump == nullptr && IsTerminal(rule))) return false;
    }
    return true;
  }

  const SurveyChains& chains_;
  const uint32_t bits_;
  const MarkAction action_;
  std::map<std::pair<std::string, bool>, bool> returns_;
  std::set<std::string> acting_;
};

}  // namespace

std::string ToString(const MarkActor& actor, absl::string_view mode) {
  return absl::StrCat("chain ", actor.chain, " of ",
                      actor.iptables_mode == mode ? "" : absl::StrCat(actor.iptables_mode, " "),
                      "table ", netlink::ToString(actor.table));
}

std::vector<MarkActor> WhatActsOn(absl::Span<const netlink::Survey> surveys, netlink::Family family,
                                  uint32_t bits, MarkAction action) {
  std::vector<MarkActor> actors;
  for (const netlink::Survey& survey : surveys) {
    for (const auto& [table, chains] : survey.tables) {
      if (!PassesFamily(table, family)) continue;
      MarkWalk walk(chains, bits, action);
      for (const auto& [name, chain] : chains) {
        if (ComesAfterMarking(name, chain, action)) walk.Through(name, /*tested=*/false);
      }
      for (const std::string& name : walk.acting()) actors.push_back({survey.mode, table, name});
    }
  }
  return actors;
}

}  // namespace kipt::agent
