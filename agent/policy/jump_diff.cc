// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/jump_diff.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/policy/chain_diff.h"
#include "agent/policy/nft_copies.h"
#include "agent/policy/ownership.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::ObservedChain;
using netlink::ObservedRule;
using netlink::Rule;

// By the rules of `chain`, which may not exist; all where it leads to other chains.
TestedMarks TestedIn(const ObservedChain* chain) {
  TestedMarks tested;
  if (chain == nullptr) return tested;
  for (const ObservedRule& rule : chain->rules) {
    tested.bits |= netlink::MarksTested(rule);
    tested.labels |= netlink::KnownMatches(rule).conn_label.has_value();
    if (LeadsElsewhere(rule)) return kAnyMark;
  }
  return tested;
}

// Whether `chain` has rules of others that change what it tests: the same packet may be another one
// when it comes again.
bool ChangesTested(const ObservedChain* chain, const ChainId& id, const TestedMarks& tested) {
  return chain != nullptr && absl::c_any_of(chain->rules, [&](const ObservedRule& rule) {
           const bool kubelets = rule.rule() != nullptr && RecognizeKubeletForm(id, *rule.rule());
           return !kubelets && MayChange(rule, tested);
         });
}

// nft loaded `chain` from a saved ruleset, and so the jump to it, too; its comment is lost.
bool IsReplacedCopy(const ChainId& chain, const Diff& diff) {
  return absl::c_any_of(diff.changes, [&](const Change& change) {
    return change.reason == kSupersededCopy && netlink::ChainOf(change.operation) == chain;
  });
}

class JumpDiffer {
 public:
  JumpDiffer(const DesiredJump& desired, const std::vector<ObservedRule>& rules,
             const ChainId& target, const netlink::Snapshot& snapshot, netlink::Walk& walk,
             Diff& diff)
      : desired_(desired),
        base_(desired.base_chain),
        rules_(rules),
        copied_(!desired.rule.comment.empty() && IsReplacedCopy(target, diff)),
        tested_(TestedIn(snapshot.Find(target))),
        walk_(walk),
        diff_(diff),
        changes_(ChangesTested(snapshot.Find(target), target, tested_)) {}

  void Run() {
    for (const ObservedRule& rule : rules_) {
      if (IsCopy(rule)) {
        diff_.changes.push_back({Deletion(base_, rule), kSupersededCopy});
      } else if (rule.rule() == nullptr || *rule.rule() != desired_.rule) {
        NoteOther(rule);
      } else if (!found_) {
        NoteFirst(rule);
      } else if (!changes_) {
        diff_.changes.push_back({Deletion(base_, rule), "duplicate"});
      }
    }
    if (!found_) Add();
  }

 private:
  bool IsCopy(const ObservedRule& rule) const {
    return copied_ && rule.rule() != nullptr &&
           *rule.rule() == Rule{.target = desired_.rule.target};
  }

  void NoteOther(const ObservedRule& rule) {
    if (found_) {
      changes_ |= MayChange(rule, tested_);
    } else if (!certain_ && walk_.Stops(base_, rule)) {
      certain_ = walk_.StopsSurely(base_, rule);
      if (above_ == nullptr || certain_) above_ = &rule;
    }
  }

  void NoteFirst(const ObservedRule& rule) {
    found_ = true;
    diff_.in_place.push_back({base_, RuleText(base_, rule), std::string(desired_.reason)});
    if (above_ == nullptr) return;
    // A verdict map may have a verdict for every packet.
    diff_.findings.push_back(
        {certain_ ? Condition::kShadowedJump : Condition::kPerhapsShadowedJump, base_,
         absl::StrCat(GoQuote(RuleText(base_, rule)), " is below a rule that ",
                      certain_ ? "no packet passes, " : "may decide about every packet, ",
                      GoQuote(RuleText(base_, *above_)),
                      "; jumps are never moved, because CNI plugins insert first too: move "
                      "that rule down"),
         false});
  }

  void Add() {
    netlink::AddRule add = {.chain = base_, .rule = desired_.rule};
    if (!rules_.empty()) {
      add.before = rules_.front().handle;
      add.number = 1;
    }
    diff_.changes.push_back({std::move(add), std::string(desired_.reason)});
  }

  const DesiredJump& desired_;
  const ChainId& base_;
  const std::vector<ObservedRule>& rules_;
  const bool copied_;         // and the copy would be another rule than ours
  const TestedMarks tested_;  // by the jump's chain
  netlink::Walk& walk_;
  Diff& diff_;
  bool found_ = false;
  // A packet may have another such mark than at the first of ours: only a second jump acts on it.
  bool changes_;
  // The rule above ours that no packet passes; perhaps, if not certain.
  const ObservedRule* above_ = nullptr;
  bool certain_ = false;
};

}  // namespace

void DiffJump(const DesiredJump& desired, const netlink::Snapshot& snapshot, netlink::Walk& walk,
              Diff& diff) {
  const ChainId& base = desired.base_chain;
  const ObservedChain* observed = snapshot.Find(base);
  const Change creation = {netlink::CreateChain{base}, "base chain of the jump below"};
  if (observed == nullptr && !absl::c_linear_search(diff.changes, creation)) {
    diff.changes.push_back(creation);
  }
  const ChainId target = {base.family, base.table,
                          std::get<netlink::Jump>(desired.rule.target).chain};
  const std::vector<ObservedRule> none;
  JumpDiffer(desired, observed != nullptr ? observed->rules : none, target, snapshot, walk, diff)
      .Run();
}

}  // namespace kipt::agent
