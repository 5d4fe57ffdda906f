// SPDX-License-Identifier: Apache-2.0
//
// Rules of a survey, written as iptables-save spells them.
#ifndef KIPT_TESTS_SUPPORT_SURVEYED_H_
#define KIPT_TESTS_SUPPORT_SURVEYED_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/xtables/iptables_save.h"
#include "agent/xtables/saved_rule.h"
#include "agent/xtables/saved_survey.h"
#include "netlink/survey.h"

namespace kipt::agent {

// One save or several of one family.
inline absl::StatusOr<netlink::Survey> ParseSurvey(absl::string_view mode, netlink::Family family,
                                                   absl::string_view text,
                                                   const netlink::SurveyFilter& keep) {
  const absl::StatusOr<std::vector<SavedTable>> tables = ReadSave(text, TablesMayRepeat::kYes);
  if (!tables.ok()) return tables.status();
  return SurveyOf(mode, family, *tables, keep);
}

}  // namespace kipt::agent

namespace kipt::testing {

// The rule in `text`, which may have any words. `chain`: one that it may jump to.
inline netlink::SurveyRule Surveyed(const std::string& text, const std::string& chain = "",
                                    netlink::Family family = netlink::Family::kIPv4) {
  std::vector<absl::string_view> words;
  netlink::SurveyRule rule = {{.content = netlink::OpaqueRule{.text = text, .jump = {}}}};
  if (!agent::SplitSavedRule(text, words)) return rule;
  const agent::SavedChains chains = {{chain, "-"}};
  rule.content = agent::ParseSavedRule(family, chains, text);
  if (ToString(family, rule) != text) rule.spelling = text;
  return rule;
}

// The same, with these marks and labels unless it is one of our rules.
inline netlink::SurveyRule Surveyed(const std::string& text, uint32_t marks_set,
                                    const netlink::ConnLabelSet& labels_set,
                                    uint32_t marks_tested = 0) {
  netlink::SurveyRule rule = Surveyed(text);
  if (auto* opaque = std::get_if<netlink::OpaqueRule>(&rule.content)) {
    opaque->marks.set = marks_set;
    opaque->marks.tested = marks_tested;
    opaque->marks.labels_set = labels_set;
  }
  return rule;
}

// For a family's tables.
inline std::string TextOf(const netlink::SurveyRule& rule, const std::string& family = "ip") {
  return ToString(netlink::TableId{.family = family, .name = {}}, rule);
}
inline std::string JumpOf(const netlink::SurveyRule& rule) {
  const std::string* jump = JumpTarget(rule);
  return jump == nullptr ? "" : *jump;
}

}  // namespace kipt::testing

// Tests name these without a namespace.
namespace kipt {
using testing::Surveyed;
}  // namespace kipt

#endif  // KIPT_TESTS_SUPPORT_SURVEYED_H_
