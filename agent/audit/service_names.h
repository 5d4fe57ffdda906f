// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/service_names.h
//
// Which service a rule of kube-proxy's is about. Not installed.
#ifndef KIPT_AGENT_AUDIT_SERVICE_NAMES_H_
#define KIPT_AGENT_AUDIT_SERVICE_NAMES_H_

#include <map>
#include <optional>
#include <string>

#include "agent/audit/family_chains.h"
#include "agent/audit/rule_words.h"

namespace kipt::agent {

// By the rule's comment; where it has none, as those of kube-proxy 1.17 in KUBE-SVC-* and
// KUBE-SEP-*, by those of the rules that lead to its chain, which are looked through once.
class ServiceNames {
 public:
  // A view: `chains` must outlive it.
  explicit ServiceNames(const FamilyChains& chains) : chains_(chains) {}

  // Empty where nothing tells.
  std::string Of(const std::string& chain, const RuleWords& words);

 private:
  void Look();

  const FamilyChains& chains_;
  std::optional<std::map<std::string, std::string>> of_chain_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_SERVICE_NAMES_H_
