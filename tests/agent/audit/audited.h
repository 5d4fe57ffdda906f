// SPDX-License-Identifier: Apache-2.0
//
// Rulesets to audit: of testdata, or written in the test.
#ifndef KIPT_TESTS_AGENT_AUDIT_AUDITED_H_
#define KIPT_TESTS_AGENT_AUDIT_AUDITED_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "agent/audit/audit.h"
#include "agent/audit/finding.h"
#include "agent/audit/node_view.h"
#include "agent/policy/policy.h"
#include "agent/xtables/saved_survey.h"
#include "netlink/survey.h"
#include "tests/support/observed.h"
#include "tests/support/surveyed.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {

// `name` is "audited/portmap-v4.save"; empty text where there is none, which no test passes with.
inline std::string ReadTestdata(const std::string& name) {
  return FileText(absl::StrCat(KIPT_TESTDATA_DIR, "/", name));
}

inline netlink::Survey SurveyOfText(absl::string_view mode, netlink::Family family,
                                    absl::string_view text) {
  absl::StatusOr<netlink::Survey> survey = ParseSurvey(mode, family, text, {});
  if (survey.ok()) return *std::move(survey);
  ADD_FAILURE() << survey.status();
  netlink::Survey nothing;
  nothing.mode = std::string(mode);
  return nothing;
}

// Both families of one mode.
inline netlink::Survey SurveyOf(absl::string_view mode, absl::string_view v4,
                                absl::string_view v6 = "") {
  netlink::Survey survey = SurveyOfText(mode, netlink::Family::kIPv4, v4);
  for (auto& [table, chains] : SurveyOfText(mode, netlink::Family::kIPv6, v6).tables) {
    survey.tables[table] = std::move(chains);
  }
  return survey;
}

// Table nat of IPv4, with these user chains and rules ("-A CHAIN ...").
inline std::string NatText(const std::vector<std::string>& chains,
                           const std::vector<std::string>& rules) {
  std::string text =
      "*nat\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
      ":POSTROUTING ACCEPT [0:0]\n";
  for (const std::string& chain : chains) absl::StrAppend(&text, ":", chain, " - [0:0]\n");
  for (const std::string& rule : rules) absl::StrAppend(&text, rule, "\n");
  return text + "COMMIT\n";
}

// `text` with rules ("-A CHAIN ...") in one of its tables, and the chains that they are in.
inline std::string WithRules(std::string text, const std::string& table,
                             const std::vector<std::string>& rules) {
  for (const std::string& rule : rules) {
    const size_t begin = text.find("*" + table + "\n") + table.size() + 2;
    const std::vector<std::string> words = absl::StrSplit(rule, absl::MaxSplits(' ', 2));
    const std::string chain = absl::StrCat(":", words[1], " ");
    const size_t end = text.find("COMMIT", begin);
    text.insert(end, rule + "\n");
    if (text.find(chain, begin) > end) text.insert(begin, chain + "- [0:0]\n");
  }
  return text;
}

// What kube-proxy 1.28 writes, with rules of others in tables nat and filter.
inline netlink::Survey WithKubeProxy(const std::vector<std::string>& nat,
                                     const std::vector<std::string>& filter = {},
                                     const std::string& mode = "nft") {
  const std::string text = ReadTestdata("rulesets/kube-proxy-1.28-A-v4.save");
  return SurveyOf(mode, WithRules(WithRules(text, "nat", nat), "filter", filter));
}

// What this agent makes of `input`, of one family.
inline std::string MadeText(const PolicyInput& input) {
  const char pre[] = ":PREROUTING ACCEPT [0:0]\n";
  const char in[] = ":INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n";
  const char post[] = ":POSTROUTING ACCEPT [0:0]\n";
  return absl::StrReplaceAll(
      testing::ToText(DesiredRuleset(input)),
      {{"-I ", "-A "},
       {"*mangle\n", absl::StrCat("*mangle\n", pre, in, ":FORWARD ACCEPT [0:0]\n", post)},
       {"*nat\n", absl::StrCat("*nat\n", pre, in, post)},
       {"*filter\n", absl::StrCat("*filter\n", in, ":FORWARD ACCEPT [0:0]\n")}});
}

inline AuditReport Audit(const NodeView& view, const AuditOptions& options) {
  return Audit(absl::MakeConstSpan(&view, 1), options);
}

inline NodeView ViewOf(netlink::Survey survey) {
  NodeView view;
  view.surveys.push_back(std::move(survey));
  return view;
}

// "error ChainUser nat/KUBE-MARK-MASQ": a finding in one line, without "nft ip".
inline std::string Line(const AuditFinding& finding) {
  return absl::StrCat(finding.allowed ? "allowed" : AuditSeverityName(finding.severity), " ",
                      AuditKindName(finding.kind), finding.chain.empty() ? "" : " ", finding.chain);
}

inline std::vector<std::string> Lines(const AuditReport& report) {
  std::vector<std::string> lines;
  for (const AuditFinding& finding : report.findings) lines.push_back(Line(finding));
  return lines;
}

// Of a file of testdata, in iptables-nft.
inline AuditReport AuditFile(const std::string& name, const AuditOptions& options = {}) {
  const std::string text = ReadTestdata(name);
  EXPECT_NE(text, "") << name;
  return Audit(ViewOf(SurveyOf("nft", text)), options);
}

// The first of `kind`; null where there is none.
inline const AuditFinding* FindKind(const AuditReport& report, AuditKind kind) {
  for (const AuditFinding& finding : report.findings) {
    if (finding.kind == kind) return &finding;
  }
  return nullptr;
}

// All that is reported about the first of `kind`, its Line first; empty if there is none.
inline std::string Described(const AuditReport& report, AuditKind kind) {
  const AuditFinding* finding = FindKind(report, kind);
  if (finding == nullptr) return "";
  return absl::StrCat(Line(*finding), "\n", finding->family, ", ", OwnerName(finding->owner), ", ",
                      finding->count, ": ", finding->message, "\n", finding->consequence, "\n-> ",
                      finding->remedy, "\n", absl::StrJoin(finding->details, "\n"), "\n");
}

}  // namespace kipt::agent

#endif  // KIPT_TESTS_AGENT_AUDIT_AUDITED_H_
