// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/retirement.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/policy/chain_diff.h"
#include "agent/policy/ownership.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::ObservedChain;
using netlink::ObservedRule;

// "drop what is marked", with any bit: in table filter kubelet has no other rule with one.
bool IsDropMarkRule(const ChainId& chain, const ObservedRule& rule) {
  if (chain.table != netlink::Table::kFilter || rule.rule() == nullptr) return false;
  const std::optional<KubeletForm> form = RecognizeKubeletForm(chain, *rule.rule());
  return form && form->bit;
}

// Plans the retirement of one family.
class Planner {
 public:
  Planner(const ClaimSources& sources, const PolicyInput& input, const Diff& diff,
          const RetirementOptions& options, Retirement& retirement)
      : sources_(sources), input_(input), diff_(diff), options_(options), retirement_(retirement) {}

  void Plan() {
    for (const DesiredChain& known : EveryKubeletChain(sources_.family)) {
      const ObservedChain* chain = sources_.observed.Find(known.id);
      // One with a hook is another program's.
      if (chain == nullptr || chain->hooked) continue;
      if (Lists(diff_.stale, known.id) || Lists(diff_.of_kube_proxy, known.id)) {
        PlanChain(known, *chain);
      } else if (input_.mode != Mode::kLegacy) {
        PlanDropMarkRules(known.id, *chain);
      }
    }
  }

 private:
  static bool Lists(const std::vector<ExistingItem>& items, const ChainId& chain) {
    return absl::c_any_of(items, [&](const ExistingItem& one) {
      return one.chain == chain && one.text == ChainText(chain);
    });
  }

  void PlanChain(const DesiredChain& known, const ObservedChain& chain) {
    std::vector<Claim> claims = ClaimsOnChain(sources_, known.id, chain);
    if (known.id.name == kCanaryChain && !options_.canaries) {
      Claim& claim = claims.emplace_back();
      claim.kind = ClaimKind::kLiveKubelet;
      claim.text = "a running kubelet takes its absence for a flush; `retire --yes` removes it";
    }
    if (!claims.empty()) {
      Keep({known.id, ChainText(known.id), std::string(known.reason)}, std::move(claims));
      retirement_.kept.back().of_kube_proxy = Lists(diff_.of_kube_proxy, known.id);
      PlanDropMarkRules(known.id, chain);
      return;
    }
    PlanJumps(known.id);
    for (const ObservedRule& rule : chain.rules) {
      retirement_.changes.push_back({Deletion(known.id, rule), "removed with its chain"});
    }
    retirement_.changes.push_back({netlink::DeleteChain{known.id}, Why(known.id)});
  }

  // Rules that drop marked packets, in a KUBE-FIREWALL that stays for other reasons.
  void PlanDropMarkRules(const ChainId& id, const ObservedChain& chain) {
    for (const ObservedRule& rule : chain.rules) {
      if (!IsDropMarkRule(id, rule)) continue;
      std::vector<Claim> claims = ClaimsOnDropMarkRule(sources_, netlink::MarksTested(rule));
      if (claims.empty()) {
        retirement_.changes.push_back({Deletion(id, rule), Why(id)});
      } else {
        Keep({id, RuleText(id, rule), "drops what KUBE-MARK-DROP marked"}, std::move(claims));
      }
    }
  }

  void PlanJumps(const ChainId& to) {
    for (const DesiredJump& jump : EveryKubeletJump(to.family)) {
      const ObservedChain* base = sources_.observed.Find(jump.base_chain);
      const bool leads = jump.base_chain.table == to.table &&
                         std::get<netlink::Jump>(jump.rule.target).chain == to.name;
      if (!leads || base == nullptr) continue;
      for (const ObservedRule& rule : base->rules) {
        if (rule.rule() == nullptr || *rule.rule() != jump.rule) continue;
        retirement_.changes.push_back(
            {Deletion(jump.base_chain, rule), absl::StrCat("removed with ", to.name)});
      }
    }
  }

  void Keep(ExistingItem item, std::vector<Claim> claims) {
    retirement_.kept.push_back({std::move(item), std::move(claims)});
  }

  std::string Why(const ChainId& chain) const {
    return absl::StrCat("stale: ",
                        input_.mode == Mode::kOff ? "kubelet's chains are not desired"
                                                  : WhyNotDesired(input_, chain),
                        ", and unused");
  }

  const ClaimSources sources_;
  const PolicyInput& input_;
  const Diff& diff_;
  const RetirementOptions& options_;
  Retirement& retirement_;
};

// Rules and jumps before chains: a chain that is referred to, or not empty, cannot be removed.
bool DeletesRule(const Change& change) {
  return std::holds_alternative<netlink::DeleteRule>(change.operation);
}

bool DeletesHint(const Change& change) {
  const auto* chain = std::get_if<netlink::DeleteChain>(&change.operation);
  return chain != nullptr && chain->chain.name == kHintChain;
}

// Programs that choose an iptables mode (iptables-wrappers, CNI plugins) do it by the hint: those
// of both families stay as long as other programs use this mode.
void KeepHints(const Dependents& dependents, Retirement& retirement) {
  std::string user = dependents.rule_of_others;
  if (user.empty() && !retirement.kept.empty()) {
    const ExistingItem& kept = retirement.kept.front().item;
    user = absl::StrCat(netlink::ToString(kept.chain), ": ", kept.text);
  }
  if (user.empty()) return;
  for (const Change& change : retirement.changes) {
    if (!DeletesHint(change)) continue;
    const ChainId& hint = netlink::ChainOf(change.operation);
    retirement.kept.push_back(
        {{hint, ChainText(hint), change.reason},
         {{ClaimKind::kHintReaders,
           absl::StrCat(
               "shows other programs which iptables mode this node uses, and this one is in use: ",
               user)}}});
  }
  std::erase_if(retirement.changes, DeletesHint);
}

// What `operation` removes, as a listing shows it.
std::string GoneText(const netlink::Operation& operation) {
  if (const auto* chain = std::get_if<netlink::DeleteChain>(&operation)) {
    return ChainText(chain->chain);
  }
  const auto* rule = std::get_if<netlink::DeleteRule>(&operation);
  return rule != nullptr ? RuleText(rule->chain, rule->rule) : netlink::ToString(operation);
}

}  // namespace

absl::string_view StaleChainsName(StaleChains policy) {
  return policy == StaleChains::kRetire ? "retire" : "keep";
}

Retirement PlanRetirement(const PolicyInput& input, const netlink::Snapshot& observed,
                          const Diff& diff, const Dependents& dependents,
                          const RetirementOptions& options) {
  Retirement retirement;
  if (input.mode == Mode::kOff && !options.when_off) return retirement;
  for (const Family family : input.families) {
    if (Changes(diff, family)) {
      retirement.unsettled.push_back(family);
      continue;
    }
    Planner({family, observed, dependents}, input, diff, options, retirement).Plan();
  }
  if (!options.hints) KeepHints(dependents, retirement);
  const bool native = absl::c_any_of(diff.stale, [](const auto& one) { return IsNative(one); });
  if (native && input.mode == Mode::kOff && absl::c_linear_search(input.families, Family::kIPv4) &&
      dependents.route_localnet.empty() && !dependents.untracked.contains(Family::kIPv4)) {
    retirement.changes.push_back(
        {netlink::DeleteNativeTable{.family = Family::kIPv4, .name = std::string(kNativeTable)},
         "retired"});
  }
  std::stable_partition(retirement.changes.begin(), retirement.changes.end(), DeletesRule);
  return retirement;
}

bool MayRetire(const PolicyInput& input, const netlink::Snapshot& observed, const Diff& diff,
               const RetirementOptions& options) {
  return !PlanRetirement(input, observed, diff, Dependents{}, options).empty();
}

std::string ToString(const std::vector<Claim>& claims) {
  return absl::StrJoin(claims, "; ",
                       [](std::string* out, const Claim& claim) { *out += claim.text; });
}

std::vector<ExistingItem> WithClaims(std::vector<ExistingItem> stale,
                                     const Retirement& retirement) {
  std::erase_if(stale, [&](const ExistingItem& item) {
    return absl::c_any_of(retirement.changes, [&](const Change& change) {
      return netlink::ChainOf(change.operation) == item.chain &&
             GoneText(change.operation) == item.text;
    });
  });
  for (ExistingItem& item : stale) {
    for (const Claimed& kept : retirement.kept) {
      if (kept.item.chain != item.chain || kept.item.text != item.text) continue;
      item.reason = absl::StrCat("stale, kept: ", ToString(kept.claims));
    }
  }
  return stale;
}

}  // namespace kipt::agent
