// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/explain_sieve.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "agent/audit/family_audit.h"
#include "agent/audit/rule_words.h"

namespace kipt::agent {

using netlink::SurveyRule;

ExplainSieve::ExplainSieve(absl::string_view chain) : audit_({.marks = netlink::kAllMarks}) {
  const std::vector<std::string> parts = absl::StrSplit(chain, absl::MaxSplits('/', 1));
  if (parts.size() > 1) asked_table_ = parts.front();
  asked_chain_ = parts.back();
}

absl::Status ExplainSieve::Begin(const netlink::TableId& table, const std::string& chain,
                                 bool base) {
  table_ = table;
  chain_ = chain;
  base_ = base;
  const bool meant = asked_table_.empty() || asked_table_ == table.name;
  leads_ = false;
  found_ = meant ? &found_in_[table] : nullptr;
  return audit_.Begin(table, chain, base);
}

bool ExplainSieve::Keep(const SurveyRule& rule) {
  const bool kept = audit_.Keep(rule);
  const absl::string_view jump = JumpOf(rule);
  if (absl::StartsWith(jump, "KUBE-S")) NoteService(rule, jump);
  if (found_ == nullptr) return kept;
  if (jump == asked_chain_) AddUser(rule);
  return (chain_ == asked_chain_ && ++found_->own_rules <= kMostOwnRules) || kept;
}

bool ExplainSieve::KeepBare() {
  const bool alike = like_.emplace(table_, ChainGroup(chain_)).second;
  return audit_.KeepBare() || alike || chain_ == asked_chain_;
}

void ExplainSieve::AddUser(const SurveyRule& rule) {
  if (!std::exchange(leads_, true)) ++found_->from_chains;
  AuditedRule example = Audited(table_, chain_, rule);
  const RuleWords words = ParseRuleWords(example.text);
  const Owner owner = OwnerOfRule(table_, chain_, base_, rule);
  const std::string& comment = KnownMatches(rule).comment;
  const auto [row, parameter] =
      PurposeOf(absl::StrCat(table_.name, "/", asked_chain_), chain_, base_, owner, comment, words);
  auto& [shown, unnamed] = found_->groups[std::tuple(row, parameter, owner)];
  if (shown.count++ == 0) {
    shown.id = row->id;
    shown.title = absl::StrReplaceAll(row->title, {{"%s", parameter}});
    shown.reason = row->reason;
    shown.owner = owner;
  }
  shown.packets = shown.packets.value_or(0) + rule.counters.packets;
  if (shown.examples.size() >= kMostExamples) return;
  // Where it leads to need not be said.
  const absl::string_view pod = SingleHost(words.Get("-s").text);
  const absl::string_view service = ServiceInComment(comment);
  example.sentence =
      AboutService(service, shown.id == "Hairpin" ? absl::StrCat("the pod ", pod, " calls itself")
                                                  : PacketText(words));
  // Rules of kube-proxy 1.17 in KUBE-SVC-* and KUBE-SEP-* have no comment.
  if (service.empty() && absl::StartsWith(chain_, "KUBE-S") && chain_ != "KUBE-SERVICES") {
    unnamed.push_back(shown.examples.size());
  }
  shown.examples.push_back(std::move(example));
}

void ExplainSieve::NoteService(const SurveyRule& rule, absl::string_view jump) {
  if (table_.name != "nat") return;
  const absl::string_view service = ServiceInComment(KnownMatches(rule).comment);
  if (!service.empty()) {
    services_.try_emplace(jump, service);
  } else {
    led_from_.try_emplace(jump, chain_);
  }
}

std::string ExplainSieve::ServiceOf(const std::string& chain) const {
  if (const auto own = services_.find(chain); own != services_.end()) return own->second;
  const auto from = led_from_.find(chain);
  if (from == led_from_.end()) return "";
  const auto service = services_.find(from->second);
  return service == services_.end() ? "" : service->second;
}

ExplainSieve::Seen ExplainSieve::InTable(const netlink::TableId& table) const {
  Seen seen;
  const auto found = found_in_.find(table);
  if (found == found_in_.end()) return seen;
  seen.own_rules = found->second.own_rules;
  seen.from_chains = found->second.from_chains;
  for (const auto& [key, group] : found->second.groups) {
    PurposeGroup& shown = seen.purposes.emplace_back(group.shown);
    if (!audit_.left_out().counted) shown.packets.reset();
    for (const size_t unnamed : group.unnamed) {
      AuditedRule& example = shown.examples[unnamed];
      example.sentence = AboutService(ServiceOf(example.chain), example.sentence);
    }
  }
  return seen;
}

}  // namespace kipt::agent
