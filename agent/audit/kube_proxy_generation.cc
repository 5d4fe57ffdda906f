// SPDX-License-Identifier: Apache-2.0
//
// What changed in kube-proxy's rules from release to release, as far as it can be seen in them.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "agent/audit/kube_proxy_facts.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::SurveyChain;
using netlink::SurveyRule;

// Collects "not before" and "not after"; the narrowest win.
class Bounds {
 public:
  explicit Bounds(KubeProxyFacts& facts) : facts_(facts) {}

  void AtLeast(int minor, const std::string& evidence) {
    if (minor <= facts_.oldest) return;
    facts_.oldest = minor;
    oldest_evidence_ = absl::StrCat("since 1.", minor, ": ", evidence);
  }

  void AtMost(int minor, const std::string& evidence) {
    if (facts_.newest != 0 && minor >= facts_.newest) return;
    facts_.newest = minor;
    newest_evidence_ = absl::StrCat("up to 1.", minor, ": ", evidence);
  }

  // `is_new`: what release `since` brought, and no older one has.
  void Tell(bool is_new, int since, const std::string& new_evidence,
            const std::string& old_evidence) {
    if (is_new) {
      AtLeast(since, new_evidence);
    } else {
      AtMost(since - 1, old_evidence);
    }
  }

  // What only a newer release makes outweighs what an older one may have left behind.
  void Settle() {
    if (facts_.newest != 0 && facts_.oldest > facts_.newest) {
      facts_.newest = 0;
      absl::StrAppend(&newest_evidence_, " (left over)");
    }
    for (std::string* evidence : {&oldest_evidence_, &newest_evidence_}) {
      if (!evidence->empty()) facts_.evidence.push_back(std::move(*evidence));
    }
  }

 private:
  KubeProxyFacts& facts_;
  std::string oldest_evidence_;
  std::string newest_evidence_;
};

bool AnyRule(const SurveyChain* chain, bool (*wanted)(const SurveyRule&)) {
  return chain != nullptr && std::any_of(chain->rules.begin(), chain->rules.end(), wanted);
}

// "! -s 10.244.0.0/16 ... -j KUBE-MARK-MASQ", or "! -i" of the other ways to tell local packets.
bool IsOutsideMasquerade(const SurveyRule& rule) {
  if (JumpOf(rule) != kMarkMasqChain) return false;
  const std::optional<netlink::PrefixMatch>& source = KnownMatches(rule).source;
  const netlink::OpaqueRule* opaque = rule.opaque();
  return (source && source->negated) ||
         (opaque != nullptr && opaque->in_interface && opaque->in_interface->negated);
}

// Kubelet, or this agent in its place, has written to this family.
bool HasKubeletTraces(const FamilyChains& chains) {
  return chains.Has("mangle", kHintChain) || chains.HasAnywhere(kCanaryChain);
}

// A file may hold table nat alone; then what is not in table filter tells nothing.
bool HasFilter(const FamilyChains& chains) { return !chains.In("filter").empty(); }

void TellByFilter(const FamilyChains& chains, Bounds& bounds) {
  if (!HasFilter(chains)) return;
  bounds.Tell(chains.Has("filter", "KUBE-NODEPORTS"), 21, "filter/KUBE-NODEPORTS",
              "no filter/KUBE-NODEPORTS");
  bounds.Tell(chains.HangsOnBase("filter", "KUBE-EXTERNAL-SERVICES", "FORWARD"), 20,
              "FORWARD jumps to filter/KUBE-EXTERNAL-SERVICES",
              "FORWARD does not jump to filter/KUBE-EXTERNAL-SERVICES");
  bounds.Tell(chains.HangsOnBase("filter", "KUBE-PROXY-FIREWALL"), 25, "filter/KUBE-PROXY-FIREWALL",
              "nothing jumps to filter/KUBE-PROXY-FIREWALL");
  if (!chains.Has("filter", kFirewallChain)) {
    bounds.AtMost(26, "no filter/KUBE-FIREWALL");
  } else if (!HasKubeletTraces(chains)) {
    bounds.AtLeast(27, "filter/KUBE-FIREWALL although no kubelet was here");
  } else if (chains.family() == netlink::Family::kIPv6 && !chains.Has("nat", kMarkDropChain)) {
    bounds.AtLeast(27, "filter/KUBE-FIREWALL without nat/KUBE-MARK-DROP");
  }
}

void TellByForward(const FamilyChains& chains, Bounds& bounds) {
  const SurveyChain* forward = chains.Find("filter", "KUBE-FORWARD");
  if (forward == nullptr) return;
  for (const SurveyRule& rule : forward->rules) {
    const netlink::Rule& matches = KnownMatches(rule);
    if (rule.opaque() != nullptr && rule.opaque()->nfacct) {
      bounds.AtLeast(31, "KUBE-FORWARD counts with nfacct");
    }
    if (matches.comment == "kubernetes forwarding conntrack rule") {
      bounds.AtLeast(23, "KUBE-FORWARD has one conntrack rule");
    } else if (matches.comment == "kubernetes forwarding conntrack pod source rule") {
      bounds.AtMost(22, "KUBE-FORWARD has two conntrack rules");
      bounds.Tell(!matches.source, 18, "KUBE-FORWARD's conntrack rules name no range",
                  "KUBE-FORWARD's conntrack rules name the pod range");
    }
  }
}

void TellByServices(const FamilyChains& chains, Bounds& bounds) {
  const SurveyChain* services = chains.Find("nat", "KUBE-SERVICES");
  if (services == nullptr || services->rules.empty()) return;
  if (AnyRule(services, IsOutsideMasquerade)) {
    bounds.AtMost(21, "KUBE-SERVICES itself jumps to KUBE-MARK-MASQ");
  }
  const SurveyRule& last = services->rules.back();
  if (JumpOf(last) != "KUBE-NODEPORTS") return;
  const std::optional<netlink::PrefixMatch>& destination = KnownMatches(last).destination;
  if (destination && destination->negated) {
    bounds.AtLeast(26, "node ports are not looked for on loopback addresses");
  } else if (chains.family() == netlink::Family::kIPv6) {
    bounds.AtMost(25, "node ports are looked for on ::1");
  }
}

void TellByPostrouting(const FamilyChains& chains, Bounds& bounds) {
  const SurveyChain* postrouting = chains.Find("nat", kPostroutingChain);
  if (postrouting == nullptr || postrouting->rules.empty()) return;
  const SurveyRule& first = postrouting->rules.front();
  const std::optional<netlink::MarkMatch>& mark = KnownMatches(first).mark;
  if (mark && !mark->negated && TargetName(first) == "MASQUERADE") {
    bounds.AtMost(18, "KUBE-POSTROUTING is a single rule");
  }
}

// "KUBE-SVC-X -m comment --comment "ns/svc -> 10.0.0.1:80" -j KUBE-SEP-Y".
void TellByEndpointJump(const SurveyRule& rule, Bounds& bounds) {
  const std::string& comment = KnownMatches(rule).comment;
  if (absl::StrContains(comment, " -> ")) {
    bounds.AtLeast(24, "the comments of KUBE-SVC-* name the endpoints");
    return;
  }
  bounds.AtMost(23, "the comments of KUBE-SVC-* do not name the endpoints");
  bounds.Tell(!comment.empty(), 18, "KUBE-SVC-* have comments", "KUBE-SVC-* have no comments");
}

void TellByServiceChains(const FamilyChains& chains, Bounds& bounds) {
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
      if (absl::StartsWith(JumpOf(last), "KUBE-SEP-")) TellByEndpointJump(last, bounds);
      if (IsOutsideMasquerade(chain.rules.front())) {
        bounds.AtLeast(22, "KUBE-SVC-* themselves jump to KUBE-MARK-MASQ");
      }
    }
  }
  if (firewalls && !closed) bounds.AtMost(26, "KUBE-FW-* without a closing comment");
}

void TellIpvs(const FamilyChains& chains, Bounds& bounds) {
  if (chains.Has("nat", kFirewallChain)) {
    bounds.AtMost(24, "nat/KUBE-FIREWALL, which is IPVS mode's own");
  }
  if (!HasFilter(chains)) return;
  struct Since {
    absl::string_view chain;
    int minor;
  };
  for (const auto& [chain, minor] :
       {Since{"KUBE-NODE-PORT", 21}, Since{"KUBE-SOURCE-RANGES-FIREWALL", 25},
        Since{"KUBE-IPVS-FILTER", 26}, Since{"KUBE-IPVS-OUT-FILTER", 29}}) {
    const std::string name = absl::StrCat("filter/", chain);
    bounds.Tell(chains.Has("filter", chain), minor, name, absl::StrCat("no ", name));
  }
}

}  // namespace

void TellGeneration(const FamilyChains& chains, KubeProxyFacts& facts) {
  Bounds bounds(facts);
  TellByPostrouting(chains, bounds);
  if (facts.mode == KubeProxyMode::kIpvs) {
    TellIpvs(chains, bounds);
  } else {
    TellByFilter(chains, bounds);
    TellByForward(chains, bounds);
    TellByServices(chains, bounds);
    TellByServiceChains(chains, bounds);
  }
  bounds.Settle();
}

}  // namespace kipt::agent
