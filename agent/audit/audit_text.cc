// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "agent/audit/audit.h"
#include "agent/audit/audit_parts.h"
#include "agent/audit/explain.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

using featuregates::Printable;

constexpr size_t kColumns = 96;

std::string PacketsText(const std::optional<uint64_t>& packets) {
  if (!packets) return "";
  if (*packets == 0) return ", hit by no packet";
  return absl::StrCat(", hit by ", *packets, *packets == 1 ? " packet" : " packets");
}

// "[pod1] nft ip nat/KUBE-MARK-MASQ".
std::string PlaceText(const AuditFinding& finding) {
  std::vector<std::string> words;
  if (!finding.netns.empty()) words.push_back(absl::StrCat("[", Printable(finding.netns), "]"));
  for (const std::string* word : {&finding.iptables_mode, &finding.family, &finding.chain}) {
    if (!word->empty()) words.push_back(Printable(*word));
  }
  return absl::StrJoin(words, " ");
}

std::string RulesText(const AuditFinding& finding) {
  std::string text;
  for (const AuditedRule& rule : finding.rules) {
    absl::StrAppend(&text, "      -A ", Printable(rule.chain), " ", Printable(rule.text), "\n");
  }
  if (!finding.rules.empty() && finding.count > finding.rules.size()) {
    absl::StrAppend(&text, "      ... and ", finding.count - finding.rules.size(), " more\n");
  }
  for (const std::string& detail : finding.details) {
    absl::StrAppend(&text, "      ", Printable(detail), "\n");
  }
  return text;
}

std::string FindingText(const AuditFinding& finding) {
  const std::string place = PlaceText(finding);
  std::string text = absl::StrFormat(
      "%-8s%s%s%s\n", finding.allowed ? "allowed" : AuditSeverityName(finding.severity),
      AuditKindName(finding.kind), place.empty() ? "" : "  ", place);
  const bool rules = !finding.rules.empty();
  absl::StrAppend(&text,
                  Wrapped(absl::StrCat(Printable(finding.message),
                                       rules ? absl::StrCat(" (", finding.count,
                                                            finding.count == 1 ? " rule" : " rules",
                                                            PacketsText(finding.packets), ")")
                                             : ""),
                          4));
  absl::StrAppend(&text, RulesText(finding));
  if (finding.allowed) {
    absl::StrAppend(&text, Wrapped(Printable(*finding.allowed), 4, "allowed: "));
    return text;
  }
  if (!finding.consequence.empty()) {
    absl::StrAppend(&text, Wrapped(Printable(finding.consequence), 4));
  }
  if (!finding.remedy.empty()) absl::StrAppend(&text, Wrapped(Printable(finding.remedy), 4, "-> "));
  return text;
}

std::string ExampleText(const ExplainedRule& rule) {
  return absl::StrCat(Wrapped(Printable(rule.sentence), 6, "- "), "        -A ",
                      Printable(rule.chain), " ", Printable(rule.text), "\n");
}

std::string GroupText(const PurposeGroup& group) {
  std::string text = absl::StrCat(
      "\n", Wrapped(absl::StrCat(group.count, group.count == 1 ? " rule" : " rules",
                                 PacketsText(group.packets), ": ", Printable(group.title)),
                    2));
  if (!group.reason.empty()) absl::StrAppend(&text, Wrapped(Printable(group.reason), 4));
  for (const ExplainedRule& rule : group.examples) absl::StrAppend(&text, ExampleText(rule));
  if (group.count > group.examples.size()) {
    absl::StrAppend(&text, "      ... and ", group.count - group.examples.size(), " more\n");
  }
  return text;
}

}  // namespace

std::string Wrapped(absl::string_view text, size_t indent, absl::string_view lead) {
  const std::string margin(indent, ' ');
  std::string wrapped = absl::StrCat(margin, lead);
  size_t column = wrapped.size();
  const std::string next_margin(indent + lead.size(), ' ');
  bool first = true;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (!first && column + 1 + word.size() > kColumns) {
      absl::StrAppend(&wrapped, "\n", next_margin);
      column = next_margin.size();
    } else if (!first) {
      wrapped += ' ';
      ++column;
    }
    absl::StrAppend(&wrapped, word);
    column += word.size();
    first = false;
  }
  return wrapped + "\n";
}

std::string AuditText(const AuditReport& report) {
  std::string text;
  for (const AuditFinding& finding : report.findings) {
    absl::StrAppend(&text, FindingText(finding), "\n");
  }
  absl::StrAppend(&text, report.errors, report.errors == 1 ? " error, " : " errors, ",
                  report.warnings, report.warnings == 1 ? " warning, " : " warnings, ",
                  report.infos, " for information", report.allowed == 0 ? "" : ", ",
                  report.allowed == 0 ? "" : absl::StrCat(report.allowed, " allowed"), "\n");
  return text;
}

std::string ExplainText(const Explanation& explanation) {
  std::string text =
      absl::StrCat(Printable(explanation.chain), "  (", explanation.iptables_mode,
                   explanation.iptables_mode.empty() ? "" : " ", explanation.family, ")\n",
                   Wrapped(Printable(explanation.what), 2),
                   Wrapped(Printable(explanation.maker), 2, "made by: "), "\nin short\n");
  for (const std::string& point : explanation.in_short) {
    absl::StrAppend(&text, Wrapped(Printable(point), 2, "- "));
  }
  if (!explanation.purposes.empty()) absl::StrAppend(&text, "\nwho leads here, and why\n");
  for (const PurposeGroup& group : explanation.purposes) absl::StrAppend(&text, GroupText(group));
  absl::StrAppend(&text, "\nwhat it does\n");
  if (explanation.rules.empty()) absl::StrAppend(&text, "  nothing: it has no rules\n");
  size_t number = 0;
  for (const ExplainedRule& rule : explanation.rules) {
    absl::StrAppend(&text, Wrapped(Printable(rule.sentence), 2, absl::StrCat(++number, ". ")),
                    "       ", Printable(rule.text), "\n");
  }
  if (explanation.rule_count > explanation.rules.size()) {
    absl::StrAppend(&text, "  ... and ", explanation.rule_count - explanation.rules.size(),
                    " more\n");
  }
  if (!explanation.next.empty()) absl::StrAppend(&text, "\nwhere packets go next\n");
  for (const std::string& next : explanation.next) {
    absl::StrAppend(&text, Wrapped(Printable(next), 2, "- "));
  }
  return text;
}

}  // namespace kipt::agent
