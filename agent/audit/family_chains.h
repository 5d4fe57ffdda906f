// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/family_chains.h
//
// The iptables tables of one family in a survey, by name. A view: the survey must outlive it.
#ifndef KIPT_AGENT_AUDIT_FAMILY_CHAINS_H_
#define KIPT_AGENT_AUDIT_FAMILY_CHAINS_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "netlink/survey.h"

namespace kipt::agent {

// The chain that `rule` jumps or goes to; empty where it does not.
absl::string_view JumpOf(const netlink::SurveyRule& rule);

class FamilyChains {
 public:
  using Chains = std::map<std::string, netlink::SurveyChain>;

  FamilyChains(const netlink::Survey& survey, netlink::Family family);

  const netlink::Survey& survey() const { return survey_; }
  netlink::Family family() const { return family_; }
  // "ip" or "ip6".
  const std::string& name() const { return name_; }

  netlink::TableId Id(absl::string_view table) const;
  // The chains of `table`; none where it does not exist.
  const Chains& In(absl::string_view table) const;
  // Null where it does not exist.
  const netlink::SurveyChain* Find(absl::string_view table, absl::string_view chain) const;
  bool Has(absl::string_view table, absl::string_view chain) const {
    return Find(table, chain) != nullptr;
  }
  // A base chain of the same table jumps to it: packets come there. `from` limits it to one.
  bool HangsOnBase(absl::string_view table, absl::string_view chain,
                   absl::string_view from = "") const;
  // Any of the tables mangle, nat and filter has it.
  bool HasAnywhere(absl::string_view chain) const;

 private:
  const netlink::Survey& survey_;
  netlink::Family family_;
  std::string name_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_FAMILY_CHAINS_H_
