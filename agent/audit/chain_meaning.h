// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/chain_meaning.h
//
// What the chains of kubelet and kube-proxy are, who made those that stand, and where packets go
// from them. Pure. Not installed.
#ifndef KIPT_AGENT_AUDIT_CHAIN_MEANING_H_
#define KIPT_AGENT_AUDIT_CHAIN_MEANING_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agent/audit/family_chains.h"
#include "agent/audit/kube_proxy_facts.h"

namespace kipt::agent {

// A sentence or two. Of a chain that nobody here knows: who owns it, as far as names tell.
std::string ChainMeaning(absl::string_view table, absl::string_view chain, bool base);

// Who put the chain that stands there, with the reason for thinking so.
std::string ChainMaker(const FamilyChains& chains, const KubeProxyFacts& proxy,
                       absl::string_view table, absl::string_view chain);

// What becomes of packets behind the chain, point by point; empty where its own rules say it all.
std::vector<std::string> WhereNext(const FamilyChains& chains, absl::string_view table,
                                   absl::string_view chain);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_CHAIN_MEANING_H_
