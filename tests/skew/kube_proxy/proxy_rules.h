// SPDX-License-Identifier: Apache-2.0
//
// What kube-proxy's iptables mode of a version writes, as a pure function of its objects: the jumps
// it checks one by one, and the text it gives to iptables-restore. The captured rulesets of 14
// releases (tests/skew/kube_proxy/testdata/README.md) are the measure: equal line set for line set.
#ifndef KIPT_TESTS_SKEW_KUBE_PROXY_PROXY_RULES_H_
#define KIPT_TESTS_SKEW_KUBE_PROXY_PROXY_RULES_H_

#include <string>
#include <vector>

#include "tests/skew/versions/versions.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::skew {

// Services as kube-proxy sees them: one value per port of a Service, with its endpoints.

enum class Protocol { kTcp, kUdp };
const char* NameOf(Protocol protocol);

struct Endpoint {
  // As inet_ntop writes it, without brackets.
  std::string address;
  int port = 0;
  // On this node.
  bool local = false;

  bool operator==(const Endpoint&) const = default;
};

struct ServicePort {
  // "namespace/service", and the port's name, which may be empty.
  std::string service;
  std::string port_name = {};
  Protocol protocol = Protocol::kTcp;
  std::string cluster_ip;
  int port = 0;
  // 0: none.
  int node_port = 0;
  std::vector<std::string> external_ips = {};
  std::vector<std::string> load_balancer_ips = {};
  // loadBalancerSourceRanges, as prefixes.
  std::vector<std::string> source_ranges = {};
  // externalTrafficPolicy and internalTrafficPolicy.
  bool external_local = false;
  bool internal_local = false;
  // 0: none.
  int health_check_node_port = 0;
  // sessionAffinity ClientIP; 0: none.
  int affinity_seconds = 0;
  std::vector<Endpoint> endpoints = {};

  bool operator==(const ServicePort&) const = default;
};

// Settings of one family. Those that are not here have their defaults: masqueradeAll false,
// nodePortAddresses empty, localhostNodePorts true.
struct ProxySettings {
  Version version = kNewest;
  testing::IpFamily family = testing::IpFamily::kIpv4;
  // Local traffic is what comes from this prefix (--cluster-cidr). Empty: no local detector.
  std::string pod_cidr = {};
  int masquerade_bit = 14;
  // From 1.31 on: the kernel has the counters, and rules name them.
  bool nfacct = false;
  // nftables mode: the address at which it serves node ports, and from 1.33 on the prefix of all
  // cluster addresses. Empty: none.
  std::string node_ip = {};
  std::string service_cidr = {};
};

// Those whose cluster address is of this family.
std::vector<ServicePort> OfFamily(const std::vector<ServicePort>& services,
                                  testing::IpFamily family);

// A chain that is ensured (-N), and a jump to it that is ensured (-C, else -I) in a base chain.
struct ProxyJump {
  std::string table;
  std::string chain;
  std::string base_chain;
  // The words between the base chain's name and "-j CHAIN".
  std::vector<std::string> match;

  bool operator==(const ProxyJump&) const = default;
};

// In the order in which they are issued; each is inserted first, so a later one ends up higher.
std::vector<ProxyJump> JumpsOf(const ProxySettings& settings);

// For `iptables-restore --noflush --counters`: everything, without services of the other family.
// Deletes those `existing` chains (names in nat) that the services no longer need, if this version
// takes them for service chains. Not modelled: the rule for a node that is within its own load
// balancer's source ranges, and the words that are left out from 1000 endpoints on.
std::string FullSync(const ProxySettings& settings, const std::vector<ServicePort>& services,
                     const std::vector<std::string>& existing = {});
// As a version with partial syncs writes it: own chains only of those services of which a port or
// endpoint differs from `synced`. Chains that are no longer needed are deleted here too. A version
// without partial syncs writes everything.
std::string PartialSync(const ProxySettings& settings, const std::vector<ServicePort>& services,
                        const std::vector<ServicePort>& synced);

// Whether a proxy of this version takes the chain for one of a service, and its own. A proxy leaves
// the chains alone that only a newer one knows; 1.28 and later ignore XLB.
bool IsServiceChain(Version version, const std::string& chain);

// "KUBE-SVC-GNZBNJ2PO5MGZ6GT": prefix "KUBE-SVC-" and the port's hash. The version matters to
// unnamed ports only, which up to 1.19 had a colon more in what is hashed.
std::string ServiceChain(const std::string& prefix, const ServicePort& port,
                         Version version = kNewest);
std::string EndpointChain(const ServicePort& port, const Endpoint& endpoint,
                          Version version = kNewest);

// The kernel's counters that rules name from 1.31 on. kube-proxy makes them over netlink before
// each full sync. A rule whose counter, or match (kubernetes #142068), is missing is refused, and
// with it its whole table.

inline constexpr char kDroppedInvalid[] = "ct_state_invalid_dropped_pkts";
inline constexpr char kAcceptedLocalhost[] = "localhost_nps_accepted_pkts";

// The match of a rule, or nothing: of older versions, and without counters.
std::string Counted(const ProxySettings& settings, const char* counter);

// Makes both, where they are not, in the calling thread's network namespace. False: the kernel
// (nfnetlink_acct) does not have them.
bool EnsureCounters();

// What IPVS mode has in iptables, written from Kubernetes' sources, not captured. The IP sets stay
// empty, and there are no virtual servers: these rules are there for what they do to kubelet's
// chains.

std::vector<ProxyJump> IpvsJumps(const ProxySettings& settings);
// For `ipset -exist restore`, before any sync: the sets that the rules name, without which no rule
// of their tables can be restored.
std::string IpvsSets(const ProxySettings& settings);
// For `iptables-restore --noflush`. kube-proxy leaves out rules with an empty set; here all are
// written. Up to 1.24 rules jump to nat KUBE-MARK-DROP. From 1.20 on the chain is ensured before
// (Trait::kIpvsEmptiesMarkDrop); older ones write it as one of their own, which empties what
// kubelet put there.
std::string IpvsSync(const ProxySettings& settings);

// What nftables mode gives to `nft -f`: its own table `kube-proxy` in each family, as captured of
// 1.31 to 1.36.

// The whole table, services of the other family left out. What an older version's mode left there
// and this one does not name stays. Not modelled: 1.29 and 1.30 (they write as 1.31), and elements
// of services that were removed while no kube-proxy ran.
std::string NftablesSync(const ProxySettings& settings, const std::vector<ServicePort>& services);
// Chains of ports that differ from `synced`; their elements as far as these differ. Chains that are
// no longer needed are emptied.
std::string NftablesPartialSync(const ProxySettings& settings,
                                const std::vector<ServicePort>& services,
                                const std::vector<ServicePort>& synced);
// What the start of another mode runs.
std::string NftablesRemoval(testing::IpFamily family);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_KUBE_PROXY_PROXY_RULES_H_
