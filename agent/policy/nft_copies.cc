// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/nft_copies.h"

#include <cstdint>
#include <map>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/policy/chain_diff.h"
#include "agent/policy/policy_tables.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::ObservedRule;
using netlink::OpaqueRule;
using netlink::Rule;

bool IsTranslated(const ObservedRule& rule) {
  return rule.opaque() != nullptr && rule.opaque()->translated;
}

std::optional<NftCopy> CopyOf(const ChainId& chain, Rule rule) {
  const netlink::CtStateMatch dnat = {.states = netlink::kCtDnat};
  const bool wrong = rule.ct_state == dnat;
  if (wrong) rule.ct_state = DropMartians(0).ct_state;
  for (const kep3178::RuleRow& row : kep3178::kRules) {
    if (!IsOf(row, chain)) continue;
    Rule candidate = rule;
    if (rule.comment.empty()) candidate.comment = row.form(0).comment;
    if (std::optional<KubeletForm> form = RecognizeKubeletForm(chain, candidate)) {
      return NftCopy{.form = *std::move(form), .rule = std::move(candidate), .wrong = wrong};
    }
  }
  return std::nullopt;
}

// nft 1.0.6 loses the target MASQUERADE of the second family that it lists: then a counter alone
// follows the copy that clears the mark.
bool LostItsTarget(const ChainId& chain, const ObservedRule& before, const ObservedRule& rule) {
  if (chain.table != netlink::Table::kNat || chain.name != kPostroutingChain ||
      !IsTranslated(rule) || rule.opaque()->known != Rule{.target = netlink::NoTarget{}}) {
    return false;
  }
  const std::optional<NftCopy> copy = RecognizeCopy(chain, before);
  return copy && std::holds_alternative<netlink::SetMark>(copy->rule.target);
}

// As nft(8) would have loaded it.
OpaqueRule AsTranslated(Family family, const Rule& rule) {
  OpaqueRule opaque;
  opaque.text = netlink::ToString(family, rule);
  opaque.marks = netlink::MarksOf(rule);
  opaque.known = rule;
  opaque.translated = true;
  return opaque;
}

Finding Incompatible(const ChainId& chain, const std::string& rule, size_t count, bool copy,
                     bool gone) {
  const std::string table =
      absl::StrCat(netlink::FamilyName(chain.family), " ", netlink::TableName(chain.table));
  return {.condition = Condition::kTableIncompatible,
          .chain = chain,
          .message = absl::StrCat(
              "iptables can neither list nor save table ", table, ", because of the native rule \"",
              rule, "\"", count > 1 ? absl::StrCat(" and ", count - 1, " more") : "", ": ",
              copy ? "nft loaded it from a saved ruleset (nft list ruleset). Remove the KUBE- "
                     "chains from that file, which `audit` names"
                   : "iptables has no option for it. Move it to a table of its own (nft add "
                     "table)",
              copy && !gone ? ", and reboot" : ""),
          .repaired = gone};
}

}  // namespace

std::optional<NftCopy> RecognizeCopy(const ChainId& chain, const ObservedRule& rule) {
  return IsTranslated(rule) ? CopyOf(chain, rule.opaque()->known) : std::nullopt;
}

bool MayBeCopy(const ChainId& chain, const ObservedRule& rule) {
  return rule.rule() != nullptr && !rule.xt && rule.rule()->comment.empty() &&
         !RecognizeKubeletForm(chain, *rule.rule()) && CopyOf(chain, *rule.rule());
}

std::optional<netlink::Snapshot> WithCopiesRead(const netlink::Snapshot& observed) {
  std::map<Family, uint32_t> loaded;  // with the drop bits of copies
  for (const auto& [id, chain] : observed.chains) {
    for (const ObservedRule& rule : chain.rules) {
      if (!RecognizeCopy(id, rule)) continue;
      loaded[id.family] |= id.name == kMarkDropChain ? netlink::MarksSet(rule) : 0;
    }
  }
  if (loaded.empty()) return std::nullopt;
  netlink::Snapshot read = observed;
  for (auto& [id, chain] : read.chains) {
    if (!loaded.contains(id.family)) continue;
    const bool claimed = IsClaimedByKubeProxy(observed, id.family);
    for (size_t i = 0; i < chain.rules.size(); ++i) {
      ObservedRule& rule = chain.rules[i];
      if (MayBeCopy(id, rule) && (netlink::MarksTested(rule) & ~loaded[id.family]) == 0) {
        rule.content = AsTranslated(id.family, *rule.rule());
      }
      if (i > 0 && !claimed && LostItsTarget(id, observed.chains.at(id).rules[i - 1], rule)) {
        rule.content = AsTranslated(id.family, {.target = netlink::Masquerade{true}});
      }
      const std::optional<NftCopy> copy = RecognizeCopy(id, rule);
      if (copy && claimed && copy->form.shared_with_kube_proxy && !copy->wrong) {
        rule.content = copy->rule;
      }
    }
  }
  return read;
}

void UnlistableRules::Add(const ChainId& chain, const ObservedRule& rule) {
  if (!rule.unlistable) return;
  const bool gone = absl::c_any_of(changes_, [&](const Change& change) {
    const auto* deletion = std::get_if<netlink::DeleteRule>(&change.operation);
    return deletion != nullptr && deletion->chain == chain && deletion->handle == rule.handle;
  });
  // Only iptables writes to kube-proxy's chains of these tables, and the rules of our vocabulary
  // that it cannot list are those that WithCopiesRead made of copies.
  const bool copy = IsKubeProxyChain(chain) || RecognizeCopy(chain, rule) || rule.rule() != nullptr;
  Seen& seen = tables_[{chain.family, chain.table}];
  // The first that stays; of these, one that shows where it comes from.
  if (seen.rule.empty() || (!gone && (seen.left == 0 || (copy && !seen.copy)))) {
    seen.chain = chain;
    seen.rule = RuleText(chain, rule);
    seen.copy = copy;
  }
  ++(gone ? seen.gone : seen.left);
}

std::vector<Finding> UnlistableRules::Findings() const {
  std::vector<Finding> findings;
  for (const auto& [table, seen] : tables_) {
    const bool gone = seen.left == 0;
    findings.push_back(
        Incompatible(seen.chain, seen.rule, gone ? seen.gone : seen.left, seen.copy, gone));
  }
  return findings;
}

}  // namespace kipt::agent
