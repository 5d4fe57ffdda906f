// SPDX-License-Identifier: Apache-2.0
//
// The audit's only file that includes nlohmann/json, which is slow to compile.
#include <nlohmann/json.hpp>

#include "agent/audit/audit.h"
#include "agent/audit/explain.h"

namespace kipt::agent {
namespace {

using Json = nlohmann::ordered_json;

// Abseil's string_view is not the standard one in Debian 12.
std::string Text(absl::string_view text) { return std::string(text); }

Json PacketsJson(const std::optional<uint64_t>& packets) {
  return packets ? Json(*packets) : Json(nullptr);
}

Json FindingJson(const AuditFinding& finding) {
  Json rules = Json::array();
  for (const AuditedRule& rule : finding.rules) {
    rules.push_back({{"chain", rule.chain}, {"rule", rule.text}, {"packets", rule.packets}});
  }
  Json json = {{"id", Text(AuditKindName(finding.kind))},
               {"severity", Text(AuditSeverityName(finding.severity))},
               {"netns", finding.netns},
               {"iptablesMode", finding.iptables_mode},
               {"family", finding.family},
               {"chain", finding.chain},
               {"owner", Text(OwnerName(finding.owner))},
               {"message", finding.message},
               {"count", finding.count},
               {"packets", PacketsJson(finding.packets)},
               {"rules", std::move(rules)},
               {"details", finding.details},
               {"consequence", finding.consequence},
               {"remedy", finding.remedy},
               {"allowed", finding.allowed.has_value()}};
  if (finding.allowed) json["allowedBecause"] = *finding.allowed;
  return json;
}

Json ProxyJson(const KubeProxyFacts& facts) {
  return {{"iptablesMode", facts.iptables_mode},
          {"family", Text(netlink::FamilyName(facts.family))},
          {"mode", Text(KubeProxyModeName(facts.mode))},
          {"release", GenerationText(facts)},
          {"oldestMinor", facts.oldest == 0 ? Json(nullptr) : Json(facts.oldest)},
          {"newestMinor", facts.newest == 0 ? Json(nullptr) : Json(facts.newest)},
          {"leftovers", facts.leftovers},
          {"evidence", facts.evidence}};
}

Json RulesJson(const std::vector<ExplainedRule>& rules) {
  Json json = Json::array();
  for (const ExplainedRule& rule : rules) {
    json.push_back({{"chain", rule.chain},
                    {"rule", rule.text},
                    {"meaning", rule.sentence},
                    {"packets", rule.packets}});
  }
  return json;
}

// As of report_json.cc.
std::string Print(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string AuditJson(const AuditReport& report) {
  Json findings = Json::array();
  for (const AuditFinding& finding : report.findings) findings.push_back(FindingJson(finding));
  Json proxies = Json::array();
  for (const KubeProxyFacts& facts : report.kube_proxy) proxies.push_back(ProxyJson(facts));
  return Print({{"findings", std::move(findings)},
                {"kubeProxy", std::move(proxies)},
                {"errors", report.errors},
                {"warnings", report.warnings},
                {"infos", report.infos},
                {"allowed", report.allowed}});
}

std::string ExplainJson(const Explanation& explanation) {
  Json purposes = Json::array();
  for (const PurposeGroup& group : explanation.purposes) {
    purposes.push_back({{"id", Text(PurposeName(group.purpose))},
                        {"title", group.title},
                        {"reason", group.reason},
                        {"owner", Text(OwnerName(group.owner))},
                        {"count", group.count},
                        {"packets", PacketsJson(group.packets)},
                        {"examples", RulesJson(group.examples)}});
  }
  return Print({{"chain", explanation.chain},
                {"iptablesMode", explanation.iptables_mode},
                {"family", explanation.family},
                {"owner", Text(OwnerName(explanation.owner))},
                {"what", explanation.what},
                {"madeBy", explanation.maker},
                {"inShort", explanation.in_short},
                {"users", explanation.users},
                {"purposes", std::move(purposes)},
                {"ruleCount", explanation.rule_count},
                {"rules", RulesJson(explanation.rules)},
                {"next", explanation.next}});
}

}  // namespace kipt::agent
