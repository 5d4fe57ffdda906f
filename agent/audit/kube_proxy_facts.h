// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/kube_proxy_facts.h
//
// Which kube-proxy writes to a node, told from what it wrote: its mode, and the range of releases
// whose rules look like that. Pure.
#ifndef KIPT_AGENT_AUDIT_KUBE_PROXY_FACTS_H_
#define KIPT_AGENT_AUDIT_KUBE_PROXY_FACTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agent/audit/chain_owner.h"
#include "netlink/survey.h"

namespace kipt::agent {

enum class KubeProxyMode : uint8_t {
  kNone,
  kIptables,
  kIpvs,
  // Since 1.29. It has a table to itself, and none of the chains that others use.
  kNftables,
  // The retired proxy kpng, by its nft tables. Its iptables backend looks like kube-proxy's; see
  // may_be_kpng.
  kKpng,
  // Chains of kube-proxy's that no packet comes to: what `kube-proxy --cleanup` left, or a proxy of
  // another mode.
  kLeftOver,
};
absl::string_view KubeProxyModeName(KubeProxyMode mode);  // "none", "iptables", ..., "left over"

struct KubeProxyFacts {
  // "nft" or "legacy": where it was found.
  std::string iptables_mode;
  netlink::Family family = netlink::Family::kIPv4;
  KubeProxyMode mode = KubeProxyMode::kNone;
  // Minors of Kubernetes 1.x, inclusive; 0: open on that side.
  int oldest = 0;
  int newest = 0;
  // What told it, most telling first.
  std::vector<std::string> evidence = {};
  // Chains of kube-proxy's iptables or IPVS mode stand beside another mode's table.
  bool leftovers = false;
  // There is no KUBE-PROXY-CANARY, which kube-proxy makes in iptables mode since 1.17, and kpng's
  // iptables backend never did.
  bool may_be_kpng = false;

  // It rewrites nat KUBE-MARK-MASQ and KUBE-POSTROUTING on its syncs, whatever kubelet does.
  bool KeepsMarkMasq() const;
  // Its release may jump to nat KUBE-MARK-DROP, which kubelet must then fill (up to 1.24).
  bool MayUseMarkDrop() const;
  // Its release keeps filter KUBE-FIREWALL with its jumps (iptables mode since 1.27).
  bool KeepsFirewall() const;
};

// "1.23", "1.25 to 1.26", "1.27 or later", "1.17 or older", "of unknown release".
std::string GenerationText(const KubeProxyFacts& facts);

// One for each family, IPv4 first. What one family tells of the release counts for the other, where
// both are of the same mode: one process writes both.
std::vector<KubeProxyFacts> FindKubeProxy(const netlink::Survey& survey);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_KUBE_PROXY_FACTS_H_
