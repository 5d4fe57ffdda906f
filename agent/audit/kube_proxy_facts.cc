// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/kube_proxy_facts.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/chain_owner.h"

namespace kipt::agent {
namespace {

using netlink::Family;

constexpr std::array<absl::string_view, 3> kTables = {"nat", "filter", "mangle"};

// The first of kube-proxy's chains, as TABLE/CHAIN; empty where there is none.
std::string AnyChain(const FamilyChains& chains) {
  for (const absl::string_view table : kTables) {
    for (const auto& [name, chain] : chains.In(table)) {
      const Owner owner = chain.base ? Owner::kBaseChain : OwnerOfChain(chains.Id(table), name);
      if (owner == Owner::kKubeProxy || owner == Owner::kKubeProxyIpvs) {
        return absl::StrCat(table, "/", name);
      }
    }
  }
  return "";
}

bool IsIpvs(const FamilyChains& chains, std::vector<std::string>& evidence) {
  for (const absl::string_view chain : {"KUBE-LOAD-BALANCER", "KUBE-NODE-PORT"}) {
    if (!chains.Has("nat", chain)) continue;
    evidence.push_back(absl::StrCat("nat/", chain, ", which only IPVS mode makes"));
    return true;
  }
  return false;
}

// What has a table of nft to itself.
void FindTables(const FamilyChains& chains, KubeProxyFacts& facts) {
  const bool ipv4 = chains.family() == Family::kIPv4;
  const netlink::TableId proxy = chains.Id("kube-proxy");
  const netlink::TableId kpng = chains.Id(ipv4 ? "k8s_svc" : "k8s_svc6");
  if (chains.survey().tables.count(proxy) != 0) {
    facts.mode = KubeProxyMode::kNftables;
    facts.oldest = 29;
    facts.evidence.push_back(absl::StrCat("the table ", netlink::ToString(proxy)));
  } else if (chains.survey().tables.count(kpng) != 0) {
    facts.mode = KubeProxyMode::kKpng;
    facts.evidence.push_back(absl::StrCat("the table ", netlink::ToString(kpng)));
  }
}

KubeProxyFacts FindInFamily(const FamilyChains& chains) {
  KubeProxyFacts facts;
  facts.iptables_mode = chains.survey().mode;
  facts.family = chains.family();
  FindTables(chains, facts);
  const std::string any = AnyChain(chains);
  if (any.empty()) return facts;
  if (facts.mode != KubeProxyMode::kNone) {
    facts.leftovers = true;
    facts.evidence.push_back(absl::StrCat(any, " is left of another mode"));
    return facts;
  }
  if (!chains.HangsOnBase("nat", "KUBE-SERVICES")) {
    facts.mode = KubeProxyMode::kLeftOver;
    facts.evidence.push_back(absl::StrCat(any, ", but ",
                                          chains.Has("nat", "KUBE-SERVICES")
                                              ? "nothing jumps to nat/KUBE-SERVICES"
                                              : "no nat/KUBE-SERVICES"));
    return facts;
  }
  facts.mode = IsIpvs(chains, facts.evidence) ? KubeProxyMode::kIpvs : KubeProxyMode::kIptables;
  if (facts.mode == KubeProxyMode::kIptables) {
    facts.evidence.emplace_back("PREROUTING or OUTPUT jumps to nat/KUBE-SERVICES");
  }
  // IPVS mode makes no canary either.
  facts.may_be_kpng =
      facts.mode == KubeProxyMode::kIptables && !chains.HasAnywhere("KUBE-PROXY-CANARY");
  TellGeneration(chains, facts);
  return facts;
}

bool IsLive(const KubeProxyFacts& facts) {
  return facts.mode == KubeProxyMode::kIptables || facts.mode == KubeProxyMode::kIpvs;
}

// Both families are one process's work: what the narrower of them knows.
void Join(KubeProxyFacts& a, KubeProxyFacts& b) {
  if (!IsLive(a) || a.mode != b.mode) return;
  const int oldest = std::max(a.oldest, b.oldest);
  int newest = std::min(a.newest, b.newest);
  if (a.newest == 0 || b.newest == 0) newest = std::max(a.newest, b.newest);
  // Then an old one of the two families is left over from before an upgrade.
  if (newest != 0 && oldest > newest) return;
  for (KubeProxyFacts* one : {&a, &b}) {
    const KubeProxyFacts& other = one == &a ? b : a;
    if (one->oldest == oldest && one->newest == newest) continue;
    one->evidence.push_back(
        absl::StrCat("the rules of ", netlink::FamilyName(other.family), ", which narrow it down"));
  }
  a.oldest = b.oldest = oldest;
  a.newest = b.newest = newest;
}

}  // namespace

absl::string_view KubeProxyModeName(KubeProxyMode mode) {
  // In the order of the enumeration.
  constexpr std::array<absl::string_view, 6> kNames = {"none",     "iptables", "IPVS",
                                                       "nftables", "kpng",     "left over"};
  return kNames.at(static_cast<size_t>(mode));
}

bool KubeProxyFacts::KeepsMarkMasq() const { return IsLive(*this); }

bool KubeProxyFacts::MayUseMarkDrop() const { return IsLive(*this) && oldest < 25; }

bool KubeProxyFacts::KeepsFirewall() const {
  return mode == KubeProxyMode::kIptables && oldest >= 27;
}

std::string GenerationText(const KubeProxyFacts& facts) {
  if (facts.oldest == 0 && facts.newest == 0) return "of unknown release";
  if (facts.oldest == 0) return absl::StrCat("1.", facts.newest, " or older");
  if (facts.newest == 0) return absl::StrCat("1.", facts.oldest, " or later");
  if (facts.oldest == facts.newest) return absl::StrCat("1.", facts.oldest);
  return absl::StrCat("1.", facts.oldest, " to 1.", facts.newest);
}

std::vector<KubeProxyFacts> FindKubeProxy(const netlink::Survey& survey) {
  std::vector<KubeProxyFacts> facts;
  facts.reserve(netlink::kFamilies.size());
  for (const Family family : netlink::kFamilies) {
    facts.push_back(FindInFamily(FamilyChains(survey, family)));
  }
  Join(facts[0], facts[1]);
  return facts;
}

}  // namespace kipt::agent
