// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/audit_advice.h
//
// What becomes of kubelet's chains once IPTablesOwnershipCleanup is on, and what those who use them
// can do. Not installed.
#ifndef KIPT_AGENT_AUDIT_AUDIT_ADVICE_H_
#define KIPT_AGENT_AUDIT_AUDIT_ADVICE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "agent/audit/chain_owner.h"
#include "agent/audit/kube_proxy_facts.h"
#include "agent/policy/policy.h"

namespace kipt::agent {

enum class ChainFuture : uint8_t {
  kKept,         // this agent goes on making it
  kKeptByProxy,  // kube-proxy does
  kEmpty,        // kube-proxy makes it, and leaves it empty
  kGone,         // nobody makes it; what stands, stands until a reboot or a flush
  kPrivate,      // not kubelet's: this agent makes it for itself, with ConnLabelMarking
};

// Of TABLE/CHAIN, one of kubelet's or of this agent's.
ChainFuture FutureOf(absl::string_view chain, const KubeProxyFacts& proxy);

// "Once IPTablesOwnershipCleanup is on, ", or that it is.
std::string WhenGateIsOn(Mode mode);

// What becomes of rules that use `chain`: a whole sentence.
std::string ConsequenceForUsers(absl::string_view chain, const KubeProxyFacts& proxy, Mode mode);

// What the owner of such a rule can do.
std::string RemedyForUsers(absl::string_view chain, Owner owner);

// "kube-proxy 1.23 (iptables mode)".
std::string ProxyText(const KubeProxyFacts& proxy);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_AUDIT_ADVICE_H_
