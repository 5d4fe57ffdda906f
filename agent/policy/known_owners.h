// SPDX-License-Identifier: Apache-2.0
//
// Who probably owns a chain, by the names that programs are known by. This is for people only: any
// program may use any name, so nothing is ever changed because of it. Pure.
#ifndef KIPT_AGENT_POLICY_KNOWN_OWNERS_H_
#define KIPT_AGENT_POLICY_KNOWN_OWNERS_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "netlink/ruleset.h"
#include "netlink/survey.h"

namespace kipt::agent {

enum class Owner : uint8_t {
  kUnknown,
  // A chain on a hook of a table that programs share.
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
  kTailscale,
  kNetavark,
  kAwsVpcCni,
  kAzureNpm,
  kOvnKubernetes,
  kIstio,
  kRke2,
  kLibvirt,
  kUfw,
  kWgQuick,
  kKubeOvn,
};

// "kubelet", "kube-proxy (IPVS)", "the CNI plugin portmap"; "unknown".
absl::string_view OwnerName(Owner owner);

// Kubernetes' own: kubelet, kube-proxy of any mode.
bool IsKubernetes(Owner owner);
// Kubelet's, or this agent's, which takes kubelet's place.
bool IsKubeletsOrOurs(Owner owner);

// By table and name. Every program uses a base chain, except in a table of one program's own.
Owner OwnerOfChain(const netlink::TableId& table, absl::string_view chain, bool base = false);

// nat KUBELET-MARK-MASQ and the like, which no other program should use. `table` as in
// TableId::name.
bool IsPrivateChain(absl::string_view table, absl::string_view chain);
// `place` is "nat/KUBELET-MARK-MASQ".
bool IsPrivateChain(absl::string_view place);

// The chain as policy names it; none outside the families and tables in which kubelet and
// kube-proxy have chains.
std::optional<netlink::ChainId> KnownChainId(const netlink::TableId& table,
                                             absl::string_view chain);

// "KUBE-SVC-*" for the chains that a program makes one of per service, endpoint, pod or container;
// else the name itself. A view of `chain` or of static storage.
absl::string_view ChainGroup(absl::string_view chain);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_KNOWN_OWNERS_H_
