// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/explain_parts.h
//
// What an explanation is put together from: what a chain is, what a rule is for, and what it does,
// in plain words. Pure. Not installed.
#ifndef KIPT_AGENT_AUDIT_EXPLAIN_PARTS_H_
#define KIPT_AGENT_AUDIT_EXPLAIN_PARTS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agent/audit/chain_owner.h"
#include "agent/audit/explain.h"
#include "agent/audit/family_chains.h"
#include "agent/audit/kube_proxy_facts.h"
#include "agent/audit/rule_words.h"

namespace kipt::agent {

// ---- chains ----

// A sentence or two. Of a chain that nobody here knows: who owns it, as far as names tell.
std::string ChainMeaning(absl::string_view table, absl::string_view chain, bool base);

// Who put the chain that stands there, with the reason for thinking so.
std::string ChainMaker(const FamilyChains& chains, const KubeProxyFacts& proxy,
                       absl::string_view table, absl::string_view chain);

// What becomes of packets behind the chain, point by point; empty where its own rules say it all.
std::vector<std::string> WhereNext(const FamilyChains& chains, absl::string_view table,
                                   absl::string_view chain);

// ---- what a rule that leads to one of kubelet's chains is for ----

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

// ---- one rule in plain words ----

// Which packets: "a tcp packet from outside 10.244.0.0/16 to 10.96.0.10 port 9153", "every packet".
std::string PacketText(const RuleWords& words);

// What is done with them: "is dropped", "goes on in KUBE-SVC-X".
std::string ActionText(const RuleWords& words);

// Both: "every packet gets mark bit 14 (0x4000)".
std::string RuleSentence(const RuleWords& words);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_EXPLAIN_PARTS_H_
