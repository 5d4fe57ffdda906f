// SPDX-License-Identifier: Apache-2.0
//
// What becomes of kubelet's chains with a change, and what their users can do.
#ifndef KIPT_AGENT_AUDIT_CHAIN_FUTURE_H_
#define KIPT_AGENT_AUDIT_CHAIN_FUTURE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "agent/audit/audit.h"

namespace kipt::agent {

inline constexpr absl::string_view kMarkMasqPlace = "nat/KUBE-MARK-MASQ";
inline constexpr absl::string_view kMarkDropPlace = "nat/KUBE-MARK-DROP";
inline constexpr absl::string_view kPostroutingPlace = "nat/KUBE-POSTROUTING";

enum class ChainFuture : uint8_t {
  kKept,         // by kubelet, or by this agent
  kKeptByProxy,  // kube-proxy writes it
  kEmpty,        // kube-proxy makes it, and leaves it empty
  kGone,         // no program makes it: it exists until a reboot or a flush
  kPrivate,      // this agent makes it for itself, with ConnLabelMarking
};

// `chain` is TABLE/CHAIN, one of kubelet's or of this agent's.
ChainFuture FutureOf(absl::string_view chain, const KubeProxyFacts& proxy,
                     const AuditOptions& options);

// How bad a rule's use of `chain` is: an error where the chain will do nothing.
AuditSeverity SeverityOfUse(absl::string_view chain, const KubeProxyFacts& proxy,
                            const AuditOptions& options);

// "Once IPTablesOwnershipCleanup is on, ", or that it is; or once kube-proxy is in nftables mode.
std::string WhenChanged(const AuditOptions& options);

// What becomes of rules that use `chain`: a whole sentence. And what their owner can do.
std::string ConsequenceForUsers(absl::string_view chain, const KubeProxyFacts& proxy,
                                const AuditOptions& options);
std::string RemedyForUsers(absl::string_view chain, Owner owner);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_CHAIN_FUTURE_H_
