// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/service_names.h"

#include "absl/strings/match.h"

namespace kipt::agent {

std::string ServiceNames::Of(const std::string& chain, const RuleWords& words) {
  const absl::string_view named = ServiceInComment(words.comment);
  if (!named.empty()) return std::string(named);
  if (!absl::StartsWith(chain, "KUBE-S") || chain == "KUBE-SERVICES") return "";
  if (!of_chain_) Look();
  const auto found = of_chain_->find(chain);
  return found == of_chain_->end() ? "" : found->second;
}

void ServiceNames::Look() {
  of_chain_.emplace();
  // Services first: they name the chains of their endpoints.
  for (const bool services : {true, false}) {
    for (const auto& [name, chain] : chains_.In("nat")) {
      const bool is_service = absl::StartsWith(name, "KUBE-SVC-");
      if (services ? is_service : !is_service) continue;
      for (const netlink::SurveyRule& rule : chain.rules) {
        if (!absl::StartsWith(rule.jump, "KUBE-S")) continue;
        const RuleWords words = ParseRuleWords(rule.text);
        std::string service(ServiceInComment(words.comment));
        if (service.empty()) {
          const auto own = of_chain_->find(name);
          if (own != of_chain_->end()) service = own->second;
        }
        if (!service.empty()) of_chain_->try_emplace(rule.jump, service);
      }
    }
  }
}

}  // namespace kipt::agent
