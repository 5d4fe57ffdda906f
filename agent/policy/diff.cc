// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/diff.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "agent/policy/chain_diff.h"
#include "agent/policy/guards.h"
#include "agent/policy/kube_proxy_chains.h"
#include "agent/policy/kubelet_forms.h"
#include "agent/policy/native_martians.h"
#include "netlink/reach.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::Snapshot;

using FamilyTable = std::pair<Family, netlink::Table>;

constexpr ConditionRow kConditions[] = {
    {Condition::kBaseChainNotHooked, "BaseChainNotHooked", Severity::kCritical},
    {Condition::kBitConflict, "BitConflict", Severity::kWarning},
    {Condition::kOlderFormKept, "OlderFormKept", Severity::kInfo},
    {Condition::kShadowedJump, "ShadowedJump", Severity::kWarning},
    {Condition::kDamagedRule, "DamagedRule", Severity::kCritical},
    {Condition::kForeignDropsEverything, "ForeignDropsEverything", Severity::kCritical},
    {Condition::kVoidedMark, "VoidedMark", Severity::kWarning},
    {Condition::kLegacyModeImpossible, "LegacyModeImpossible", Severity::kCritical},
    {Condition::kConnLabelsImpossible, "ConnLabelsImpossible", Severity::kWarning},
    {Condition::kNativeProtection, "NativeProtection", Severity::kInfo},
    {Condition::kTableDormant, "TableDormant", Severity::kCritical},
};

FamilyTable TableOf(const ChainId& chain) { return {chain.family, chain.table}; }

// Tables in which a base chain of ours exists without its hook.
std::set<FamilyTable> FindUnhooked(const Ruleset& desired, const Snapshot& observed, Diff& diff) {
  std::set<FamilyTable> unhooked;
  for (const DesiredJump& jump : desired.jumps) {
    const netlink::ObservedChain* base = observed.Find(jump.base_chain);
    if (base == nullptr || base->hooked) continue;
    unhooked.insert(TableOf(jump.base_chain));
    diff.findings.push_back(
        {Condition::kBaseChainNotHooked, jump.base_chain,
         absl::StrCat("a chain ", jump.base_chain.name,
                      " exists that hangs on no hook, so no packet comes to it and the kernel "
                      "refuses to hook it; nothing is changed in table ",
                      netlink::FamilyName(jump.base_chain.family), " ",
                      netlink::TableName(jump.base_chain.table),
                      ": have its owner rename or delete it"),
         false});
  }
  return unhooked;
}

// A table is iptables' unless another process owns it, or a base chain of ours is not on its hook:
// such a table is its owner's to wake.
void DiffDormant(const Ruleset& desired, const Snapshot& observed,
                 const std::set<FamilyTable>& unhooked, Diff& diff) {
  std::set<FamilyTable> seen;
  for (const DesiredJump& jump : desired.jumps) {
    const FamilyTable table = TableOf(jump.base_chain);
    const auto dormant = observed.dormant.find(table);
    if (dormant == observed.dormant.end() || !seen.insert(table).second) continue;
    const netlink::WakeTable wake = {.chain = jump.base_chain, .flags = dormant->second};
    const bool ours = (wake.flags & netlink::kTableOwned) == 0 && unhooked.count(table) == 0;
    const std::string what =
        absl::StrCat("table ", netlink::FamilyName(table.first), " ",
                     netlink::TableName(table.second), " is dormant: no packet comes to its rules");
    diff.findings.push_back(
        {Condition::kTableDormant, jump.base_chain,
         absl::StrCat(what, ours ? "" : "; another program owns it: have that one wake it"), ours});
    if (ours) diff.changes.push_back({wake, what});
  }
}

// `chain` is kubelet's: what is stale is part of it, or leads to it.
std::string WhyStale(const PolicyInput& input, const ChainId& chain, bool shared, bool claimed) {
  if (shared && claimed) return "kube-proxy's: it uses this chain too";
  if (input.mode == Mode::kOff) return "stale, kept: --make-iptables-util-chains=false";
  if (std::find(input.families.begin(), input.families.end(), chain.family) ==
      input.families.end()) {
    return "stale, kept: this family is not managed (--ip-families)";
  }
  if (IsLabelChain(chain)) return absl::StrCat("stale, kept: ", WhyNoLabels(input));
  return absl::StrCat("stale, kept: not part of ", ModeName(input.mode), " mode");
}

bool IsShared(const DesiredChain& chain) {
  return std::any_of(chain.rules.begin(), chain.rules.end(),
                     [](const DesiredRule& rule) { return rule.shared_with_kube_proxy; });
}

const DesiredChain* FindDesired(const Ruleset& desired, const ChainId& chain) {
  for (const DesiredChain& candidate : desired.chains) {
    if (candidate.id == chain) return &candidate;
  }
  return nullptr;
}

void ListStaleChain(const PolicyInput& input, const DesiredChain& known,
                    const netlink::ObservedChain& observed, bool claimed, Diff& diff) {
  diff.stale.push_back(
      {known.id, ChainText(known.id),
       absl::StrCat(WhyStale(input, known.id, IsShared(known), claimed), "; ", known.reason)});
  for (const netlink::ObservedRule& rule : observed.rules) {
    diff.stale.push_back({known.id, RuleText(known.id, rule), "stays with its chain"});
  }
  for (const Damage& damage : FindDamage(known.id, observed.rules)) {
    diff.findings.push_back({damage.condition, known.id, damage.message, false});
  }
}

// Rules that a kubelet of another mode or bit left in a chain of ours, and that no change removes.
void ListStaleRules(const PolicyInput& input, const DesiredChain& chain,
                    const netlink::ObservedChain& observed, bool claimed, Diff& diff) {
  for (const netlink::ObservedRule& observed_rule : observed.rules) {
    if (observed_rule.rule() == nullptr) continue;
    const netlink::Rule& rule = *observed_rule.rule();
    const bool wanted =
        std::any_of(chain.rules.begin(), chain.rules.end(),
                    [&](const DesiredRule& candidate) { return candidate.rule == rule; });
    const bool removed =
        std::any_of(diff.changes.begin(), diff.changes.end(), [&](const Change& change) {
          const auto* deletion = std::get_if<netlink::DeleteRule>(&change.operation);
          return deletion != nullptr && deletion->chain == chain.id &&
                 deletion->handle == observed_rule.handle;
        });
    const std::optional<KubeletForm> form = RecognizeKubeletForm(chain.id, rule);
    if (wanted || removed || !form.has_value()) continue;
    diff.stale.push_back(
        {chain.id, RuleText(chain.id, observed_rule),
         absl::StrCat(WhyStale(input, chain.id, form->shared_with_kube_proxy, claimed), " (",
                      form->description, ")")});
  }
}

void ListStaleJumps(const PolicyInput& input, const Ruleset& desired, Family family,
                    const Snapshot& observed, bool claimed, Diff& diff) {
  for (const DesiredJump& known : EveryKubeletJump(family)) {
    if (std::find(desired.jumps.begin(), desired.jumps.end(), known) != desired.jumps.end()) {
      continue;
    }
    const netlink::ObservedChain* base = observed.Find(known.base_chain);
    if (base == nullptr) continue;
    const ChainId target = {family, known.base_chain.table,
                            std::get<netlink::Jump>(known.rule.target).chain};
    for (const netlink::ObservedRule& rule : base->rules) {
      if (rule.rule() == nullptr || *rule.rule() != known.rule) continue;
      diff.stale.push_back({known.base_chain, RuleText(known.base_chain, rule),
                            WhyStale(input, target, /*shared=*/!IsLabelChain(target), claimed)});
    }
  }
}

}  // namespace

absl::Span<const ConditionRow> Conditions() { return kConditions; }

absl::string_view ConditionName(Condition condition) {
  return kConditions[static_cast<size_t>(condition)].name;
}

Severity SeverityOf(Condition condition) {
  return kConditions[static_cast<size_t>(condition)].severity;
}

absl::string_view SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kCritical:
      return "critical";
  }
  return "unknown";
}

bool Changes(const Diff& diff, Family family) {
  return std::any_of(diff.changes.begin(), diff.changes.end(), [&](const Change& change) {
    return netlink::ChainOf(change.operation).family == family;
  });
}

bool NeedsAttention(const Finding& finding) {
  return !finding.mended && SeverityOf(finding.condition) != Severity::kInfo;
}

Diff ComputeDiff(const PolicyInput& input, const Snapshot& observed,
                 const std::optional<netlink::ObservedNativeTable>& native,
                 const RuleSupport& support) {
  const Ruleset desired = DesiredRuleset(input, support);
  Diff diff;
  std::map<Family, bool> claimed;
  for (const Family family : netlink::kFamilies) {
    claimed[family] = IsClaimedByKubeProxy(observed, family);
  }
  const std::set<FamilyTable> unhooked = FindUnhooked(desired, observed, diff);

  for (const DesiredChain& chain : desired.chains) {
    if (unhooked.count(TableOf(chain.id)) != 0) continue;
    const netlink::ObservedChain* existing = observed.Find(chain.id);
    if (existing == nullptr) {
      DiffMissingChain(chain, diff);
      continue;
    }
    const ChainContext context{
        .mode = input.mode, .bits = input.bits, .claimed_by_kube_proxy = claimed[chain.id.family]};
    DiffExistingChain(chain, *existing, context, diff);
    ListStaleRules(input, chain, *existing, context.claimed_by_kube_proxy, diff);
  }
  netlink::Walk walk(observed);
  for (const DesiredJump& jump : desired.jumps) {
    if (unhooked.count(TableOf(jump.base_chain)) != 0) continue;
    DiffJump(jump, observed, walk, diff);
  }
  DiffDormant(desired, observed, unhooked, diff);
  for (const Family family : netlink::kFamilies) {
    for (const DesiredChain& known : EveryKubeletChain(family)) {
      const netlink::ObservedChain* existing = observed.Find(known.id);
      if (existing == nullptr || FindDesired(desired, known.id) != nullptr) continue;
      ListStaleChain(input, known, *existing, claimed[family], diff);
    }
    ListStaleJumps(input, desired, family, observed, claimed[family], diff);
  }
  const FamilyTable ip_filter = {Family::kIPv4, netlink::Table::kFilter};
  const bool martian_rule_can_stand = unhooked.count(ip_filter) == 0;
  DiffNative(input, desired, support, native, martian_rule_can_stand, diff);
  ReportSupport(input, support, diff);
  std::stable_sort(diff.changes.begin(), diff.changes.end(), [](const Change& a, const Change& b) {
    return a.operation.index() < b.operation.index();
  });
  return diff;
}

netlink::Transaction ToTransaction(const Diff& diff, uint32_t generation,
                                   absl::Span<const Family> families) {
  netlink::Transaction transaction{.generation = generation, .operations = {}};
  for (const Change& change : diff.changes) {
    const Family family = netlink::ChainOf(change.operation).family;
    if (std::find(families.begin(), families.end(), family) == families.end()) continue;
    transaction.operations.push_back(change.operation);
  }
  return transaction;
}

}  // namespace kipt::agent
