// SPDX-License-Identifier: Apache-2.0
//
// Findings and explanations as text for people and as JSON for programs.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "agent/audit/audit.h"
#include "agent/audit/explain.h"
#include "agent/audit/finding.h"
#include "agent/audit/json.h"
#include "agent/audit/kube_proxy_facts.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

// ---- text ----

// A paragraph of what other programs wrote; nothing where they wrote nothing.
void Append(std::string& text, absl::string_view words, size_t indent, absl::string_view lead = "",
            size_t columns = 96) {
  if (!words.empty()) text += Wrapped(Printable(words), indent, lead, columns);
}

void AppendMore(std::string& text, size_t count, size_t shown, size_t indent = 6) {
  if (count <= shown) return;
  absl::StrAppend(&text, std::string(indent, ' '), "... and ", count - shown, " more\n");
}

// "2 rules, hit by 5 packets".
std::string RulesText(size_t count, const std::optional<uint64_t>& packets) {
  return absl::StrCat(Counted(count, "rule"),
                      !packets        ? ""
                      : *packets == 0 ? ", hit by no packet"
                                      : absl::StrCat(", hit by ", Counted(*packets, "packet")));
}

// "[pod1] nft ip nat/KUBE-MARK-MASQ".
std::string PlaceText(const AuditFinding& finding) {
  std::string text = finding.netns.empty() ? "" : absl::StrCat("  [", finding.netns, "]");
  for (const std::string* word : {&finding.iptables_mode, &finding.family, &finding.chain}) {
    if (!word->empty()) absl::StrAppend(&text, text.empty() ? "  " : " ", *word);
  }
  return text;
}

void AppendGroup(std::string& text, const PurposeGroup& group) {
  text += "\n";
  Append(text, absl::StrCat(RulesText(group.count, group.packets), ": ", group.title), 2);
  Append(text, group.reason, 4);
  for (const AuditedRule& rule : group.examples) {
    Append(text, rule.sentence, 6, "- ");
    AppendLine(text, "        -A ", rule.chain, " ", rule.text);
  }
  AppendMore(text, group.count, group.examples.size());
}

// ---- JSON ----

Json RuleJson(const AuditedRule& rule) {
  Json json = {{"chain", rule.chain}, {"rule", rule.text}};
  if (!rule.sentence.empty()) json["meaning"] = rule.sentence;
  json["packets"] = rule.packets;
  return json;
}

Json ProxyJson(const KubeProxyFacts& facts) {
  return {{"iptablesMode", facts.iptables_mode},
          {"family", netlink::FamilyName(facts.family)},
          {"mode", KubeProxyModeName(facts.mode)},
          {"release", GenerationText(facts)},
          {"oldestMinor", facts.oldest == 0 ? Json(nullptr) : Json(facts.oldest)},
          {"newestMinor", facts.newest == 0 ? Json(nullptr) : Json(facts.newest)},
          {"leftovers", facts.leftovers},
          {"evidence", facts.evidence}};
}

Json GroupJson(const PurposeGroup& group) {
  return {{"id", group.id},
          {"title", group.title},
          {"reason", group.reason},
          {"owner", OwnerName(group.owner)},
          {"count", group.count},
          {"packets", group.packets},
          {"examples", List(group.examples, RuleJson)}};
}

}  // namespace

std::string FindingText(const AuditFinding& finding, size_t columns) {
  std::string text;
  AppendLine(
      text,
      absl::StrFormat("%-8s%s%s", finding.allowed ? "allowed" : AuditSeverityName(finding.severity),
                      AuditKindName(finding.kind), PlaceText(finding)));
  Append(text,
         finding.rules.empty()
             ? finding.message
             : absl::StrCat(finding.message, " (", RulesText(finding.count, finding.packets), ")"),
         4, "", columns);
  for (const AuditedRule& rule : finding.rules) {
    AppendLine(text, "      -A ", rule.chain, " ", rule.text);
  }
  for (const std::string& detail : finding.details) AppendLine(text, "      ", detail);
  const size_t shown = std::max(finding.rules.size(), finding.details.size());
  if (shown != 0) AppendMore(text, finding.count, shown);
  if (finding.allowed) {
    Append(text, *finding.allowed, 4, "allowed: ", columns);
  } else {
    Append(text, finding.consequence, 4, "", columns);
    Append(text, finding.remedy, 4, "-> ", columns);
    Append(text, finding.source, 4, "see ", columns);
  }
  return text;
}

Json FindingJson(const AuditFinding& finding) {
  Json json = {{"id", AuditKindName(finding.kind)},
               {"severity", AuditSeverityName(finding.severity)},
               {"netns", finding.netns},
               {"iptablesMode", finding.iptables_mode},
               {"family", finding.family},
               {"chain", finding.chain},
               {"owner", OwnerName(finding.owner)},
               {"message", finding.message},
               {"count", finding.count},
               {"packets", finding.packets},
               {"rules", List(finding.rules, RuleJson)},
               {"details", finding.details},
               {"consequence", finding.consequence},
               {"remedy", finding.remedy},
               {"source", finding.source},
               {"allowed", finding.allowed.has_value()}};
  if (finding.allowed) json["allowedBecause"] = *finding.allowed;
  return json;
}

std::string AuditText(const AuditReport& report) {
  std::string text;
  for (const AuditFinding& finding : report.findings) {
    absl::StrAppend(&text, FindingText(finding), "\n");
  }
  if (report.more != 0) {
    absl::StrAppend(&text, "... and ", Counted(report.more, "finding"),
                    " more: run kube-iptables-agent audit\n\n");
  }
  absl::StrAppend(&text, Counted(report.errors, "error"), ", ", Counted(report.warnings, "warning"),
                  ", ", report.infos, " for information",
                  report.allowed == 0 ? "" : absl::StrCat(", ", report.allowed, " allowed"),
                  report.change == NodeChange::kOwnershipCleanup
                      ? ""
                      : absl::StrCat(" before ", ChangeName(report.change)),
                  "\n");
  return text;
}

Json ReportJson(const AuditReport& report) {
  Json json = {{"before", ChangeName(report.change)},
               {"findings", List(report.findings, FindingJson)},
               {"kubeProxy", List(report.kube_proxy, ProxyJson)},
               {"errors", report.errors},
               {"warnings", report.warnings},
               {"infos", report.infos},
               {"allowed", report.allowed}};
  if (report.more != 0) json["more"] = report.more;
  return json;
}

std::string AuditJson(const AuditReport& report) { return Print(ReportJson(report)); }

std::string ExplainText(const Explanation& explanation) {
  std::string text;
  AppendLine(text, explanation.chain, "  (", explanation.iptables_mode,
             explanation.iptables_mode.empty() ? "" : " ", explanation.family, ")");
  Append(text, explanation.what, 2);
  Append(text, explanation.maker, 2, "made by: ");
  text += "\nin short\n";
  for (const std::string& point : explanation.in_short) Append(text, point, 2, "- ");
  if (!explanation.purposes.empty()) text += "\nwho leads here, and why\n";
  for (const PurposeGroup& group : explanation.purposes) AppendGroup(text, group);
  text += "\nwhat it does\n";
  if (explanation.rules.empty()) text += "  nothing: it has no rules\n";
  size_t number = 0;
  for (const AuditedRule& rule : explanation.rules) {
    Append(text, rule.sentence, 2, absl::StrCat(++number, ". "));
    AppendLine(text, "       ", rule.text);
  }
  AppendMore(text, explanation.rule_count, explanation.rules.size(), 2);
  if (!explanation.next.empty()) text += "\nwhere packets go next\n";
  for (const std::string& next : explanation.next) Append(text, next, 2, "- ");
  return text;
}

std::string ExplainJson(const Explanation& explanation) {
  return Print({{"chain", explanation.chain},
                {"iptablesMode", explanation.iptables_mode},
                {"family", explanation.family},
                {"owner", OwnerName(explanation.owner)},
                {"what", explanation.what},
                {"madeBy", explanation.maker},
                {"inShort", explanation.in_short},
                {"users", explanation.users},
                {"purposes", List(explanation.purposes, GroupJson)},
                {"ruleCount", explanation.rule_count},
                {"rules", List(explanation.rules, RuleJson)},
                {"next", explanation.next}});
}

}  // namespace kipt::agent
