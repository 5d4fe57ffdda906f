// SPDX-License-Identifier: Apache-2.0
//
// The parsers of iptables-save on any text, and what they promise: rules are numbered from 1, a
// rule that is taken for one of the vocabulary prints as a line that is read as the same rule,
// picking out a chain changes nothing of it, and a survey prints as a text that is read as the same
// survey.
#include <cstdint>
#include <map>
#include <string>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "agent/xtables/iptables_save.h"
#include "agent/xtables/saved_survey.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"
#include "tests/support/surveyed.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary
using Chains = std::map<ChainId, ObservedChain>;

void CheckRule(const ChainId& id, const ObservedRule& rule) {
  if (rule.rule() == nullptr) return;
  const std::string* jump = JumpTarget(rule);
  const std::string text = absl::StrCat(
      "*", netlink::TableName(id.table), "\n:", id.name, " - [0:0]\n",
      jump == nullptr || *jump == id.name ? "" : absl::StrCat(":", *jump, " - [0:0]\n"), "-A ",
      id.name, " ", ToString(id.family, rule), "\nCOMMIT\n");
  const auto again = agent::ParseSave(id.family, text);
  KIPT_REQUIRE(again.ok());
  KIPT_REQUIRE(again->at(id).rules.size() == 1);
  KIPT_REQUIRE(again->at(id).rules[0].content == rule.content);
}

void CheckChains(Family family, const Chains& chains) {
  for (const auto& [id, chain] : chains) {
    KIPT_REQUIRE(id.family == family);
    uint64_t number = 0;
    for (const ObservedRule& rule : chain.rules) {
      KIPT_REQUIRE(rule.handle == ++number);
      CheckRule(id, rule);
    }
  }
}

// The legacy backend parses what was picked out of a text, not the text.
void CheckSelection(Family family, absl::string_view text, const Chains& chains) {
  agent::SavedSelection selection;
  for (const auto& [id, chain] : chains) {
    (selection.chains.empty() ? selection.chains : selection.bare).insert(id);
  }
  const auto tables = agent::ReadSave(text, agent::TablesMayRepeat::kNo);
  KIPT_REQUIRE(tables.ok());
  const Chains selected = agent::ChainsOf(family, *tables, &selection);
  KIPT_REQUIRE(selected.size() == chains.size());
  for (const auto& [id, chain] : chains) {
    KIPT_REQUIRE(selected.count(id) == 1);
    const std::vector<ObservedRule>& rules = selected.at(id).rules;
    if (selection.chains.count(id) != 0) KIPT_REQUIRE(rules == chain.rules);
    if (selection.chains.count(id) == 0) KIPT_REQUIRE(rules.empty());
  }
}

void CheckSurvey(absl::string_view mode, Family family, const netlink::Survey& survey) {
  const auto again = agent::ParseSurvey(mode, family, ToString(survey), nullptr);
  KIPT_REQUIRE(again.ok());
  KIPT_REQUIRE(*again == survey);
}

}  // namespace

void FuzzSaveParser(FuzzBytes input) {
  const absl::string_view text = AsText(input);
  for (const Family family : netlink::kFamilies) {
    const auto survey = agent::ParseSurvey("legacy", family, text, nullptr);
    if (survey.ok()) CheckSurvey("legacy", family, *survey);
    if (!survey.ok()) KIPT_REQUIRE_REASON(survey.status());
    const absl::StatusOr<Chains> chains = agent::ParseSave(family, text);
    // A survey takes several saves for one, too.
    KIPT_REQUIRE(!chains.ok() || survey.ok());
    if (!chains.ok()) {
      KIPT_REQUIRE_REASON(chains.status());
      continue;
    }
    CheckChains(family, *chains);
    CheckSelection(family, text, *chains);
  }
  const auto file = agent::ParseSavedFile(text);
  if (!file.ok()) KIPT_REQUIRE_REASON(file.status());
  if (file.ok()) KIPT_REQUIRE(!file->tables.empty());
  // A leading comment line changes nothing.
  const auto tables = agent::ReadSave(text, agent::TablesMayRepeat::kYes);
  const std::string later = absl::StrCat("# now\n", text);
  const auto again = agent::ReadSave(later, agent::TablesMayRepeat::kYes);
  KIPT_REQUIRE(tables.ok() == again.ok());
  if (tables.ok()) KIPT_REQUIRE(absl::HashOf(*tables) == absl::HashOf(*again));
}

}  // namespace kipt::testing
