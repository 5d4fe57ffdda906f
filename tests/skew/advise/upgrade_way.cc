// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/advise/upgrade_way.h"

#include <algorithm>

#include "tests/skew/advise/pair_facts.h"

namespace kipt::skew {
namespace {

// ---- what a change does, whatever its order ----

bool Loses(Trait trait, Version from, Version to) { return Does(from, trait) && !Does(to, trait); }

bool StopsCleaningUp(const Change& change) {
  return CleansUp(change.from.kubelet) && !CleansUp(change.to.kubelet);
}
bool LosesBitFlags(const Change& change) {
  return Loses(Trait::kBitFlags, change.from.kubelet.version, change.to.kubelet.version);
}
bool IgnoresBits(const Change& change) {
  return StartsCleaningUp(change) ||
         Loses(Trait::kBitsCount, change.from.kubelet.version, change.to.kubelet.version);
}
bool LosesGate(const Change& change) {
  return change.from.kubelet.ownership_cleanup.has_value() &&
         !change.to.kubelet.ownership_cleanup.has_value() &&
         change.to.kubelet.version.minor > RowOf(Trait::kGateSettable).last;
}
bool LeavesOldJump(const Change& change) {
  return change.from.proxy.mode == ProxyMode::kIptables &&
         Loses(Trait::kServicesInInput, change.from.proxy.version, change.to.proxy.version);
}
bool StartsPartialSyncs(const Change& change) {
  return change.to.proxy.mode == ProxyMode::kIptables &&
         Loses(Trait::kPartialSyncs, change.to.proxy.version, change.from.proxy.version);
}
bool ChangesMode(const Change& change) { return change.from.proxy.mode != change.to.proxy.mode; }
bool DropsByKubelet(const Change& change) {
  return MarksToDrop(change.from.proxy) || MarksToDrop(change.to.proxy);
}
bool StartsProbing(const Change& change) {
  return Loses(Trait::kProbesFamilies, change.to.kubelet.version, change.from.kubelet.version);
}
bool StartsCounting(const Change& change) {
  return change.to.proxy.mode == ProxyMode::kIptables &&
         Loses(Trait::kNfacct, change.to.proxy.version, change.from.proxy.version);
}
bool TakesTimeOutsForLosses(const Change& change) {
  return Loses(Trait::kKubeletLockIsLostCanary, change.to.kubelet.version,
               change.from.kubelet.version);
}
bool WasNotRun(const Change& change) {
  return std::max(change.to.kubelet.version, change.to.proxy.version) > kNewestCaptured;
}
bool GoesDown(const Change& change) { return !change.up && change.kubelet_moves(); }
// Somebody made it before, and nobody does afterwards.
bool LosesMarkMasq(const Change& change) {
  const auto lacks = [](const Pair& pair) {
    return pair.proxy.mode == ProxyMode::kNftables && CleansUp(pair.kubelet);
  };
  return !lacks(change.from) && lacks(change.to);
}

constexpr ChangeRow kChanges[] = {
    {LosesGate,
     "Take IPTablesOwnershipCleanup out of kubelet's feature gates (flag and configuration file) "
     "before it becomes 1.28 or later.",
     "kubelet 1.28 and 1.29 do not start with IPTablesOwnershipCleanup=false. From 1.30 on kubelet "
     "does not start if the gate is named at all.",
     0, 0},
    {LosesBitFlags,
     "Take --iptables-masquerade-bit and --iptables-drop-bit off kubelet's command line before it "
     "becomes 1.31 or later.",
     "kubelet 1.31 removed the flags --iptables-masquerade-bit and --iptables-drop-bit (deprecated "
     "since 1.28): it does not start with them. The fields of its configuration file are still "
     "accepted and ignored.",
     0, 0},
    {StartsCleaningUp,
     "Find out who else uses KUBE-MARK-DROP, KUBE-MARK-MASQ or their mark bits: "
     "kube-iptables-agent audit lists them.",
     "With IPTablesOwnershipCleanup kubelet no longer makes KUBE-MARK-DROP, KUBE-MARK-MASQ and "
     "KUBE-POSTROUTING, and removes none of them. Chains of an older kubelet work until a reboot "
     "or a flush. Until then, breakage stays hidden.",
     27, 27},
    {IgnoresBits, "",
     "kubelet's mark bits no longer count; only kube-proxy's --iptables-masquerade-bit does. If "
     "the two differ, packets that others mark with kubelet's bit are not masqueraded, as before. "
     "Packets that pass KUBE-MARK-MASQ are.",
     0, 0},
    {StopsCleaningUp, "",
     "An older kubelet makes its chains again when it starts; with IPTablesOwnershipCleanup on "
     "afterwards they stay until the next reboot.",
     0, 0},
    {DropsByKubelet, "",
     "This assumes makeIPTablesUtilChains=true, the default. With false kubelet makes no chain, "
     "and nothing drops what kube-proxy up to 1.24 marks, whatever the versions.",
     0, 0},
    {LeavesOldJump, "",
     "INPUT's jump to KUBE-SERVICES, which kube-proxy up to 1.19 made, stays until the next "
     "reboot. It does no harm, but kube-proxy --cleanup of 1.28 and later fails in table filter "
     "because of it.",
     0, 0},
    {StartsPartialSyncs, "",
     "kube-proxy since 1.27 restores its jumps in full syncs only. If another program empties "
     "table filter alone, the jumps stay missing until kube-proxy misses its canary, fails a sync, "
     "or restarts.",
     0, 0},
    {StartsCounting, "",
     "kube-proxy since 1.31 counts packets with nfacct. If the kernel has nfnetlink_acct but not "
     "xt_nfacct, every sync fails (kubernetes #142068).",
     31, 31},
    {StartsProbing, "",
     "kubelet since 1.33 reads POSTROUTING in table nat with iptables when it starts. If that "
     "fails in a family, the family gets no hint and no martian rule until kubelet restarts. "
     "Native nftables rules or a held lock are enough.",
     33, 33},
    {TakesTimeOutsForLosses, "",
     "kubelet and kube-proxy since 1.34 treat a lock of iptables-legacy that is held for 5 s as a "
     "lost canary. They then write all their rules again.",
     36, 36},
    {WasNotRun, "", "1.37 was not tested: its release notes show no change to iptables since 1.36.",
     0, 0},
    {ChangesMode,
     "Run kube-proxy --cleanup of the old mode, or reboot the node, before kube-proxy starts in "
     "the new one.",
     "A kube-proxy that changes its mode leaves the rules of the old mode, and packets pass both.",
     0, 0},
    {LosesMarkMasq,
     "If the CNI configuration has externalSetMarkChain: KUBE-MARK-MASQ, remove it first.",
     "Pods with host ports use portmap's own chain once they are recreated.", 0, 0},
    {GoesDown, "",
     "Kubernetes does not support downgrading a kubelet in place: drain the node first. Only the "
     "effect on these rules was tested.",
     0, 0},
};

// ---- the way from here to there ----

// As far as kubelet may be behind the API server, which is upgraded first.
int NextMinor(int minor, int last) {
  return std::min(minor + MinorsBehindServer({1, minor}), last);
}

// kubelet's gate goes with it for as long as it can be set.
KubeletVersion KubeletAt(const UpgradePlan& plan, int minor) {
  if (minor == plan.to.version.minor) return plan.to;
  KubeletVersion kubelet = {{1, minor}, {}};
  if (Does(kubelet.version, Trait::kGateSettable))
    kubelet.ownership_cleanup = plan.from.ownership_cleanup;
  return kubelet;
}

ProxyVersion ProxyAt(const ProxyVersion& from, const ProxyVersion& to, int minor, bool last) {
  if (last) return to;
  const auto [low, high] = std::minmax(from.version, to.version);
  return {std::clamp(Version{1, minor}, low, high), from.mode};
}

// Third parties are no reason to prefer an order: they lose the same in the end.
Harm Counted(const Pair& pair) { return std::max(HarmOf(pair), Harm::kThirdParties); }

}  // namespace

Way WayOf(const UpgradePlan& plan) {
  const ProxyVersion proxy_from = plan.proxy_from.value_or(ProxyVersion{plan.from.version});
  const ProxyVersion proxy_to =
      plan.proxy_to.value_or(plan.proxy_from.has_value() && plan.from.version == plan.to.version
                                 ? proxy_from
                                 : ProxyVersion{plan.to.version, proxy_from.mode});
  Way way;
  way.whole = {{plan.from, proxy_from}, {plan.to, proxy_to}};
  way.whole.up = plan.from.version != plan.to.version ? plan.from.version < plan.to.version
                                                      : proxy_from.version <= proxy_to.version;
  Pair at = way.whole.from;
  const int last = plan.to.version.minor;
  do {
    const bool steps_up = at.kubelet.version.minor < last;
    const int next = steps_up ? NextMinor(at.kubelet.version.minor, last) : last;
    const Pair then = {KubeletAt(plan, next), ProxyAt(proxy_from, proxy_to, next, next == last)};
    way.stages.push_back({at, then, way.whole.up});
    at = then;
  } while (at.kubelet.version.minor != last);
  return way;
}

bool StartsCleaningUp(const Change& change) {
  return !CleansUp(change.from.kubelet) && CleansUp(change.to.kubelet);
}

Pair Between(const Change& stage, Order order) {
  return order == Order::kKubeletFirst ? Pair{stage.to.kubelet, stage.from.proxy}
                                       : Pair{stage.from.kubelet, stage.to.proxy};
}

Order OrderOf(const Change& stage) {
  if (!stage.kubelet_moves() || !stage.proxy_moves()) return Order::kAny;
  const Harm kubelet_first = Counted(Between(stage, Order::kKubeletFirst));
  const Harm proxy_first = Counted(Between(stage, Order::kProxyFirst));
  const Harm ends = std::max(Counted(stage.from), Counted(stage.to));
  if (std::min(kubelet_first, proxy_first) > ends) return Order::kNeither;
  if (kubelet_first == proxy_first) return Order::kAny;
  return kubelet_first < proxy_first ? Order::kKubeletFirst : Order::kProxyFirst;
}

std::vector<const ChangeRow*> WhatComesWith(const Change& change) {
  std::vector<const ChangeRow*> rows;
  for (const ChangeRow& row : kChanges) {
    if (row.holds(change)) rows.push_back(&row);
  }
  return rows;
}

}  // namespace kipt::skew
