// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/iptables_save_survey.h"

#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "agent/xtables/iptables_save_families.h"
#include "agent/xtables/iptables_save_reader.h"
#include "agent/xtables/iptables_save_rule.h"

namespace kipt::agent {
namespace {

using netlink::Family;
using netlink::OpaqueRule;
using netlink::Rule;
using netlink::Survey;
using netlink::SurveyChain;
using netlink::SurveyFilter;
using netlink::SurveyRule;
using netlink::TableId;

// As netlink::ToSurveyRule, but for the text, which is not spelled anew.
SurveyRule ReadSurveyRule(Family family, const SavedRule& rule, const SavedChains& chains) {
  netlink::ObservedRule read = {.content = ParseSavedRule(family, chains, rule.text, rule.words),
                                .counters = rule.counters};
  SurveyRule kept = {.text = {},
                     .jump = {},
                     .marks_tested = netlink::MarksTested(read),
                     .marks_set = netlink::MarksSet(read),
                     .labels_set = netlink::LabelsSet(read),
                     .counters = rule.counters};
  if (const std::string* jump = netlink::JumpTarget(read)) kept.jump = *jump;
  if (auto* opaque = std::get_if<OpaqueRule>(&read.content)) {
    kept.unconditional = opaque->unconditional;
    kept.terminal = opaque->terminal;
    kept.text = std::move(opaque->text);
  } else {
    const Rule& own = *read.rule();
    kept.unconditional = netlink::IsUnconditional(own);
    kept.terminal = netlink::IsTerminal(own.target);
    kept.text = std::string(rule.text);
  }
  return kept;
}

class SurveyCollector : public SaveVisitor {
 public:
  // `families`: of each table, in the order of the text; none: all are of `family`.
  SurveyCollector(Survey& survey, Family family, absl::Span<const Family> families,
                  const SurveyFilter& keep)
      : survey_(survey), family_(family), families_(families), keep_(keep) {}

  void BeginTable(absl::string_view name) override {
    if (!families_.empty()) family_ = families_[at_++];
    id_ = {.family = std::string(netlink::FamilyName(family_)), .name = std::string(name)};
    table_ = &survey_.tables[id_];
    table_->clear();
    last_ = nullptr;
  }

  void DeclareChain(absl::string_view name, absl::string_view policy) override {
    SurveyChain& chain = (*table_)[std::string(name)];
    chain.base = policy != "-";
    if (policy == "ACCEPT" || policy == "DROP") chain.policy = std::string(policy);
  }

  void AddRule(const SavedRule& rule, const SavedChains& chains) override {
    if (last_ == nullptr || last_->first != rule.chain) {
      last_ = &*table_->find(std::string(rule.chain));
    }
    SurveyRule kept = ReadSurveyRule(family_, rule, chains);
    if (keep_ && !keep_(id_, last_->first, kept)) return;
    last_->second.rules.push_back(std::move(kept));
  }

 private:
  using Chains = std::map<std::string, SurveyChain>;

  Survey& survey_;
  Family family_;
  absl::Span<const Family> families_;
  size_t at_ = 0;
  const SurveyFilter& keep_;
  TableId id_;
  Chains* table_ = nullptr;
  // The last rule's chain: the next one's too, as a rule.
  Chains::value_type* last_ = nullptr;
};

}  // namespace

absl::StatusOr<Survey> ParseSurvey(absl::string_view mode, Family family, absl::string_view text,
                                   const SurveyFilter& keep) {
  Survey survey = {.mode = std::string(mode), .generation = 0, .tables = {}};
  SurveyCollector collector(survey, family, {}, keep);
  absl::Status status = ReadSave(text, SavedTables::kRepeated, collector);
  if (!status.ok()) return status;
  return survey;
}

absl::StatusOr<Survey> ParseSavedFile(absl::string_view text) {
  const absl::StatusOr<std::vector<Family>> families = FamiliesOfSavedTables(text);
  if (!families.ok()) return families.status();
  if (families->empty()) {
    return absl::InvalidArgumentError("no table: this is not what iptables-save printed");
  }
  Survey survey = {};
  const SurveyFilter everything;
  SurveyCollector collector(survey, Family::kIPv4, *families, everything);
  absl::Status status = ReadSave(text, SavedTables::kRepeated, collector);
  if (!status.ok()) return status;
  return survey;
}

}  // namespace kipt::agent
