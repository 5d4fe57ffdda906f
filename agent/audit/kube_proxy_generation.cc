// SPDX-License-Identifier: Apache-2.0
//
// What changed in kube-proxy's rules from release to release, as far as it can be seen in them.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "agent/audit/kube_proxy_facts.h"
#include "agent/audit/rule_words.h"
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
  if (rule.jump != std::string(kMarkMasqChain)) return false;
  const RuleWords words = ParseRuleWords(rule.text);
  return words.source.negated || words.in_interface.negated;
}

// Kubelet, or this agent in its place, has written to this family.
bool HasKubeletTraces(const FamilyChains& chains) {
  return chains.Has("mangle", kHintChain) || chains.HasAnywhere(kCanaryChain);
}

// A file may hold table nat alone; then what is not in table filter tells nothing.
bool HasFilter(const FamilyChains& chains) { return !chains.In("filter").empty(); }

void TellByFilter(const FamilyChains& chains, Bounds& bounds) {
  if (!HasFilter(chains)) return;
  if (chains.Has("filter", "KUBE-NODEPORTS")) {
    bounds.AtLeast(21, "filter/KUBE-NODEPORTS");
  } else {
    bounds.AtMost(20, "no filter/KUBE-NODEPORTS");
  }
  if (chains.HangsOnBase("filter", "KUBE-EXTERNAL-SERVICES", "FORWARD")) {
    bounds.AtLeast(20, "FORWARD jumps to filter/KUBE-EXTERNAL-SERVICES");
  } else {
    bounds.AtMost(19, "FORWARD does not jump to filter/KUBE-EXTERNAL-SERVICES");
  }
  if (chains.HangsOnBase("filter", "KUBE-PROXY-FIREWALL")) {
    bounds.AtLeast(25, "filter/KUBE-PROXY-FIREWALL");
  } else {
    bounds.AtMost(24, "nothing jumps to filter/KUBE-PROXY-FIREWALL");
  }
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
    const RuleWords words = ParseRuleWords(rule.text);
    if (absl::StrContains(rule.text, "--nfacct-name")) {
      bounds.AtLeast(31, "KUBE-FORWARD counts with nfacct");
    }
    if (words.comment == "kubernetes forwarding conntrack rule") {
      bounds.AtLeast(23, "KUBE-FORWARD has one conntrack rule");
    } else if (words.comment == "kubernetes forwarding conntrack pod source rule") {
      bounds.AtMost(22, "KUBE-FORWARD has two conntrack rules");
      if (words.source) {
        bounds.AtMost(17, "KUBE-FORWARD's conntrack rules name the pod range");
      } else {
        bounds.AtLeast(18, "KUBE-FORWARD's conntrack rules name no range");
      }
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
  if (last.jump != "KUBE-NODEPORTS") return;
  const RuleWords words = ParseRuleWords(last.text);
  if (words.destination.negated) {
    bounds.AtLeast(26, "node ports are not looked for on loopback addresses");
  } else if (chains.family() == netlink::Family::kIPv6) {
    bounds.AtMost(25, "node ports are looked for on ::1");
  }
}

void TellByPostrouting(const FamilyChains& chains, Bounds& bounds) {
  const SurveyChain* postrouting = chains.Find("nat", kPostroutingChain);
  if (postrouting == nullptr || postrouting->rules.empty()) return;
  const RuleWords words = ParseRuleWords(postrouting->rules.front().text);
  if (words.mark && !words.mark.negated && words.target == "MASQUERADE") {
    bounds.AtMost(18, "KUBE-POSTROUTING is a single rule");
  }
}

// "KUBE-SVC-X -m comment --comment "ns/svc -> 10.0.0.1:80" -j KUBE-SEP-Y".
void TellByEndpointJump(const SurveyRule& rule, Bounds& bounds) {
  if (absl::StrContains(rule.text, " -> ")) {
    bounds.AtLeast(24, "the comments of KUBE-SVC-* name the endpoints");
    return;
  }
  bounds.AtMost(23, "the comments of KUBE-SVC-* do not name the endpoints");
  if (!absl::StrContains(rule.text, "--comment")) {
    bounds.AtMost(17, "KUBE-SVC-* have no comments");
  } else {
    bounds.AtLeast(18, "KUBE-SVC-* have comments");
  }
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
      if (!chain.rules.empty() &&
          absl::StrContains(chain.rules.back().text, "will be dropped by KUBE-PROXY-FIREWALL")) {
        closed = true;
        bounds.AtLeast(27, "KUBE-FW-* end with a rule that is only a comment");
      }
    } else if (absl::StartsWith(name, "KUBE-SVC-") && !chain.rules.empty()) {
      const SurveyRule& last = chain.rules.back();
      if (absl::StartsWith(last.jump, "KUBE-SEP-")) TellByEndpointJump(last, bounds);
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
  if (chains.Has("filter", "KUBE-NODE-PORT")) {
    bounds.AtLeast(21, "filter/KUBE-NODE-PORT");
  } else {
    bounds.AtMost(20, "no filter/KUBE-NODE-PORT");
  }
  if (chains.Has("filter", "KUBE-SOURCE-RANGES-FIREWALL")) {
    bounds.AtLeast(25, "filter/KUBE-SOURCE-RANGES-FIREWALL");
  } else {
    bounds.AtMost(24, "no filter/KUBE-SOURCE-RANGES-FIREWALL");
  }
  if (chains.Has("filter", "KUBE-IPVS-FILTER")) {
    bounds.AtLeast(26, "filter/KUBE-IPVS-FILTER");
  } else {
    bounds.AtMost(25, "no filter/KUBE-IPVS-FILTER");
  }
  if (chains.Has("filter", "KUBE-IPVS-OUT-FILTER")) {
    bounds.AtLeast(29, "filter/KUBE-IPVS-OUT-FILTER");
  } else {
    bounds.AtMost(28, "no filter/KUBE-IPVS-OUT-FILTER");
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
