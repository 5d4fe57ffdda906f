// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>

#include "tests/skew/versions/versions.h"

namespace kipt::skew {
namespace {

using enum Component;
using enum Trait;

// In the order of the enumeration.
constexpr TraitRow kRows[] = {
    {kMarksByOr, kKubelet, 19, kEver, true,
     "sets and clears its marks by or and xor, with a RETURN before MASQUERADE", "#92035"},
    {kMartianRule, kKubelet, 19, kEver, true,
     "drops martian packets (1.17 and 1.18 from a patch release on)", "#91569, CVE-2020-8558"},
    {kKubeletIpv6, kKubelet, 20, kEver, true, "writes IPv6 too", "#94474"},
    {kGivesUpFamily, kKubelet, 21, kEver, false,
     "does not monitor a family after its first sync has failed", "sources"},
    {kHint, kKubelet, 24, kEver, true, "makes KUBE-IPTABLES-HINT", "#109059, KEP-3178"},
    {kJumpsInIpv4Only, kKubelet, 25, kEver, true, "jumps to KUBE-FIREWALL in IPv4 only", "#110289"},
    {kGateKnown, kKubelet, 25, 29, false, "knows the gate IPTablesOwnershipCleanup", "KEP-3178"},
    {kGateSettable, kKubelet, 25, 27, false, "lets the gate be turned on and off", "KEP-3178"},
    {kGateOnByDefault, kKubelet, 27, kEver, true, "keeps only the hint and the martian rule",
     "KEP-3178"},
    {kGateLocked, kKubelet, 28, 29, false, "does not start with the gate off, and warns of it on",
     "KEP-3178"},
    {kBitFlags, kKubelet, 17, 30, false,
     "accepts --iptables-masquerade-bit and --iptables-drop-bit", "#122363"},
    {kKubeletSleepFlag, kKubelet, 18, 33, false, "runs iptables with -W", "#131961, captures",
     "iptables -w 5 -W 100000 -N ", "kubelet-1.33-nft.start.commands",
     "kubelet-1.34-nft.start.commands"},
    {kProbesFamilies, kKubelet, 33, kEver, true,
     "probes each family with `-S POSTROUTING -t nat` and never serves one that fails",
     "#129826, captures", "-S POSTROUTING -t nat", "kubelet-1.33-nft.start.commands",
     "kubelet-1.32-nft.start.commands"},
    {kKubeletLockIsLostCanary, kKubelet, 34, kEver, true,
     "takes a lock time-out at a canary check for a lost canary and starts over",
     "#131961, captures", "^[0-9.]+\tlocked\t[0-9]+\tiptables .*-N KUBE-IPTABLES-HINT",
     "kubelet-1.34-legacy.monitor.commands", "kubelet-1.33-legacy.monitor.commands"},

    {kNoPodCidrInForward, kIptablesProxy, 18, kEver, true, "names no pod addresses in KUBE-FORWARD",
     "captures", "-A KUBE-FORWARD -m comment .*pod source rule", "1.18-A-v4.input",
     "1.17-A-v4.input"},
    {kEndpointComments, kIptablesProxy, 18, kEver, false, "comments on the rules of endpoints",
     "captures", "-A KUBE-SEP-\\w+ -m comment", "1.18-A-v4.input", "1.17-A-v4.input"},
    {kServicesInInput, kIptablesProxy, 17, 19, true, "jumps from INPUT to KUBE-SERVICES",
     "#95252, captures", "^filter\tKUBE-SERVICES\tINPUT", "1.17.jumps",
     "interop/testdata/kube-proxy/1.24.jumps"},
    {kProxyMarksByOr, kIptablesProxy, 19, kEver, true,
     "sets and clears its mark by or and xor, with a RETURN before MASQUERADE", "#92035, captures",
     "--xor-mark", "1.20-A-v4.input", "1.18-A-v4.input"},
    {kMakesMarkDrop, kIptablesProxy, 20, 24, true, "makes KUBE-MARK-DROP and leaves it empty",
     "#94474, #110289"},
    {kDropsByMarkDrop, kIptablesProxy, 17, 24, true, "drops by jumps to KUBE-MARK-DROP",
     "#110289, captures", "-j KUBE-MARK-DROP", "interop/testdata/kube-proxy/1.24.input",
     "1.25-A-v4.input"},
    {kNamesUnnamedPorts, kIptablesProxy, 20, kEver, true,
     "calls an unnamed port by its service, without a colon", "captures", "b/unnamed ",
     "1.20-B-v4.save", "1.18.6-B-v4.save"},
    {kSortsEndpoints, kIptablesProxy, 20, kEver, false, "sorts endpoints as text",
     "EndpointSlices, captures"},
    {kExternalServicesInForward, kIptablesProxy, 20, kEver, true,
     "jumps from FORWARD to KUBE-EXTERNAL-SERVICES", "#95252, captures",
     "^filter\tKUBE-EXTERNAL-SERVICES\tFORWARD", "interop/testdata/kube-proxy/1.24.jumps",
     "1.17.jumps"},
    {kLocalPolicyForExternalIps, kIptablesProxy, 20, kEver, false,
     "honours externalTrafficPolicy Local for external addresses", "sources"},
    {kHealthCheckChain, kIptablesProxy, 21, kEver, true,
     "lets health checks in by filter KUBE-NODEPORTS", "captures", "health check node port",
     "1.21-B-v4.save", "1.20-B-v4.save"},
    {kInternalPolicy, kIptablesProxy, 22, kEver, true, "honours internalTrafficPolicy",
     "gate ServiceInternalTrafficPolicy"},
    {kMasqueradesInServiceChain, kIptablesProxy, 22, kEver, true,
     "marks for masquerading in KUBE-SVC-*", "captures", "-A KUBE-SVC-\\w+ .*-j KUBE-MARK-MASQ",
     "1.22-A-v4.input", "1.21-A-v4.input"},
    {kBalancingComments, kIptablesProxy, 17, 22, false, "numbers the rules of KUBE-XLB-*",
     "captures", "Balancing rule 0", "1.22-B-v4.save",
     "agent/testdata/rulesets/kube-proxy-1.23-B-v4.save"},
    {kBareAddresses, kIptablesProxy, 23, kEver, false, "writes addresses without a prefix length",
     "captures", "-d 172.30.0.41 ", "1.23-A-v4.input", "1.22-A-v4.input"},
    {kOneForwardRule, kIptablesProxy, 23, kEver, true,
     "accepts known connections by one rule of KUBE-FORWARD", "captures",
     "kubernetes forwarding conntrack rule", "1.23-A-v4.input", "1.22-A-v4.input"},
    {kExtChains, kIptablesProxy, 24, kEver, true, "has KUBE-EXT-* and KUBE-SVL-*, not KUBE-XLB-*",
     "captures", "-A KUBE-EXT-", "interop/testdata/kube-proxy/1.24.input", "1.23-A-v4.input"},
    {kKnowsXlbChains, kIptablesProxy, 17, 27, false, "deletes KUBE-XLB-* that nothing needs",
     "sources"},
    {kProxyFirewall, kIptablesProxy, 25, kEver, true, "drops in filter KUBE-PROXY-FIREWALL",
     "#110289, captures", "-A KUBE-PROXY-FIREWALL .*-j DROP", "1.25-A-v4.input",
     "interop/testdata/kube-proxy/1.24.input"},
    {kSparesLoopback, kIptablesProxy, 26, kEver, true,
     "leads no packets to a loopback address without localhost node ports to KUBE-NODEPORTS",
     "#108250, captures", "! -d ::1/128", "agent/testdata/rulesets/kube-proxy-1.26-A-v6.save",
     "agent/testdata/rulesets/kube-proxy-1.25-A-v6.save"},
    {kOwnMartianRule, kIptablesProxy, 27, kEver, true,
     "flushes IPv4's KUBE-FIREWALL at every sync and writes the martian rule", "#114470, captures",
     "-A KUBE-FIREWALL .*DNAT -j DROP", "interop/testdata/kube-proxy/1.28.input",
     "1.25-A-v4.input"},
    {kPartialSyncs, kIptablesProxy, 27, kEver, true,
     "writes only what has changed, and checks its jumps in full syncs only",
     "MinimizeIPTablesRestore, captures"},
    {kFirewallRemark, kIptablesProxy, 27, kEver, false,
     "explains KUBE-FW-* by a rule without target", "captures",
     "will be dropped by KUBE-PROXY-FIREWALL", "interop/testdata/kube-proxy/1.28.input",
     "1.25-A-v4.input"},
    {kPostroutingJumpLast, kIptablesProxy, 27, 27, false,
     "ensures POSTROUTING's jump after all others", "captures"},
    {kNfacct, kIptablesProxy, 31, kEver, true,
     "counts packets by nfacct where the kernel has its counters", "captures", "--nfacct-name",
     "1.31-A-v4.input", "interop/testdata/kube-proxy/1.28.input"},
    {kProxySleepFlag, kIptablesProxy, 18, 33, false, "runs iptables with -W", "#131961, captures",
     "iptables-restore -w 5 -W 100000 ", "1.33-A.commands", "1.34-A.commands"},
    {kHourlyFullSync, kIptablesProxy, 33, kEver, true,
     "syncs fully once an hour, so lost jumps come back", "captures", "^-A KUBE-SVC-",
     "1.33-A-v4.hour.input", "1.32-A-v4.hour.input"},
    {kHourlyFullSyncBounded, kIptablesProxy, 34, kEver, true,
     "leaves the hourly full sync out in a family with more than 1,000 endpoints",
     "#138571, captures"},
    {kProxyLockIsLostCanary, kIptablesProxy, 34, kEver, true,
     "takes a lock time-out at a canary check for a lost canary and syncs fully",
     "#131961, captures", "^[0-9.]+\tlocked\t[0-9]+\tiptables .*-N KUBE-SERVICES",
     "1.34-A-legacy.monitor.commands", "1.33-A-legacy.monitor.commands"},
    {kCleanupOfIpv6, kIptablesProxy, 20, kEver, false, "cleans up IPv6 too at --cleanup", "#94915"},
    {kCleanupOfOldInput, kIptablesProxy, 20, 27, false,
     "deletes the jump from INPUT to KUBE-SERVICES at --cleanup", "captures"},
    {kCleanupFails, kIptablesProxy, 27, 27, false,
     "deletes POSTROUTING's jump at --cleanup only after the chains, so it ends with 1 and leaves "
     "the chains of services",
     "captures"},
    {kCleanupProbes, kIptablesProxy, 33, kEver, false,
     "probes each family before --cleanup and skips one that fails", "#129826, captures",
     "^cleanup\t0\tiptables .*-S POSTROUTING -t nat", "1.33-A-nft.cleanup.commands",
     "1.32-A-nft.cleanup.commands"},
    {kCleanupOfMarkMasq, kIptablesProxy, 34, kEver, false,
     "deletes KUBE-MARK-MASQ and its canaries at --cleanup", "captures", "^-X KUBE-MARK-MASQ",
     "1.34-A-v4.cleanup-nat.input", "1.33-A-v4.cleanup-nat.input"},

    {kIpvsEmptiesMarkDrop, kIpvsProxy, 17, 19, false, "empties KUBE-MARK-DROP at every sync",
     "sources"},
    {kIpvsRouteLocalnet, kIpvsProxy, 17, 20, true, "sets route_localnet", "#92938"},
    {kIpvsNodePortChain, kIpvsProxy, 21, kEver, true,
     "lets health checks in by filter KUBE-NODE-PORT", "sources"},
    {kIpvsDropsByMarkDrop, kIpvsProxy, 17, 24, true, "drops by a jump to KUBE-MARK-DROP",
     "#82214, #110289"},
    {kIpvsAccessFilter, kIpvsProxy, 26, kEver, true,
     "rejects what is sent to other ports of a service address in KUBE-IPVS-FILTER", "sources"},
    {kIpvsHealthCheckSet, kIpvsProxy, 28, kEver, false,
     "exempts health checks from KUBE-IPVS-FILTER", "sources"},
    {kIpvsOutFilter, kIpvsProxy, 29, kEver, true, "has KUBE-IPVS-OUT-FILTER", "sources"},

    {kNftablesMode, kNftablesProxy, 29, kEver, true, "has an nftables mode", "KEP-3866"},
    {kNftFilterPriorityZero, kNftablesProxy, 33, kEver, true,
     "filters at priority 0, and before DNAT in chains of their own", "captures",
     "filter-input \\{ type filter hook input priority 0 ", "1.33-A-v4.nftables.input",
     "1.31-A-v4.nftables.input"},
    {kNftMasqueradesAllPorts, kNftablesProxy, 34, kEver, true,
     "masquerades traffic to a cluster IP without a match of the port", "captures",
     "ip daddr 172.30.0.42 ip saddr != 10.180.0.0/16", "1.34-A-v4.nftables.input",
     "1.33-A-v4.nftables.input"},
    {kNftMarksInline, kNftablesProxy, 36, kEver, true,
     "sets mark bit 14 inline, without a chain mark-for-masquerade", "captures",
     "addr .*mark set mark or 0x00004000", "1.36-A-v4.nftables.input", "1.34-A-v4.nftables.input"},
};

constexpr bool IsInOrder() {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (static_cast<size_t>(kRows[i].trait) != i) return false;
  }
  return true;
}
static_assert(IsInOrder() && static_cast<size_t>(kNftMarksInline) + 1 == std::size(kRows));

}  // namespace

std::span<const TraitRow> Traits() { return kRows; }

const TraitRow& RowOf(Trait trait) { return kRows[static_cast<size_t>(trait)]; }

bool Does(Version version, Trait trait) {
  const TraitRow& row = RowOf(trait);
  return row.first <= version.minor && version.minor <= row.last;
}

Version FirstLike(Component component, Version version) {
  int first = kOldest.minor;
  for (const TraitRow& row : kRows) {
    if (row.component != component || !row.begins_generation) continue;
    if (row.first <= version.minor) first = std::max(first, row.first);
    if (row.last < version.minor) first = std::max(first, row.last + 1);
  }
  return {1, first};
}

}  // namespace kipt::skew
