// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/incident.h"

#include <algorithm>
#include <set>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/loop/suspects.h"
#include "agent/policy/chain_diff.h"
#include "featuregates/go_text.h"
#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

using netlink::AddRule;
using netlink::ChainId;
using netlink::CreateChain;
using netlink::DeleteRule;

// Names enough for a log line; the rest is counted.
constexpr size_t kMaxShown = 12;

bool IsBaseChain(const ChainId& chain) {
  return netlink::FindBaseChain(chain.table, chain.name) != nullptr;
}

// The rule that `change` deletes; null where it deletes none.
const netlink::Rule* Deleted(const Change& change) {
  const auto* deletion = std::get_if<DeleteRule>(&change.operation);
  return deletion != nullptr ? &deletion->rule : nullptr;
}

const netlink::Rule* Added(const Change& change) {
  const auto* addition = std::get_if<AddRule>(&change.operation);
  return addition != nullptr ? &addition->rule : nullptr;
}

// Whether one of `changes` adds or deletes, as `which` has it, the same rule in the same chain.
bool SameRule(absl::Span<const Change> changes, const ChainId& chain, const netlink::Rule& rule,
              const netlink::Rule* (*which)(const Change&)) {
  return std::any_of(changes.begin(), changes.end(), [&](const Change& change) {
    const netlink::Rule* other = which(change);
    return other != nullptr && *other == rule && netlink::ChainOf(change.operation) == chain;
  });
}

template <typename Items, typename Format>
std::string JoinShown(const Items& items, Format format) {
  std::vector<std::string> shown;
  for (const auto& item : items) {
    if (shown.size() == kMaxShown) break;
    shown.push_back(format(item));
  }
  if (items.size() > kMaxShown) {
    shown.push_back(absl::StrCat("and ", items.size() - kMaxShown, " more"));
  }
  return absl::StrJoin(shown, ", ");
}

}  // namespace

absl::string_view DamageKindName(DamageKind kind) {
  switch (kind) {
    case DamageKind::kChainMissing:
      return "chain_missing";
    case DamageKind::kJumpMissing:
      return "jump_missing";
    case DamageKind::kRuleMissing:
      return "rule_missing";
    case DamageKind::kRuleMisplaced:
      return "rule_misplaced";
    case DamageKind::kRuleUnwanted:
      return "rule_unwanted";
    case DamageKind::kTableDormant:
      return "table_dormant";
  }
  return "unknown";
}

std::vector<DamagedItem> DamageOf(absl::Span<const Change> changes) {
  std::vector<DamagedItem> damage;
  std::set<ChainId> missing;
  for (const Change& change : changes) {
    const auto* creation = std::get_if<CreateChain>(&change.operation);
    // A base chain comes with the first jump in it; nobody misses it by itself.
    if (creation == nullptr || IsBaseChain(creation->chain)) continue;
    missing.insert(creation->chain);
    damage.push_back(
        {creation->chain, DamageKind::kChainMissing, absl::StrCat(":", creation->chain.name)});
  }
  for (const Change& change : changes) {
    const ChainId& chain = netlink::ChainOf(change.operation);
    if (std::holds_alternative<netlink::WakeTable>(change.operation)) {
      damage.push_back(
          {chain, DamageKind::kTableDormant, absl::StrCat("*", netlink::TableName(chain.table))});
      continue;
    }
    if (missing.count(chain) != 0) continue;
    if (const netlink::Rule* rule = Added(change); rule != nullptr) {
      DamageKind kind = DamageKind::kRuleMissing;
      if (IsBaseChain(chain)) kind = DamageKind::kJumpMissing;
      if (SameRule(changes, chain, *rule, Deleted)) kind = DamageKind::kRuleMisplaced;
      damage.push_back({chain, kind, RuleText(chain, *rule)});
    } else if (rule = Deleted(change); rule != nullptr && !SameRule(changes, chain, *rule, Added)) {
      damage.push_back({chain, DamageKind::kRuleUnwanted, RuleText(chain, *rule)});
    }
  }
  return damage;
}

std::string ToString(const Incident& incident) {
  std::string text =
      absl::StrCat("Repaired in ", absl::ToInt64Microseconds(incident.latency), " us (writing ",
                   absl::ToInt64Microseconds(incident.applying), " us) what was damaged by ",
                   ToString(Suspected{incident.writers, incident.others}), ": ",
                   JoinShown(incident.damage, [](const DamagedItem& item) {
                     return absl::StrCat(netlink::FamilyName(item.chain.family), " ",
                                         netlink::TableName(item.chain.table), " ",
                                         DamageKindName(item.kind), " \"", item.text, "\"");
                   }));
  if (incident.lost_jumps.empty()) return featuregates::Printable(text);
  absl::StrAppend(&text, "; gone with it, and broken until their owners put them back: ",
                  JoinShown(incident.lost_jumps, [](const ForeignJump& jump) {
                    return absl::StrCat(netlink::FamilyName(jump.base_chain.family), " ",
                                        netlink::TableName(jump.base_chain.table), " ",
                                        jump.base_chain.name, " -> ", jump.target);
                  }));
  return featuregates::Printable(text);
}

Incident WithoutCommandLines(Incident incident) {
  for (Writer& writer : incident.writers) writer.command_line.clear();
  return incident;
}

}  // namespace kipt::agent
