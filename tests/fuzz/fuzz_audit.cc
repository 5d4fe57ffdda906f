// SPDX-License-Identifier: Apache-2.0
//
// `audit` and `explain` on arbitrary rulesets: rule texts, names of chains and processes, and
// comments come from other programs. The JSON is JSON, the text is fit for a terminal, the numbers
// add up.
#include <string>

#include "agent/audit/allow_list.h"
#include "agent/audit/audit.h"
#include "agent/audit/explain.h"
#include "agent/audit/finding.h"
#include "agent/audit/node_view.h"
#include "agent/audit/rule_words.h"
#include "agent/detect/host_files.h"
#include "agent/policy/rule_forms.h"
#include "agent/xtables/saved_survey.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"
#include "tests/support/unescaped.h"

namespace kipt::testing {
namespace {

using netlink::Family;

bool IsFitForATerminal(absl::string_view text) { return FindUnescaped(text).empty(); }

void CheckWords(absl::string_view text) {
  const agent::RuleWords words = agent::ParseRuleWords(text);
  KIPT_REQUIRE(!agent::RuleSentence(words).empty());
  KIPT_REQUIRE(!agent::PacketText(words).empty());
  (void)agent::ServiceInComment(text);
}

void CheckExplanations(const netlink::Survey& survey) {
  const std::string missing = "nat/no such chain";
  for (const Family family : netlink::kFamilies) {
    KIPT_REQUIRE_REASON(agent::Explain(survey, family, missing).status());
    for (const absl::string_view name :
         {agent::kMarkMasqChain, agent::kPostroutingChain, agent::kFirewallChain,
          agent::kMarkDropChain, absl::string_view("INPUT")}) {
      const auto explanation = agent::Explain(survey, family, name);
      if (!explanation.ok()) {
        KIPT_REQUIRE_REASON(explanation.status());
        continue;
      }
      KIPT_REQUIRE(IsFitForATerminal(agent::ExplainText(*explanation)));
      KIPT_REQUIRE(nlohmann::json::accept(agent::ExplainJson(*explanation)));
    }
  }
}

void CheckReport(const agent::NodeView& view, const agent::AuditReport& report) {
  KIPT_REQUIRE(report.errors + report.warnings + report.infos + report.allowed ==
               report.findings.size());
  for (const agent::AuditFinding& finding : report.findings) {
    KIPT_REQUIRE(!finding.message.empty());
    KIPT_REQUIRE(agent::AuditKindFromName(AuditKindName(finding.kind)) == finding.kind);
    KIPT_REQUIRE(finding.rules.size() <= finding.count);
  }
  KIPT_REQUIRE(IsFitForATerminal(agent::AuditText(report)));
  KIPT_REQUIRE(nlohmann::json::accept(agent::AuditJson(report)));
  const std::string dot = agent::AuditDot(view, report);
  KIPT_REQUIRE(!dot.empty() && IsFitForATerminal(dot));
}

}  // namespace

// With a form feed between them: a save, one more of the other mode, the name of the namespace, a
// CNI configuration, the text of a routing rule, an allow list, a rule's text.
void FuzzAudit(FuzzBytes input) {
  constexpr char kSeparator = '\f';
  absl::string_view rest = AsText(input);
  agent::NodeView view;
  for (const char* const mode : {"nft", "legacy"}) {
    absl::StatusOr<netlink::Survey> survey = agent::ParseSavedFile(TakePart(rest, kSeparator));
    if (!survey.ok()) continue;
    survey->mode = mode;
    CheckExplanations(*survey);
    view.surveys.push_back(*std::move(survey));
  }
  view.name = std::string(TakePart(rest, kSeparator));
  const auto cni =
      agent::ParseCniConfig("/etc/cni/net.d/fuzz.conflist", TakePart(rest, kSeparator));
  if (cni.ok()) view.cni.references = *cni;
  const absl::string_view rule = TakePart(rest, kSeparator);
  if (!rule.empty()) {
    view.ip_rules = {{.family = Family::kIPv4, .mark = 0x4000, .text = std::string(rule)}};
  }
  const auto allow = agent::ParseAllowList(TakePart(rest, kSeparator));
  if (!allow.ok()) KIPT_REQUIRE_REASON(allow.status());
  CheckWords(rest);
  const agent::AuditOptions options = {.allow = allow.ok() ? *allow : agent::AllowList()};
  CheckReport(view, agent::Audit({&view, 1}, options));
}

}  // namespace kipt::testing
