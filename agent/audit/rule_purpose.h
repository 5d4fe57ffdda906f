// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/rule_purpose.h
//
// What a rule that leads to one of kubelet's chains is for. Pure.
#ifndef KIPT_AGENT_AUDIT_RULE_PURPOSE_H_
#define KIPT_AGENT_AUDIT_RULE_PURPOSE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "agent/audit/chain_owner.h"
#include "agent/audit/rule_words.h"
#include "netlink/survey.h"

namespace kipt::agent {

enum class Purpose : uint8_t {
  // To nat/KUBE-MARK-MASQ:
  kOutsidePodRange,
  kHairpin,
  kExternal,
  kExternalFromNode,
  kExternalIp,
  kLoadBalancer,
  kNodePort,
  kNodePortLoopback,
  kMasqueradeAll,
  kHostPortHairpin,
  kHostPortLoopback,
  // To nat/KUBE-MARK-DROP:
  kSourceRanges,
  kNoLocalEndpoints,
  // To anything:
  kBaseJump,
  kThirdParty,
  kOther,
};
absl::string_view PurposeName(Purpose purpose);  // "OutsidePodRange", ...
// "source outside the pod range %s, to a cluster IP"; %s is `parameter`.
std::string PurposeTitle(Purpose purpose, absl::string_view parameter);
// Why Kubernetes, or whoever it is, needs that: a paragraph. Empty where nobody can tell.
absl::string_view PurposeReason(Purpose purpose);

struct RulePurpose {
  Purpose purpose = Purpose::kOther;
  // What groups of one purpose differ in: the pod range, the interface, the chain it stands in.
  std::string parameter = {};
};

// `target` is the chain that the rule leads to, as TABLE/CHAIN; `owner` the rule's.
RulePurpose PurposeOf(absl::string_view target, absl::string_view chain, bool base, Owner owner,
                      const RuleWords& words);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_RULE_PURPOSE_H_
