// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/audit_sieve.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/chain_owner.h"
#include "agent/audit/finding.h"

namespace kipt::agent {
namespace {

using netlink::SurveyRule;

// kube-proxy's rules do these; whatever else is one more form.
constexpr size_t kMostForms = 64;

}  // namespace

absl::Status AuditSieve::Begin(const netlink::TableId& table, const std::string& chain, bool base) {
  table_ = table;
  chain_ = chain;
  base_ = base;
  owner_ = OwnerOfChain(table, chain, base);
  proxys_ = IsKubernetes(owner_) && owner_ != Owner::kKubelet;
  // A table of its own has one chain and more per service, by the service's name.
  const bool own_table = owner_ == Owner::kKubeProxyNftables;
  const absl::string_view group = own_table ? "" : ChainGroup(chain);
  one_of_many_ = group != chain;
  group_ = {table.family, table.name, std::string(group)};
  any_kept_ = false;
  kept_of_form_.clear();
  return options_.pause();
}

bool AuditSieve::Keep(const SurveyRule& rule) {
  left_out_.counted |= rule.counters.packets != 0;
  const bool unlistable = rule.unlistable && IsIptablesTable(table_);
  const bool example = unlistable && unlistable_[table_]++ < kMostExamples;
  const bool keep = example ? HasRoom(Need::kOther) : KeepByUse(rule);
  if (unlistable && !keep) {
    LeftOutRules& more = left_out_.unlistable[{table_.family, table_.name}];
    ++more.count;
    more.packets += rule.counters.packets;
  }
  if (keep && !any_kept_) {
    any_kept_ = true;
    ++samples_[group_];
  }
  return keep;
}

bool AuditSieve::KeepByUse(const SurveyRule& rule) {
  if (proxys_) return KeepOfProxy(rule);
  if (const Need need = NeedOf(rule); need != Need::kNone) {
    return HasRoom(need, need == Need::kMarks ? MarksOf(rule) : netlink::Marks{});
  }
  // Perhaps the way to a rule that clears a mark, or where a firewall's chain ends.
  const bool ends = table_.name == "filter" && (IsUnconditionalTerminal(rule) || Returns(rule));
  if ((ends || !JumpOf(rule).empty()) && jumps_ < kMostJumps) return ++jumps_, true;
  const Owner owner = OwnerOfRule(table_, chain_, base_, rule);
  const bool keep = examples_[{table_.family, owner}]++ < kMostExamples;
  if (!keep) Count(owner, rule);
  return keep;
}

bool AuditSieve::KeepOfProxy(const SurveyRule& rule) {
  const absl::string_view jump = JumpOf(rule);
  const Owner of_jump = jump.empty() ? Owner::kUnknown : OwnerOfChain(table_, jump);
  std::string form = jump.empty() ? TargetName(rule) : std::string(ChainGroup(jump));
  // Rules that act on a mark (WhatActsOn): the few that every packet passes.
  if (owner_ == Owner::kKubeProxyNftables && (base_ || chain_ == "masquerading")) {
    return HasRoom(Need::kMarks);
  }
  // Rules that use the private chains, and those that a firewall's policy would undo.
  if (of_jump == Owner::kThisAgent || (!one_of_many_ && form == "ACCEPT")) {
    return HasRoom(Need::kJump);
  }
  if (any_kept_ || !one_of_many_ || samples_[group_] < kSamples) {
    if (kept_of_form_.size() >= kMostForms && !kept_of_form_.contains(form)) form.clear();
    size_t& kept = kept_of_form_[form];
    if (kept < kSamples) return ++kept, true;
  }
  Count(owner_, rule);
  if (of_jump == Owner::kKubelet) {
    LeftOutRules& uses = left_out_.uses[{table_.family, absl::StrCat(table_.name, "/", jump)}];
    ++uses.count;
    uses.packets += rule.counters.packets;
  }
  return false;
}

bool AuditSieve::KeepBare() {
  if (base_ || IsKubeletsOrOurs(owner_)) return true;
  if (!proxys_) return false;
  return !one_of_many_ || bare_samples_[group_]++ < kSamples;
}

AuditSieve::Need AuditSieve::NeedOf(const SurveyRule& rule) const {
  if (IsKubeletsOrOurs(owner_)) return Need::kOwnChain;
  // What kubelet's probe cannot list matters there alone.
  if (rule.unlistable && table_.name == "nat" && chain_ == "POSTROUTING") return Need::kOther;
  if (const absl::string_view jump = JumpOf(rule); !jump.empty()) {
    const Owner of_jump = OwnerOfChain(table_, jump);
    if (IsKubernetes(of_jump) || IsKubeletsOrOurs(of_jump)) return Need::kJump;
  }
  const netlink::Marks marks = MarksOf(rule);
  if (((marks.set | marks.tested | marks.cleared) & options_.marks) != 0) return Need::kMarks;
  // What may act on a mark that a rule before it tested.
  if ((base_ && IsUnconditionalTerminal(rule)) || (any_kept_ && IsUnconditional(rule)) ||
      TargetName(rule) == "CLUSTERIP" ||
      (rule.opaque() != nullptr && absl::StartsWith(rule.opaque()->set, "KUBE-"))) {
    return Need::kOther;
  }
  return Need::kNone;
}

bool AuditSieve::HasRoom(Need need, const netlink::Marks& marks) {
  const uint32_t ours = options_.marks;
  size_t& needed = needed_[{need, marks.set & ours, marks.tested & ours, marks.cleared & ours}];
  if (needed < kMostNeeded) return ++needed, true;
  ++left_out_.too_many;
  return false;
}

void AuditSieve::Count(Owner owner, const SurveyRule& rule) {
  LeftOutRules& rules = left_out_.rules[{table_.family, owner}];
  ++rules.count;
  rules.packets += rule.counters.packets;
}

}  // namespace kipt::agent
