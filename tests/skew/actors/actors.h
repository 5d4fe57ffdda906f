// SPDX-License-Identifier: Apache-2.0
//
// The programs that write iptables rules on the test node. An actor acts on request: what a real
// one does once a minute it does when the test ends the minute. All act in the calling thread's
// network namespace, which is the node's.
#ifndef KIPT_TESTS_SKEW_ACTORS_ACTORS_H_
#define KIPT_TESTS_SKEW_ACTORS_ACTORS_H_

#include <memory>
#include <string>
#include <vector>

#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/versions/versions.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::skew {

struct Act {
  // The actor itself would call it a success.
  bool ok = true;
  // What failed: the command, its exit code, what it printed. Empty where ok.
  std::string error = {};
  std::vector<std::string> done = {};
  // Of a kubelet and a kube-proxy: every iptables call (testing::CallText()), in their order.
  std::vector<std::string> calls = {};
};

// The keeper of kubelet's chains: a kubelet, or our agent in its place.
class NodeAgent {
 public:
  virtual ~NodeAgent() = default;
  // From its start until its first sync is over, whether or not that went well.
  virtual Act Start() = 0;
  // A minute is over.
  virtual Act Tick() = 0;
  // Waits until it has reacted to what others did since. kubelet does not watch.
  virtual Act Settle() { return {}; }
  // It ends, as an upgrade makes it; its rules stay.
  virtual Act Stop() = 0;
};

class ServiceProxy {
 public:
  virtual ~ServiceProxy() = default;
  // Its first sync, which is a full one, over the current rules.
  virtual Act Start(const std::vector<ServicePort>& ipv4, const std::vector<ServicePort>& ipv6) = 0;
  // Objects have changed (or not: a sync with nothing new).
  virtual Act Sync(const std::vector<ServicePort>& ipv4, const std::vector<ServicePort>& ipv6) = 0;
  // A sync period is over: the canary is checked, and a failed sync is retried.
  virtual Act Tick() = 0;
};

// The iptables an actor brings along: which mode, and out of which chroot (empty: this machine's).
struct IptablesChoice {
  testing::IptablesMode mode = testing::IptablesMode::kNft;
  std::string chroot_dir = {};

  testing::Iptables Of(testing::IpFamily family) const { return {family, chroot_dir, mode}; }
};

struct KubeletSettings {
  KubeletVersion version;
  IptablesChoice iptables = {};
};

// The literal sequence of commands of that version, in both families (up to 1.19 only in IPv4), and
// the monitor that starts over if its canary has left mangle.
std::unique_ptr<NodeAgent> NewKubelet(const KubeletSettings& settings);

struct AgentDaemonSettings {
  std::string program;
  // 1.24 emulates every version before it.
  KubeletVersion version;
  testing::IptablesMode mode = testing::IptablesMode::kNft;
  std::string cni_conf_dir = {};
};

// Our agent in kubelet's place. Start() returns when it is ready, Settle() when `plan` finds
// nothing to change, Tick() after one of its periodic rounds, which are a second apart.
std::unique_ptr<NodeAgent> NewAgentDaemon(const AgentDaemonSettings& settings);

// What kube-proxy's IPVS mode runs, and its nftables mode.
inline constexpr char kIpset[] = "/usr/sbin/ipset";
inline constexpr char kNft[] = "/usr/sbin/nft";

struct ProxyActorSettings {
  ProxyVersion version;
  IptablesChoice iptables = {};
  std::string pod_cidr_v4 = {};
  std::string pod_cidr_v6 = {};
  int masquerade_bit = 14;
  // Of nftables mode (ProxySettings).
  std::string node_ip_v4 = {};
  std::string node_ip_v6 = {};
  std::string service_cidr_v4 = {};
  std::string service_cidr_v6 = {};

  // Without what only a sync can find out: nfacct.
  ProxySettings RulesOf(testing::IpFamily family) const;
};

// A kube-proxy of that version, as the captured ones behaved in time. A full sync ensures chains
// and jumps, and restores everything. From 1.27 on later syncs are partial and check no jump, until
// one fails or the canary has left mangle. IPVS mode writes only iptables rules (IpvsSync()), and
// has no canary. nftables mode first removes what iptables mode left, and continues if that fails
// (an Act that is not ok). The start of another mode, from 1.29 on, removes its tables.
std::unique_ptr<ServiceProxy> NewKubeProxy(const ProxyActorSettings& settings);

// `kube-proxy --cleanup` of that version, in a process called kube-proxy: what its iptables and
// nftables modes wrote is removed. Each table of iptables is one restore, so a jump from elsewhere
// to one of its chains keeps all of them. Not ok: the program exits with 1.
Act CleanUpKubeProxy(const ProxyActorSettings& settings);
// The two parts of that. Where there are no tables, or no nft, the second does nothing.
Act RemoveIptablesRules(const ProxyActorSettings& settings);
void RemoveNftablesTables();

// Other programs on the node that meet kubelet's chains. All act in both families unless noted.

// Writes a conflist whose plugin portmap has `externalSetMarkChain: KUBE-MARK-MASQ` into
// `directory`, as an administrator has it.
Act WriteCniConfig(const std::string& directory);

// A third party's chain that leads packets to `port` of the node, TCP and UDP, to KUBE-MARK-DROP
// ("USER-DROPS"), or packets that are forwarded to `port` to KUBE-MARK-MASQ ("USER-MASQ"). Where
// kubelet's chain does not exist iptables refuses the rule: an Act that is not ok.
Act AddUserOfMarkDrop(const IptablesChoice& iptables, int port);
Act AddUserOfMarkMasq(const IptablesChoice& iptables, int port);

// A firewall that starts over: these tables of this mode are emptied of rules (-F), then of chains
// (-X). If another program has put rules back in between, iptables refuses to delete the chains
// that these lead to. The script continues, as such scripts do, and `done` records it.
Act Flush(const IptablesChoice& iptables,
          const std::vector<std::string>& tables = {"mangle", "nat", "filter"});

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_ACTORS_ACTORS_H_
