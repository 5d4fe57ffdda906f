// SPDX-License-Identifier: Apache-2.0
//
// What a Kubernetes version means for a node's iptables chains, and which versions may meet on a
// node. A version is a minor. Where patch releases differ, the newest counts; 1.17 and 1.18 mean
// their first patch releases (before kubernetes #92035).
#ifndef KIPT_TESTS_SKEW_VERSIONS_VERSIONS_H_
#define KIPT_TESTS_SKEW_VERSIONS_VERSIONS_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "featuregates/feature.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::skew {

// What the Kubernetes versions do differently, as one table: which of them, and how that is known.
// Everything here that depends on a version asks this table.

using featuregates::Version;

inline constexpr Version kOldest = {1, 17};
// The newest whose code was run.
inline constexpr Version kNewestCaptured = {1, 36};
// Known by its release notes. It behaves as kNewestCaptured.
inline constexpr Version kNewest = {1, 37};

enum class Component { kKubelet, kIptablesProxy, kIpvsProxy, kNftablesProxy };

enum class Trait {
  // kubelet
  kMarksByOr,
  kMartianRule,
  kKubeletIpv6,
  kGivesUpFamily,
  kHint,
  kJumpsInIpv4Only,
  kGateKnown,
  kGateSettable,
  kGateOnByDefault,
  kGateLocked,
  kBitFlags,
  kKubeletSleepFlag,
  kProbesFamilies,
  kKubeletLockIsLostCanary,

  // kube-proxy, iptables mode
  kNoPodCidrInForward,
  kEndpointComments,
  kServicesInInput,
  kProxyMarksByOr,
  kMakesMarkDrop,
  kDropsByMarkDrop,
  kNamesUnnamedPorts,
  kSortsEndpoints,
  kExternalServicesInForward,
  kLocalPolicyForExternalIps,
  kHealthCheckChain,
  kInternalPolicy,
  kMasqueradesInServiceChain,
  kBalancingComments,
  kBareAddresses,
  kOneForwardRule,
  kExtChains,
  kKnowsXlbChains,
  kProxyFirewall,
  kSparesLoopback,
  kOwnMartianRule,
  kPartialSyncs,
  kFirewallRemark,
  kPostroutingJumpLast,
  kNfacct,
  kProxySleepFlag,
  kHourlyFullSync,
  kHourlyFullSyncBounded,
  kProxyLockIsLostCanary,
  kCleanupOfIpv6,
  kCleanupOfOldInput,
  kCleanupFails,
  kCleanupProbes,
  kCleanupOfMarkMasq,

  // kube-proxy, IPVS mode
  kIpvsEmptiesMarkDrop,
  kIpvsRouteLocalnet,
  kIpvsNodePortChain,
  kIpvsDropsByMarkDrop,
  kIpvsAccessFilter,
  kIpvsHealthCheckSet,
  kIpvsOutFilter,

  // kube-proxy, nftables mode
  kNftablesMode,
  kNftFilterPriorityZero,
  kNftMasqueradesAllPorts,
  kNftMarksInline,
};

struct TraitRow {
  Trait trait;
  Component component;
  // Minors of 1.x, both ends included.
  int first;
  int last;
  // Changes what the component does to iptables: begins a generation.
  bool begins_generation;
  // What such a version does: follows "kubelet" or "kube-proxy".
  const char* does;
  // An issue or pull request of kubernetes/kubernetes, a KEP, "captures", or "sources".
  const char* evidence;
  // Of the captures: the first has a line with `shows`, the other has none. Empty: none is here.
  // "kubelet-1.33-nft.start.commands" of actors/testdata, "1.18-A-v4.input" of kube_proxy/testdata,
  // or a path below tests/.
  const char* shows = "";
  const char* with = "";
  const char* without = "";
};
inline constexpr int kEver = 99;

std::span<const TraitRow> Traits();
const TraitRow& RowOf(Trait trait);
bool Does(Version version, Trait trait);

// The oldest version that does to iptables what this one does.
Version FirstLike(Component component, Version version);

std::vector<Version> AllVersions();

// kubelet with its gate IPTablesOwnershipCleanup.
struct KubeletVersion {
  Version version = kNewest;
  // As given by --feature-gates; not set: the version's default. The gate can be set in 1.25, 1.26
  // and 1.27 only: before it is unknown, in 1.28 locked, from 1.30 on removed.
  std::optional<bool> ownership_cleanup = {};

  bool operator==(const KubeletVersion&) const = default;
};

// Whether this kubelet keeps only the hint and the martian rule.
bool CleansUp(const KubeletVersion& kubelet);
// The iptables calls that it makes.
testing::KubeletForm FormOf(const KubeletVersion& kubelet);
std::string ToString(const KubeletVersion& kubelet);

enum class ProxyMode { kIptables, kIpvs, kNftables };

struct ProxyVersion {
  Version version = kNewest;
  ProxyMode mode = ProxyMode::kIptables;

  bool operator==(const ProxyVersion&) const = default;
};
std::string ToString(const ProxyVersion& proxy);

// Kubelets, and proxies, that do the same to iptables are of one generation. It is named by its
// oldest version, with default gates: "1.20" is that of 1.20 to 1.23, "1.25" that of all with the
// gate off, "1.27" that of all up to 1.32 with the gate on. The table of traits decides.
KubeletVersion GenerationOf(const KubeletVersion& kubelet);
ProxyVersion GenerationOf(const ProxyVersion& proxy);

// Whether Kubernetes' version skew policy allows the two on one node, under some version of the API
// server: the page of kubernetes.io/releases/version-skew-policy of the newer one's time.
bool IsAllowed(Version kubelet, Version proxy);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_VERSIONS_VERSIONS_H_
