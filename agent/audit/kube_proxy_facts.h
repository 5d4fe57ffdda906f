// SPDX-License-Identifier: Apache-2.0
//
// Which kube-proxy writes to a node, by its rules: its mode, and the releases that write such
// rules.
#ifndef KIPT_AGENT_AUDIT_KUBE_PROXY_FACTS_H_
#define KIPT_AGENT_AUDIT_KUBE_PROXY_FACTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "netlink/ruleset.h"
#include "netlink/survey.h"

namespace kipt::agent {

enum class KubeProxyMode : uint8_t {
  kNone,
  kIptables,
  kIpvs,
  kNftables,  // since 1.29, in a table of its own
  // The retired proxy kpng, by its nft tables. Its iptables backend resembles kube-proxy's.
  kKpng,
  // kube-proxy's chains without its canary or its services, and no packet comes there: `kube-proxy
  // --cleanup` or another mode left them.
  kLeftOver,
};
absl::string_view KubeProxyModeName(KubeProxyMode mode);  // "none", "iptables", ..., "left over"

struct KubeProxyFacts {
  std::string iptables_mode;
  netlink::Family family = netlink::Family::kIPv4;
  KubeProxyMode mode = KubeProxyMode::kNone;
  // Minors of Kubernetes 1.x, inclusive; 0: open on that side.
  int oldest = 0;
  int newest = 0;
  std::vector<std::string> evidence = {};  // strongest first
  // Another mode's table is in use, and chains of the iptables or IPVS mode are present.
  bool leftovers = false;
  // Jumps that kube-proxy makes once, and that are missing: "PREROUTING to nat/KUBE-SERVICES".
  std::vector<std::string> lost_jumps = {};
  // KUBE-PROXY-CANARY is missing, which kube-proxy's iptables mode has since 1.17 and kpng never
  // had.
  bool may_be_kpng = false;

  // It rewrites nat KUBE-MARK-MASQ and KUBE-POSTROUTING on each sync.
  bool KeepsMarkMasq() const {
    return mode == KubeProxyMode::kIptables || mode == KubeProxyMode::kIpvs;
  }
  // It may jump to nat KUBE-MARK-DROP, which only kubelet fills (up to 1.24).
  bool MayUseMarkDrop() const { return KeepsMarkMasq() && oldest < 25; }
  // It keeps filter KUBE-FIREWALL with its jumps (iptables mode since 1.27).
  bool KeepsFirewall() const { return mode == KubeProxyMode::kIptables && oldest >= 27; }
};

// "1.23", "1.25 to 1.26", "1.27 or later", "1.17 or older", "of unknown release".
std::string GenerationText(const KubeProxyFacts& facts);

// One for each family, IPv4 first. One process writes both: where the modes agree, evidence of one
// family counts for the other.
std::vector<KubeProxyFacts> FindKubeProxy(const netlink::Survey& survey);

// The table of its nftables mode, in family ip and ip6.
inline constexpr absl::string_view kNftablesProxyTable = "kube-proxy";

// "kube-proxy 1.23 (iptables mode)".
std::string ProxyText(const KubeProxyFacts& proxy);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_KUBE_PROXY_FACTS_H_
