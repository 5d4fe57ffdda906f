// SPDX-License-Identifier: Apache-2.0
//
// The iptables chains of one family in a survey; and whose a chain or a rule is, by the names and
// comments that programs are known by: a likely owner, for people. Nothing is ever changed because
// of it. Pure.
#ifndef KIPT_AGENT_AUDIT_CHAIN_OWNER_H_
#define KIPT_AGENT_AUDIT_CHAIN_OWNER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "netlink/survey.h"

namespace kipt::agent {

enum class Owner : uint8_t {
  kUnknown,
  // A chain on a hook, which is everybody's.
  kBaseChain,
  // Kubelet's, or this agent's in its place.
  kKubelet,
  kKubeProxy,      // iptables mode, and what its modes share
  kKubeProxyIpvs,  // what only its IPVS mode makes
  kKubeProxyNftables,
  kKpng,
  // The native table, and the chains of the gate ConnLabelMarking (IsPrivateChain).
  kThisAgent,
  kKubeRouter,
  kPortmap,
  kHostPorts,  // CRI-O up to 1.26, or dockershim (kubelet up to 1.23): one and the same names
  kCrio,
  kCalico,
  kCilium,
  kFlannel,
  kWeave,
  kAntrea,
  kDocker,
  kFirewalld,
  kIpMasqAgent,
  kNodeLocalDns,
};

// "kubelet", "kube-proxy (IPVS)", "the CNI plugin portmap"; "unknown".
absl::string_view OwnerName(Owner owner);

// Kubernetes' own: kubelet, kube-proxy of any mode.
bool IsKubernetes(Owner owner);
// Kubelet's, or this agent's, which takes kubelet's place.
bool IsKubeletsOrOurs(Owner owner);

// By table and name; a base chain is everybody's.
Owner OwnerOfChain(const netlink::TableId& table, absl::string_view chain, bool base = false);

// nat KUBELET-MARK-MASQ and the like: of this agent alone, and for nobody else's use. `table` as in
// TableId::name.
bool IsPrivateChain(absl::string_view table, absl::string_view chain);
// `place` is "nat/KUBELET-MARK-MASQ".
bool IsPrivateChain(absl::string_view place);

// Who wrote a rule of `chain`. In a chain of somebody's own: they did, but for kubelet's chains and
// this agent's, where others put rules too: there only kubelet's own forms, of any release, mark
// bit and label, are kubelet's. In a base chain, by its comment, or by whose chain it jumps to.
Owner OwnerOfRule(const netlink::TableId& table, absl::string_view chain, bool base,
                  const netlink::SurveyRule& rule);

// "KUBE-SVC-*" for the chains that a program makes one of per service, endpoint, pod or container;
// else the name itself. A view of `chain` or of static storage.
absl::string_view ChainGroup(absl::string_view chain);

// ---- the chains of a family ----

// The chain that `rule` jumps or goes to; empty where it does not.
absl::string_view JumpOf(const netlink::SurveyRule& rule);

// The iptables tables of one family, by name. A view: the survey must outlive it.
class FamilyChains {
 public:
  using Chains = std::map<std::string, netlink::SurveyChain>;
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
