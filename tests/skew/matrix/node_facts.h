// SPDX-License-Identifier: Apache-2.0
//
// The state of the node, as far as packets depend on it, and what each actor's act makes of it:
// each fact about kubelet and kube-proxy appears once, where it takes effect. What is expected of a
// packet is derived from this (Expect()), never from the rules that are really there.
#ifndef KIPT_TESTS_SKEW_MATRIX_NODE_FACTS_H_
#define KIPT_TESTS_SKEW_MATRIX_NODE_FACTS_H_

#include <optional>

#include "tests/skew/versions/versions.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::skew {

// Of one family.
struct FamilyFacts {
  testing::IpFamily family = testing::IpFamily::kIpv4;

  // nat KUBE-MARK-DROP, and the rule in it that sets the mark.
  bool mark_drop_exists = false;
  bool mark_drop_sets = false;
  // filter KUBE-FIREWALL: the rule that drops marked packets, the jumps to it from INPUT and
  // OUTPUT, the martian rule (IPv4).
  bool drop_rule = false;
  bool firewall_jumps = false;
  bool martian_rule = false;
  // A chain that masquerades what KUBE-MARK-MASQ marks, and that chain.
  bool mark_masq = false;
  // kube-proxy of iptables mode: the versions that wrote its rules in filter and in nat. A restore
  // that fails leaves them different.
  std::optional<Version> proxy_filter = {};
  std::optional<Version> proxy_nat = {};
  // IPVS mode's rule for hairpin packets, in KUBE-POSTROUTING.
  bool ipvs_hairpin = false;
  // The services of now are in nat.
  bool nat_has_services = false;
  // filter KUBE-PROXY-FIREWALL and its jumps, with these services' rules.
  bool proxy_firewall = false;
  // The tables of kube-proxy's nftables mode exist; the current services are in them.
  bool nftables = false;
  bool nftables_has_services = false;
  // A foreign jump has kept nat's chains of a kube-proxy that was removed; no base chain jumps to
  // them.
  bool nat_chains_left = false;
  // kube-proxy was removed by its own --cleanup.
  bool proxy_removed = false;
  // net/ipv4/conf/all/route_localnet.
  bool route_localnet = false;
  // Third parties' rules.
  bool user_drop = false;
  bool user_masq = false;

  bool NftablesServes() const { return nftables && nftables_has_services; }
};

// kubelet's sync: at its start, and when its canary in mangle is missing.
void KubeletSyncs(const KubeletVersion& kubelet, FamilyFacts& facts);

// Our agent: what it writes at its start, and restores after every change.
void AgentSyncs(const KubeletVersion& emulated, FamilyFacts& facts);
// What --stale-chains=retire removes, at its start and with its timer.
void AgentRetires(const KubeletVersion& emulated, FamilyFacts& facts);

// What kube-proxy's start removes of another mode's rules, from 1.29 on. False: a jump from
// elsewhere keeps nat's chains. Either way nothing jumps to them any more.
bool ProxyStarts(const ProxyVersion& proxy, FamilyFacts& facts);
// `kube-proxy --cleanup`. False: as above, and it reports that.
bool ProxyCleansUp(Version proxy, FamilyFacts& facts);

// kube-proxy's sync, with services or without any. False: its restore fails, as the real one's
// does.
bool ProxySyncsFully(const ProxyVersion& proxy, bool services, FamilyFacts& facts);
// From 1.27 on, where little has changed.
void ProxySyncsPartly(const ProxyVersion& proxy, bool services, FamilyFacts& facts);

// Third parties add their rules; false for one that is refused because the chain it names is
// missing.
struct UsersAdded {
  bool drop = false;
  bool masq = false;
};
UsersAdded UsersAdd(FamilyFacts& facts);

void Flushed(FamilyFacts& facts);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_MATRIX_NODE_FACTS_H_
