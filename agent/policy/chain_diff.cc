// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/chain_diff.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/policy/guards.h"
#include "agent/policy/kubelet_forms.h"

namespace kipt::agent {
namespace {

using netlink::ObservedChain;
using netlink::ObservedRule;
using netlink::RuleHandle;

constexpr size_t kNone = static_cast<size_t>(-1);
constexpr char kDamaged[] = "damaged: it lost its match";

// What is to become of each observed rule, and where each desired one stands.
struct Placement {
  // Per observed rule: why it goes; empty where it stays.
  std::vector<std::string> removal;
  // Per desired rule: the index of the observed rule that is it; kNone where it must be added.
  std::vector<size_t> found;
  // The first rule that stays, is not ours and may decide about a packet; all of ours belong before
  // it. The number of observed rules where there is none.
  size_t first_foreign = 0;

  bool complete() const { return std::find(found.begin(), found.end(), kNone) == found.end(); }
};

size_t DesiredIndex(const DesiredChain& desired, const ObservedRule& observed) {
  for (size_t i = 0; i < desired.rules.size(); ++i) {
    if (observed.rule() != nullptr && *observed.rule() == desired.rules[i].rule) return i;
  }
  return kNone;
}

// Why a form of kubelet's that we do not want goes; empty where it stays: in cleanup mode nothing
// supersedes it (it is stale), and what kube-proxy keeps is kube-proxy's. Another label than ours
// in a chain of labels is superseded in both.
std::string WhySuperseded(const DesiredChain& desired, const ObservedRule& observed,
                          const ChainContext& context) {
  if (observed.rule() == nullptr) return "";
  const std::optional<KubeletForm> form = RecognizeKubeletForm(desired.id, *observed.rule());
  if (!form.has_value() || (context.mode != Mode::kLegacy && !form->label) ||
      (form->shared_with_kube_proxy && context.claimed_by_kube_proxy)) {
    return "";
  }
  return absl::StrCat("superseded: ", form->description);
}

// Behind a rule that only changes the mark ours still sets it; before that rule it would do so in
// vain.
bool MayDecideFirst(const netlink::ChainId& chain, const ObservedRule& observed) {
  const bool only_marks = observed.rule() != nullptr &&
                          std::holds_alternative<netlink::SetMark>(observed.rule()->target);
  return netlink::MayDecide(observed) && !(IsMarkingChain(chain) && only_marks);
}

Placement Place(const DesiredChain& desired, const ObservedChain& observed,
                const std::vector<Damage>& damages, const ChainContext& context) {
  const size_t count = observed.rules.size();
  Placement placement{.removal = std::vector<std::string>(count),
                      .found = std::vector<size_t>(desired.rules.size(), kNone),
                      .first_foreign = count};
  for (const Damage& damage : damages) {
    if (damage.delete_rule) placement.removal[damage.index] = kDamaged;
  }
  for (size_t i = 0; i < count; ++i) {
    if (!placement.removal[i].empty()) continue;
    if (DesiredIndex(desired, observed.rules[i]) != kNone) continue;
    placement.removal[i] = WhySuperseded(desired, observed.rules[i], context);
    if (placement.removal[i].empty() && MayDecideFirst(desired.id, observed.rules[i])) {
      placement.first_foreign = std::min(placement.first_foreign, i);
    }
  }
  // Take each of ours where it stands, the earlier first; in an ordered chain only behind the one
  // taken before it.
  size_t from = 0;
  for (size_t wanted = 0; wanted < desired.rules.size(); ++wanted) {
    for (size_t i = desired.ordered ? from : 0; i < placement.first_foreign; ++i) {
      if (DesiredIndex(desired, observed.rules[i]) != wanted) continue;
      placement.found[wanted] = i;
      from = i + 1;
      break;
    }
  }
  for (size_t i = 0; i < count; ++i) {
    const size_t wanted = DesiredIndex(desired, observed.rules[i]);
    if (wanted == kNone || placement.found[wanted] == i || !placement.removal[i].empty()) continue;
    placement.removal[i] = placement.found[wanted] != kNone ? "duplicate"
                           : i > placement.first_foreign
                               ? "stands behind a rule that may decide first"
                               : "stands out of order";
  }
  return placement;
}

// The rule before which a missing one of ours is inserted; none: append.
std::optional<RuleHandle> Anchor(const DesiredChain& desired, const ObservedChain& observed,
                                 const Placement& placement, size_t wanted) {
  if (desired.ordered) {
    for (size_t later = wanted + 1; later < placement.found.size(); ++later) {
      if (placement.found[later] != kNone) return observed.rules[placement.found[later]].handle;
    }
  }
  if (placement.first_foreign < observed.rules.size()) {
    return observed.rules[placement.first_foreign].handle;
  }
  return std::nullopt;
}

bool MendsDamage(const ChainContext& context, const Damage& damage) {
  return damage.condition == Condition::kDamagedRule &&
         (damage.delete_rule || context.mode == Mode::kLegacy);
}

bool IsDamaged(const Placement& placement, size_t index) {
  return placement.removal[index] == kDamaged;
}

std::vector<ObservedRule> Undamaged(const ObservedChain& observed, const Placement& placement) {
  std::vector<ObservedRule> rules;
  for (size_t i = 0; i < observed.rules.size(); ++i) {
    if (!IsDamaged(placement, i)) rules.push_back(observed.rules[i]);
  }
  return rules;
}

// Deletes what goes; `only_damaged` leaves everything but damaged rules.
void Delete(const DesiredChain& desired, const ObservedChain& observed, const Placement& placement,
            bool only_damaged, RuleNumbers& numbers, Diff& diff) {
  for (size_t i = 0; i < observed.rules.size(); ++i) {
    if (placement.removal[i].empty() || (only_damaged && !IsDamaged(placement, i))) continue;
    diff.changes.push_back({numbers.Delete(desired.id, observed.rules[i]), placement.removal[i]});
  }
}

}  // namespace

std::string ChainText(const netlink::ChainId& chain) {
  return absl::StrCat(":", chain.name, " - [0:0]");
}

std::string RuleText(const netlink::ChainId& chain, const ObservedRule& rule) {
  return absl::StrCat("-A ", chain.name, " ", netlink::ToString(chain.family, rule));
}

std::string RuleText(const netlink::ChainId& chain, const netlink::Rule& rule) {
  return absl::StrCat("-A ", chain.name, " ", netlink::ToString(chain.family, rule));
}

void DiffMissingChain(const DesiredChain& desired, Diff& diff) {
  diff.changes.push_back({netlink::CreateChain{desired.id}, desired.reason});
  RuleNumbers numbers({});
  for (const DesiredRule& rule : desired.rules) {
    diff.changes.push_back({numbers.Append(desired.id, rule.rule), rule.reason});
  }
}

void DiffExistingChain(const DesiredChain& desired, const ObservedChain& observed,
                       const ChainContext& context, Diff& diff) {
  diff.in_place.push_back({desired.id, ChainText(desired.id), desired.reason});
  std::vector<Damage> damages = FindDamage(desired.id, observed.rules);
  for (Damage& voided : FindVoidedMarks(desired.id, observed.rules)) {
    damages.push_back(std::move(voided));
  }
  bool unguarded = false;  // damage that only our own rules, put before it, can mend
  for (const Damage& damage : damages) {
    diff.findings.push_back(
        {damage.condition, desired.id, damage.message, MendsDamage(context, damage)});
    unguarded |= damage.condition == Condition::kDamagedRule && !damage.delete_rule;
  }
  const Placement placement = Place(desired, observed, damages, context);
  RuleNumbers numbers(observed.rules);

  // What kube-proxy keeps in a form that works is left alone, ours included: adding ours beside it
  // would only last until kube-proxy's next sync.
  if (!placement.complete() && context.claimed_by_kube_proxy && !unguarded) {
    const std::optional<int> bit = CompleteSetBit(desired.id, Undamaged(observed, placement));
    if (bit.has_value() && *bit != context.bits.masquerade) {
      diff.findings.push_back(
          {Condition::kBitConflict, desired.id,
           absl::StrCat("kube-proxy uses mark bit ", *bit, ", this agent was given bit ",
                        context.bits.masquerade,
                        ": give both the same --iptables-masquerade-bit; until then kube-proxy's "
                        "rules stay, and what others mark with bit ",
                        context.bits.masquerade, " is not masqueraded"),
           false});
    } else if (bit.has_value()) {
      diff.findings.push_back({Condition::kOlderFormKept, desired.id,
                               "kube-proxy keeps an older form of these rules, which does the same "
                               "work: nothing to do",
                               false});
    }
    if (bit.has_value()) {
      Delete(desired, observed, placement, /*only_damaged=*/true, numbers, diff);
      return;
    }
  }

  for (size_t i = 0; i < desired.rules.size(); ++i) {
    const DesiredRule& rule = desired.rules[i];
    if (placement.found[i] != kNone) {
      diff.in_place.push_back(
          {desired.id, RuleText(desired.id, observed.rules[placement.found[i]]), rule.reason});
      continue;
    }
    const std::optional<RuleHandle> before = Anchor(desired, observed, placement, i);
    diff.changes.push_back({before.has_value()
                                ? numbers.InsertBefore(desired.id, rule.rule, *before)
                                : numbers.Append(desired.id, rule.rule),
                            rule.reason});
  }
  Delete(desired, observed, placement, /*only_damaged=*/false, numbers, diff);
}

void DiffJump(const DesiredJump& desired, const netlink::Snapshot& snapshot, netlink::Walk& walk,
              Diff& diff) {
  const netlink::ChainId& base = desired.base_chain;
  const ObservedChain* observed = snapshot.Find(base);
  if (observed == nullptr) {
    const bool planned =
        std::any_of(diff.changes.begin(), diff.changes.end(), [&](const Change& change) {
          return change.operation == netlink::Operation(netlink::CreateChain{base});
        });
    if (!planned) {
      diff.changes.push_back({netlink::CreateChain{base}, "base chain of the jump below"});
    }
    diff.changes.push_back({netlink::AddRule{.chain = base, .rule = desired.rule}, desired.reason});
    return;
  }
  RuleNumbers numbers(observed->rules);
  bool found = false;
  const ObservedRule* above = nullptr;  // no packet passes it
  for (const ObservedRule& rule : observed->rules) {
    if (rule.rule() == nullptr || *rule.rule() != desired.rule) {
      if (!found && above == nullptr && walk.Stops(base, rule)) above = &rule;
      continue;
    }
    if (found) {
      diff.changes.push_back({numbers.Delete(base, rule), "duplicate"});
      continue;
    }
    found = true;
    diff.in_place.push_back({base, RuleText(base, rule), desired.reason});
    if (above != nullptr) {
      diff.findings.push_back(
          {Condition::kShadowedJump, base,
           absl::StrCat("\"", RuleText(base, rule),
                        "\" stands below a rule that no packet passes, \"", RuleText(base, *above),
                        "\"; jumps are never moved, because CNIs insert first too: move that rule "
                        "down"),
           false});
    }
  }
  if (found) return;
  diff.changes.push_back(
      {observed->rules.empty()
           ? numbers.Append(base, desired.rule)
           : numbers.InsertBefore(base, desired.rule, observed->rules.front().handle),
       desired.reason});
}

}  // namespace kipt::agent
