// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/iptables_save_survey.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "agent/xtables/iptables_save_families.h"
#include "agent/xtables/iptables_save_reader.h"
#include "agent/xtables/iptables_save_rule.h"

namespace kipt::agent {
namespace {

using netlink::Family;
using netlink::Survey;
using netlink::SurveyChain;
using netlink::SurveyFilter;
using netlink::SurveyRule;
using netlink::TableId;

SurveyRule ReadSurveyRule(Family family, const SavedRule& rule, const SavedChains& chains) {
  SurveyRule read = {{.content = ParseSavedRule(family, chains, rule.text, rule.words),
                      .counters = rule.counters}};
  if (ToString(family, read) != rule.text) read.spelling = std::string(rule.text);
  return read;
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
