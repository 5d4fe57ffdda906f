// SPDX-License-Identifier: Apache-2.0
//
// Captured: 1.17, 1.18 and 1.20 to 1.36. 1.19 was not seen: it is taken to have 1.18's jumps, for
// what changed them (kubernetes #95252) came in for 1.20.
#include <utility>

#include "tests/skew/kube_proxy/proxy_rules.h"

namespace kipt::skew {
namespace {

using Match = std::vector<std::string>;

class JumpList {
 public:
  void Add(const char* table, const char* chain, const char* base_chain, Match match) {
    jumps_.push_back({table, chain, base_chain, std::move(match)});
  }
  // Seen by new connections only.
  void AddForNew(const char* chain, const char* base_chain, const char* comment) {
    Add("filter", chain, base_chain,
        {"-m", "conntrack", "--ctstate", "NEW", "-m", "comment", "--comment", comment});
  }
  void AddCommented(const char* table, const char* chain, const char* base_chain,
                    const char* comment) {
    Add(table, chain, base_chain, {"-m", "comment", "--comment", comment});
  }
  std::vector<ProxyJump> Take() && { return std::move(jumps_); }

 private:
  std::vector<ProxyJump> jumps_;
};

}  // namespace

std::vector<ProxyJump> JumpsOf(const ProxySettings& settings) {
  const Version version = settings.version;
  const char* external = "kubernetes externally-visible service portals";
  const char* portals = "kubernetes service portals";
  JumpList jumps;
  jumps.AddForNew("KUBE-EXTERNAL-SERVICES", "INPUT", external);
  if (Does(version, Trait::kExternalServicesInForward))
    jumps.AddForNew("KUBE-EXTERNAL-SERVICES", "FORWARD", external);
  if (Does(version, Trait::kHealthCheckChain)) {
    jumps.AddCommented("filter", "KUBE-NODEPORTS", "INPUT",
                       "kubernetes health check service ports");
  }
  jumps.AddForNew("KUBE-SERVICES", "FORWARD", portals);
  jumps.AddForNew("KUBE-SERVICES", "OUTPUT", portals);
  if (Does(version, Trait::kServicesInInput)) jumps.AddForNew("KUBE-SERVICES", "INPUT", portals);
  jumps.AddCommented("filter", "KUBE-FORWARD", "FORWARD", "kubernetes forwarding rules");
  if (Does(version, Trait::kProxyFirewall)) {
    for (const char* base_chain : {"INPUT", "OUTPUT", "FORWARD"}) {
      jumps.AddForNew("KUBE-PROXY-FIREWALL", base_chain, "kubernetes load balancer firewall");
    }
  }
  jumps.AddCommented("nat", "KUBE-SERVICES", "OUTPUT", portals);
  jumps.AddCommented("nat", "KUBE-SERVICES", "PREROUTING", portals);
  const char* postrouting = "kubernetes postrouting rules";
  // 1.27 counts this jump among those that it shares with kubelet.
  if (!Does(version, Trait::kPostroutingJumpLast)) {
    jumps.AddCommented("nat", "KUBE-POSTROUTING", "POSTROUTING", postrouting);
  }
  if (Does(version, Trait::kOwnMartianRule)) {
    // In both families, and whatever localhost_node_ports says.
    jumps.Add("filter", "KUBE-FIREWALL", "INPUT", {});
    jumps.Add("filter", "KUBE-FIREWALL", "OUTPUT", {});
  }
  if (Does(version, Trait::kPostroutingJumpLast)) {
    jumps.AddCommented("nat", "KUBE-POSTROUTING", "POSTROUTING", postrouting);
  }
  return std::move(jumps).Take();
}

}  // namespace kipt::skew
