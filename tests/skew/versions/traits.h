// SPDX-License-Identifier: Apache-2.0
//
// What the Kubernetes versions do differently, as one table: which of them, and how that is known.
// Everything here that depends on a version asks this table.
#ifndef KIPT_TESTS_SKEW_VERSIONS_TRAITS_H_
#define KIPT_TESTS_SKEW_VERSIONS_TRAITS_H_

#include <span>

#include "featuregates/feature.h"

namespace kipt::skew {

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
  // Of the captures, paths below tests/: the first has a line with `shows`, the other has none.
  // Empty: none is here.
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

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_VERSIONS_TRAITS_H_
