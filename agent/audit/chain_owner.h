// SPDX-License-Identifier: Apache-2.0
//
// The iptables chains of one family in a survey; and a rule's likely owner, by the comments of
// known programs (agent/policy/known_owners.h). Pure.
#ifndef KIPT_AGENT_AUDIT_CHAIN_OWNER_H_
#define KIPT_AGENT_AUDIT_CHAIN_OWNER_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agent/policy/known_owners.h"
#include "netlink/survey.h"

namespace kipt::agent {

// The program that wrote a rule of `chain`: the chain's owner. Others put rules into kubelet's
// chains and this agent's, too: there only kubelet's own forms, of any release, mark bit and label,
// are kubelet's. In a base chain a rule's comment decides, or the owner of the chain that it jumps
// to.
Owner OwnerOfRule(const netlink::TableId& table, absl::string_view chain, bool base,
                  const netlink::SurveyRule& rule);

// ---- the chains of a family ----

// The chain of `rule`'s jump or goto; empty if there is none.
absl::string_view JumpOf(const netlink::SurveyRule& rule);

// The iptables tables of one family, by name. A view: the survey must outlive it.
class FamilyChains {
 public:
  using Chains = netlink::SurveyChains;
  using RuleList = std::vector<netlink::SurveyRule>;

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
  // Its rules; none where it does not exist.
  const RuleList& Rules(absl::string_view table, absl::string_view chain) const;
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

#endif  // KIPT_AGENT_AUDIT_CHAIN_OWNER_H_
