// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/matrix/node_facts.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;

// KUBE-POSTROUTING is shared with kubelet: without its jump nothing masquerades marked packets.
// KUBE-MARK-MASQ is removed from 1.34 on, unless another chain jumps to it.
bool RemoveIptablesMode(Version proxy, FamilyFacts& facts) {
  facts.proxy_filter.reset();
  facts.proxy_nat.reset();
  facts.ipvs_hairpin = false;
  facts.nat_has_services = false;
  facts.proxy_firewall = false;
  facts.mark_masq = false;
  const bool used = facts.user_masq;
  facts.nat_chains_left =
      Does(proxy, Trait::kCleanupFails) || (Does(proxy, Trait::kCleanupOfMarkMasq) && used);
  return !facts.nat_chains_left;
}

void RemoveNftablesMode(FamilyFacts& facts) {
  facts.nftables = false;
  facts.nftables_has_services = false;
}

}  // namespace

void KubeletSyncs(const KubeletVersion& kubelet, FamilyFacts& facts) {
  const bool v6 = facts.family == IpFamily::kIpv6;
  // kubernetes #94474: up to 1.19 the node's primary family alone.
  if (v6 && !Does(kubelet.version, Trait::kKubeletIpv6)) return;
  if (!v6) {
    facts.firewall_jumps = true;
    // CVE-2020-8558, #91569: not in the first releases of 1.17 and 1.18.
    if (Does(kubelet.version, Trait::kMartianRule)) facts.martian_rule = true;
  }
  if (CleansUp(kubelet)) return;
  facts.mark_drop_exists = true;
  facts.mark_drop_sets = true;
  facts.drop_rule = true;
  // Since 1.25 the jumps are made in the part that is IPv4's alone.
  if (v6 && !Does(kubelet.version, Trait::kJumpsInIpv4Only)) facts.firewall_jumps = true;
  facts.mark_masq = true;
}

void AgentSyncs(const KubeletVersion& emulated, FamilyFacts& facts) {
  if (facts.family == IpFamily::kIpv4) {
    facts.firewall_jumps = true;
    facts.martian_rule = true;
  }
  if (CleansUp(emulated)) return;
  facts.mark_drop_exists = true;
  facts.mark_drop_sets = true;
  facts.drop_rule = true;
  facts.firewall_jumps = true;
  facts.mark_masq = true;
}

void AgentRetires(const KubeletVersion& emulated, FamilyFacts& facts) {
  if (!CleansUp(emulated)) return;
  // What lives from the drop mark is not removed: kube-proxy up to 1.24, a third party's jump.
  const bool proxy_marks =
      facts.proxy_nat.has_value() && Does(*facts.proxy_nat, Trait::kDropsByMarkDrop);
  if (!proxy_marks && !facts.user_drop) {
    facts.mark_drop_exists = false;
    facts.mark_drop_sets = false;
    facts.drop_rule = false;
  }
  if (!facts.proxy_nat.has_value() && !facts.user_masq) facts.mark_masq = false;
}

bool ProxyStarts(const ProxyVersion& proxy, FamilyFacts& facts) {
  facts.proxy_removed = false;
  if (!Does(proxy.version, Trait::kNftablesMode)) return true;
  if (proxy.mode != ProxyMode::kNftables) {
    RemoveNftablesMode(facts);
    return true;
  }
  const bool used = facts.user_masq;
  const bool removed = RemoveIptablesMode(proxy.version, facts);
  // A KUBE-MARK-MASQ that stays marks what the new table masquerades.
  facts.mark_masq = used;
  return removed;
}

bool ProxyCleansUp(Version proxy, FamilyFacts& facts) {
  if (facts.family == IpFamily::kIpv6 && !Does(proxy, Trait::kCleanupOfIpv6)) return true;
  facts.proxy_removed = true;
  RemoveNftablesMode(facts);
  return RemoveIptablesMode(proxy, facts);
}

bool ProxySyncsFully(const ProxyVersion& proxy, bool services, FamilyFacts& facts) {
  switch (proxy.mode) {
    case ProxyMode::kNftables:
      facts.nftables = true;
      facts.nftables_has_services = services;
      return true;
    case ProxyMode::kIpvs:
      if (Does(proxy.version, Trait::kIpvsDropsByMarkDrop)) facts.mark_drop_exists = true;
      if (Does(proxy.version, Trait::kIpvsRouteLocalnet)) facts.route_localnet = true;
      facts.mark_masq = facts.ipvs_hairpin = true;
      return true;
    case ProxyMode::kIptables:
      break;
  }
  if (facts.family == IpFamily::kIpv4) facts.route_localnet = true;
  facts.proxy_filter = proxy.version;
  // Jumps to a chain that only kubelet makes (kubernetes #80462): nat is refused as a whole,
  // filter, which comes first, is in place by then.
  const bool makes = Does(proxy.version, Trait::kMakesMarkDrop);
  if (services && Does(proxy.version, Trait::kDropsByMarkDrop) && !makes &&
      !facts.mark_drop_exists) {
    return false;
  }
  // kubernetes #94474: made, and never filled.
  if (makes) facts.mark_drop_exists = true;
  if (Does(proxy.version, Trait::kOwnMartianRule)) facts.firewall_jumps = true;
  ProxySyncsPartly(proxy, services, facts);
  return true;
}

void ProxySyncsPartly(const ProxyVersion& proxy, bool services, FamilyFacts& facts) {
  if (proxy.mode == ProxyMode::kNftables) facts.nftables_has_services = services;
  if (proxy.mode != ProxyMode::kIptables) return;
  facts.proxy_filter = proxy.version;
  facts.proxy_nat = proxy.version;
  facts.ipvs_hairpin = false;
  facts.nat_has_services = services;
  facts.nat_chains_left = false;
  // An older one does not know the chain: after a downgrade the chain still drops packets.
  if (Does(proxy.version, Trait::kProxyFirewall)) facts.proxy_firewall = true;
  // kubernetes #114470: KUBE-FIREWALL is flushed, and is the martian rule alone afterwards. IPv6's
  // is ensured and not flushed.
  if (Does(proxy.version, Trait::kOwnMartianRule) && facts.family == IpFamily::kIpv4) {
    facts.drop_rule = false;
    facts.martian_rule = true;
  }
  facts.mark_masq = true;
}

UsersAdded UsersAdd(FamilyFacts& facts) {
  UsersAdded added;
  added.drop = facts.user_drop = facts.mark_drop_exists;
  added.masq = facts.user_masq = facts.mark_masq;
  return added;
}

void Flushed(FamilyFacts& facts) {
  FamilyFacts empty;
  empty.family = facts.family;
  // A sysctl, not a rule: a flush does not reset it.
  empty.route_localnet = facts.route_localnet;
  // Not one of iptables' tables.
  empty.nftables = facts.nftables;
  empty.nftables_has_services = facts.nftables_has_services;
  facts = empty;
}

}  // namespace kipt::skew
