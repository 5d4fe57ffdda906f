// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/kube_proxy_facts.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/chain_owner.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::Family;
using netlink::SurveyRule;

// ---- the release: what changed in kube-proxy's rules, as far as it can be seen in them ----

// Collects "not before" and "not after"; the narrowest count.
struct Bounds {
  KubeProxyFacts& facts;
  std::string oldest_evidence = {};
  std::string newest_evidence = {};

  void AtLeast(int minor, absl::string_view evidence) {
    if (minor <= facts.oldest) return;
    facts.oldest = minor;
    oldest_evidence = absl::StrCat("since 1.", minor, ": ", evidence);
  }

  void AtMost(int minor, absl::string_view evidence) {
    if (facts.newest != 0 && minor >= facts.newest) return;
    facts.newest = minor;
    newest_evidence = absl::StrCat("up to 1.", minor, ": ", evidence);
  }

  // `is_new`: what release `since` introduced.
  void Note(bool is_new, int since, absl::string_view evidence, absl::string_view otherwise) {
    is_new ? AtLeast(since, evidence) : AtMost(since - 1, otherwise);
  }
};

// "! -s 10.244.0.0/16 ... -j KUBE-MARK-MASQ", or "! -i" of the other ways to recognise local
// packets.
bool IsOutsideMasquerade(const SurveyRule& rule) {
  if (JumpOf(rule) != kMarkMasqChain) return false;
  const std::optional<netlink::PrefixMatch>& source = KnownMatches(rule).source;
  const netlink::OpaqueRule* opaque = rule.opaque();
  return (source && source->negated) ||
         (opaque != nullptr && opaque->in_interface && opaque->in_interface->negated);
}

void BoundByFilter(const FamilyChains& chains, Bounds& bounds) {
  bounds.Note(chains.Has("filter", "KUBE-NODEPORTS"), 21, "filter/KUBE-NODEPORTS",
              "no filter/KUBE-NODEPORTS");
  bounds.Note(chains.HangsOnBase("filter", "KUBE-EXTERNAL-SERVICES", "FORWARD"), 20,
              "FORWARD jumps to filter/KUBE-EXTERNAL-SERVICES",
              "FORWARD does not jump to filter/KUBE-EXTERNAL-SERVICES");
  bounds.Note(chains.HangsOnBase("filter", "KUBE-PROXY-FIREWALL"), 25, "filter/KUBE-PROXY-FIREWALL",
              "nothing jumps to filter/KUBE-PROXY-FIREWALL");
  // Or this agent's.
  const bool kubelets = chains.Has("mangle", kHintChain) || chains.HasAnywhere(kCanaryChain);
  if (!chains.Has("filter", kFirewallChain)) {
    bounds.AtMost(26, "no filter/KUBE-FIREWALL");
  } else if (!kubelets) {
    bounds.AtLeast(27, "filter/KUBE-FIREWALL although no kubelet was here");
  } else if (chains.family() == netlink::Family::kIPv6 && !chains.Has("nat", kMarkDropChain)) {
    bounds.AtLeast(27, "filter/KUBE-FIREWALL without nat/KUBE-MARK-DROP");
  }
}

void BoundByForward(const FamilyChains& chains, Bounds& bounds) {
  for (const SurveyRule& rule : chains.Rules("filter", "KUBE-FORWARD")) {
    const netlink::Rule& matches = KnownMatches(rule);
    if (rule.opaque() != nullptr && rule.opaque()->nfacct) {
      bounds.AtLeast(31, "KUBE-FORWARD counts with nfacct");
    }
    if (matches.comment == "kubernetes forwarding conntrack rule") {
      bounds.AtLeast(23, "KUBE-FORWARD has one conntrack rule");
    } else if (matches.comment == "kubernetes forwarding conntrack pod source rule") {
      bounds.AtMost(22, "KUBE-FORWARD has two conntrack rules");
      bounds.Note(!matches.source, 18, "KUBE-FORWARD's conntrack rules name no range",
                  "KUBE-FORWARD's conntrack rules name the pod range");
    }
  }
}

void BoundByServices(const FamilyChains& chains, Bounds& bounds) {
  const auto& services = chains.Rules("nat", "KUBE-SERVICES");
  if (services.empty()) return;
  if (absl::c_any_of(services, IsOutsideMasquerade)) {
    bounds.AtMost(21, "KUBE-SERVICES itself jumps to KUBE-MARK-MASQ");
  }
  const SurveyRule& last = services.back();
  if (JumpOf(last) != "KUBE-NODEPORTS") return;
  const std::optional<netlink::PrefixMatch>& destination = KnownMatches(last).destination;
  if (destination && destination->negated) {
    bounds.AtLeast(26, "node ports do not match loopback addresses");
  } else if (chains.family() == netlink::Family::kIPv6) {
    bounds.AtMost(25, "node ports match ::1");
  }
}

void BoundByPostrouting(const FamilyChains& chains, Bounds& bounds) {
  const auto& postrouting = chains.Rules("nat", kPostroutingChain);
  if (postrouting.empty() || TargetName(postrouting.front()) != "MASQUERADE") return;
  const std::optional<netlink::MarkMatch>& mark = KnownMatches(postrouting.front()).mark;
  if (mark && !mark->negated) bounds.AtMost(18, "KUBE-POSTROUTING is a single rule");
}

// By the comment of a jump to an endpoint: "ns/svc -> 10.0.0.1:80".
void BoundByEndpoint(absl::string_view comment, Bounds& bounds) {
  const bool named = absl::StrContains(comment, " -> ");
  bounds.Note(named, 24, "the comments of KUBE-SVC-* name the endpoints",
              "the comments of KUBE-SVC-* do not name the endpoints");
  if (named) return;
  bounds.Note(!comment.empty(), 18, "KUBE-SVC-* have comments", "KUBE-SVC-* have no comments");
}

void BoundByServiceChains(const FamilyChains& chains, Bounds& bounds) {
  bool firewalls = false;
  bool closed = false;
  for (const auto& [name, chain] : chains.In("nat")) {
    if (absl::StartsWith(name, "KUBE-EXT-") || absl::StartsWith(name, "KUBE-SVL-")) {
      bounds.AtLeast(24, "KUBE-EXT-* or KUBE-SVL-*");
    } else if (absl::StartsWith(name, "KUBE-XLB-")) {
      bounds.AtMost(23, "KUBE-XLB-*");
    } else if (absl::StartsWith(name, "KUBE-FW-")) {
      firewalls = true;
      if (!chain.rules.empty() && absl::StrContains(KnownMatches(chain.rules.back()).comment,
                                                    "will be dropped by KUBE-PROXY-FIREWALL")) {
        closed = true;
        bounds.AtLeast(27, "KUBE-FW-* end with a rule that is only a comment");
      }
    } else if (absl::StartsWith(name, "KUBE-SVC-") && !chain.rules.empty()) {
      const SurveyRule& last = chain.rules.back();
      if (absl::StartsWith(JumpOf(last), "KUBE-SEP-")) {
        BoundByEndpoint(KnownMatches(last).comment, bounds);
      }
      if (IsOutsideMasquerade(chain.rules.front())) {
        bounds.AtLeast(22, "KUBE-SVC-* themselves jump to KUBE-MARK-MASQ");
      }
    }
  }
  if (firewalls && !closed) bounds.AtMost(26, "KUBE-FW-* without a closing comment");
}

void BoundByIpvs(const FamilyChains& chains, bool has_filter, Bounds& bounds) {
  if (chains.Has("nat", kFirewallChain)) {
    bounds.AtMost(24, "nat/KUBE-FIREWALL, which is IPVS mode's own");
  }
  if (!has_filter) return;
  constexpr std::pair<absl::string_view, int> kSince[] = {{"KUBE-NODE-PORT", 21},
                                                          {"KUBE-SOURCE-RANGES-FIREWALL", 25},
                                                          {"KUBE-IPVS-FILTER", 26},
                                                          {"KUBE-IPVS-OUT-FILTER", 29}};
  for (const auto& [chain, minor] : kSince) {
    const std::string name = absl::StrCat("filter/", chain);
    bounds.Note(chains.Has("filter", chain), minor, name, absl::StrCat("no ", name));
  }
}

// From one family's rules alone; adds to the evidence.
void FindGeneration(const FamilyChains& chains, KubeProxyFacts& facts) {
  Bounds bounds = {facts};
  // A file may have table nat alone; then a missing chain of table filter proves nothing.
  const bool has_filter = !chains.In("filter").empty();
  BoundByPostrouting(chains, bounds);
  if (facts.mode == KubeProxyMode::kIpvs) {
    BoundByIpvs(chains, has_filter, bounds);
  } else {
    if (has_filter) BoundByFilter(chains, bounds);
    BoundByForward(chains, bounds);
    BoundByServices(chains, bounds);
    BoundByServiceChains(chains, bounds);
  }
  // What only a newer release makes outweighs what an older one may have left.
  if (facts.newest != 0 && facts.oldest > facts.newest) {
    facts.newest = 0;
    bounds.newest_evidence += " (left over)";
  }
  for (std::string* evidence : {&bounds.oldest_evidence, &bounds.newest_evidence}) {
    if (!evidence->empty()) facts.evidence.push_back(std::move(*evidence));
  }
}

// ---- the mode ----

// The first of kube-proxy's chains, as TABLE/CHAIN; empty where there is none.
std::string AnyChain(const FamilyChains& chains) {
  for (const absl::string_view table : {"nat", "filter", "mangle"}) {
    for (const auto& [name, chain] : chains.In(table)) {
      const Owner owner = OwnerOfChain(chains.Id(table), name, chain.base);
      if (owner == Owner::kKubeProxy || owner == Owner::kKubeProxyIpvs) {
        return absl::StrCat(table, "/", name);
      }
    }
  }
  return "";
}

// A table of nft that one program has to itself.
bool FindTable(const FamilyChains& chains, absl::string_view name, KubeProxyFacts& facts) {
  const netlink::TableId table = chains.Id(name);
  if (!chains.survey().tables.contains(table)) return false;
  facts.evidence.push_back(absl::StrCat("the table ", netlink::ToString(table)));
  return true;
}

// kube-proxy writes this chain anew in the mode in which it runs. Others of a mode that it has left
// stay until a reboot.
bool ServesByIptables(const FamilyChains& chains) {
  return absl::c_any_of(chains.Rules("nat", "KUBE-SERVICES"), [](const netlink::SurveyRule& rule) {
    const absl::string_view jump = JumpOf(rule);
    return jump == "KUBE-NODEPORTS" || absl::StartsWith(jump, "KUBE-SVC-");
  });
}

// Jumps of every generation and mode that has the chain. kube-proxy makes them at its start, and
// since 1.27 at few other times.
struct JumpRow {
  absl::string_view table;
  absl::string_view base;
  absl::string_view chain;
};
constexpr JumpRow kJumps[] = {
    {"nat", "PREROUTING", "KUBE-SERVICES"},        {"nat", "OUTPUT", "KUBE-SERVICES"},
    {"nat", "POSTROUTING", kPostroutingChain},     {"filter", "FORWARD", "KUBE-FORWARD"},
    {"filter", "OUTPUT", "KUBE-SERVICES"},         {"filter", "FORWARD", "KUBE-SERVICES"},
    {"filter", "INPUT", "KUBE-EXTERNAL-SERVICES"}, {"filter", "INPUT", "KUBE-NODEPORTS"},
    {"filter", "FORWARD", "KUBE-PROXY-FIREWALL"}};

std::vector<std::string> LostJumps(const FamilyChains& chains) {
  std::vector<std::string> lost;
  for (const JumpRow& row : kJumps) {
    if (chains.Has(row.table, row.chain) && !chains.HangsOnBase(row.table, row.chain, row.base)) {
      lost.push_back(absl::StrCat(row.base, " to ", row.table, "/", row.chain));
    }
  }
  return lost;
}

KubeProxyFacts FindInFamily(const FamilyChains& chains) {
  KubeProxyFacts facts = {.iptables_mode = chains.survey().mode, .family = chains.family()};
  if (FindTable(chains, kNftablesProxyTable, facts)) {
    facts.mode = KubeProxyMode::kNftables;
    facts.oldest = 29;
  } else if (FindTable(chains, chains.family() == Family::kIPv4 ? "k8s_svc" : "k8s_svc6", facts)) {
    facts.mode = KubeProxyMode::kKpng;
  }
  const std::string any = AnyChain(chains);
  if (any.empty()) return facts;
  if (facts.mode != KubeProxyMode::kNone) {
    facts.leftovers = true;
    facts.evidence.push_back(absl::StrCat(any, " is a leftover of another mode"));
    return facts;
  }
  const bool services = chains.Has("nat", "KUBE-SERVICES");
  const bool canary = chains.HasAnywhere("KUBE-PROXY-CANARY");
  // A running kube-proxy makes its canary again; --cleanup removes it, or else KUBE-SERVICES.
  if (!chains.HangsOnBase("nat", "KUBE-SERVICES") && !(services && canary)) {
    facts.mode = KubeProxyMode::kLeftOver;
    facts.evidence.push_back(absl::StrCat(
        any, ", but ", services ? "nothing jumps to nat/KUBE-SERVICES" : "no nat/KUBE-SERVICES"));
    return facts;
  }
  facts.lost_jumps = LostJumps(chains);
  const bool balancer = chains.Has("nat", "KUBE-LOAD-BALANCER");
  if ((balancer || chains.Has("nat", "KUBE-NODE-PORT")) && !ServesByIptables(chains)) {
    facts.mode = KubeProxyMode::kIpvs;
    facts.evidence = {absl::StrCat("nat/", balancer ? "KUBE-LOAD-BALANCER" : "KUBE-NODE-PORT",
                                   ", which only IPVS mode makes")};
  } else {
    facts.mode = KubeProxyMode::kIptables;
    facts.evidence = {chains.HangsOnBase("nat", "KUBE-SERVICES")
                          ? "PREROUTING or OUTPUT jumps to nat/KUBE-SERVICES"
                          : "KUBE-PROXY-CANARY and nat/KUBE-SERVICES exist"};
    // IPVS mode makes no canary either.
    facts.may_be_kpng = !canary;
  }
  FindGeneration(chains, facts);
  return facts;
}

// One process writes both families: what the narrower of them shows.
void Join(KubeProxyFacts& a, KubeProxyFacts& b) {
  if (!a.KeepsMarkMasq() || a.mode != b.mode) return;
  const int oldest = std::max(a.oldest, b.oldest);
  const int newest =
      a.newest == 0 || b.newest == 0 ? std::max(a.newest, b.newest) : std::min(a.newest, b.newest);
  // One family is then left over from before an upgrade.
  if (newest != 0 && oldest > newest) return;
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (one->oldest == oldest && one->newest == newest) continue;
    one->evidence.push_back(absl::StrCat("the rules of ", netlink::FamilyName(other->family),
                                         ", which narrow it down"));
    one->oldest = oldest;
    one->newest = newest;
  }
}

}  // namespace

absl::string_view KubeProxyModeName(KubeProxyMode mode) {
  // In the order of the enumeration.
  constexpr std::array kNames = {"none", "iptables", "IPVS", "nftables", "kpng", "left over"};
  return kNames.at(static_cast<size_t>(mode));
}

std::string GenerationText(const KubeProxyFacts& facts) {
  if (facts.oldest == 0 && facts.newest == 0) return "of unknown release";
  if (facts.oldest == 0) return absl::StrCat("1.", facts.newest, " or older");
  if (facts.newest == 0) return absl::StrCat("1.", facts.oldest, " or later");
  if (facts.oldest == facts.newest) return absl::StrCat("1.", facts.oldest);
  return absl::StrCat("1.", facts.oldest, " to 1.", facts.newest);
}

std::vector<KubeProxyFacts> FindKubeProxy(const netlink::Survey& survey) {
  std::vector<KubeProxyFacts> facts = {FindInFamily(FamilyChains(survey, Family::kIPv4)),
                                       FindInFamily(FamilyChains(survey, Family::kIPv6))};
  Join(facts[0], facts[1]);
  return facts;
}

std::string ProxyText(const KubeProxyFacts& proxy) {
  return absl::StrCat("kube-proxy ", GenerationText(proxy), " (", KubeProxyModeName(proxy.mode),
                      " mode)");
}

}  // namespace kipt::agent
