// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/foreign_rules.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::ObservedRule;

// A bound against a writer that makes up rules; some hours' worth of honest ones, and more than can
// be present.
constexpr size_t kMostRemembered = 2048;
// Keeps so much of a rule's text, which may have 60 kB. Rules that differ only after it are one.
constexpr size_t kMostText = 512;

}  // namespace

std::optional<ForeignRuleKind> ForeignKindOf(const ChainId& chain, const ObservedRule& rule) {
  const netlink::OpaqueRule* const opaque = rule.opaque();
  if (opaque == nullptr) {
    const netlink::Target& target = rule.rule()->target;
    if (std::holds_alternative<netlink::Drop>(target)) return ForeignRuleKind::kDrop;
    const auto* mark = std::get_if<netlink::SetMark>(&target);
    const bool whole = mark != nullptr && mark->mask == netlink::kAllMarks;
    return whole ? std::optional(ForeignRuleKind::kMark) : std::nullopt;
  }
  if (opaque->target == "DROP") return ForeignRuleKind::kDrop;
  if (opaque->target == "REJECT") return ForeignRuleKind::kReject;
  constexpr absl::string_view kRedirects[] = {"REDIRECT", "TPROXY", "NETMAP"};
  if (absl::c_linear_search(kRedirects, opaque->target) ||
      absl::StrContains(opaque->text, "[xt NETMAP ") ||
      absl::EndsWith(opaque->text, "[nft redir]") || absl::EndsWith(opaque->text, "[nft tproxy]")) {
    return ForeignRuleKind::kRedirect;
  }
  // A native `dnat` or `snat`; the hook shows which.
  const bool native = absl::EndsWith(opaque->text, "[nft nat]") &&
                      (chain.name == "PREROUTING" || chain.name == "OUTPUT");
  if (opaque->target == "DNAT" || native) return ForeignRuleKind::kDnat;
  const bool whole = (opaque->marks.set | opaque->marks.cleared) == netlink::kAllMarks;
  const bool marks = opaque->target == "MARK" || opaque->target == "CONNMARK" ||
                     absl::StrContains(opaque->text, "[nft meta]");
  return whole && marks ? std::optional(ForeignRuleKind::kMark) : std::nullopt;
}

void ForeignRules::Note(const netlink::Snapshot& observed,
                        absl::Span<const netlink::Family> families,
                        absl::FunctionRef<bool(netlink::Family)> same_handles) {
  if (remembered_.size() >= kMostRemembered) ForgetAbsent();
  for (const netlink::Family family : families) {
    const bool first = checked_.insert(family).second;
    const bool same = same_handles(family);
    std::erase_if(chains_, [&](const auto& chain) {
      return chain.first.family == family && observed.Find(chain.first) == nullptr;
    });
    for (const auto& [id, chain] : observed.chains) {
      if (id.family != family || !netlink::IsBaseChain(id)) continue;
      Chain& known = chains_[id];
      known = Next(id, chain.rules, std::move(known), same, first);
    }
  }
}

ForeignRules::Chain ForeignRules::Next(const ChainId& id, const std::vector<ObservedRule>& rules,
                                       Chain before, bool same_handles, bool first) {
  Chain next;
  const bool all_expected = absl::c_any_of(expected_, [&](const ExpectedRule& expected) {
    return expected.text.empty() && !expected.prefix && expected.CoversChain(id);
  });
  if (all_expected) return next;
  size_t room = kMostKnown;
  if (same_handles) room -= std::min(room, before.known.size() + before.expected.size());
  for (const ObservedRule& rule : rules) {
    const std::optional<ForeignRuleKind> kind = ForeignKindOf(id, rule);
    if (!kind) continue;
    const auto known = before.known.find(rule.handle);
    if (same_handles && known != before.known.end()) {
      next.known.insert(before.known.extract(known));
    } else if (same_handles && before.expected.count(rule.handle) != 0) {
      next.expected.insert(rule.handle);
    } else if (room == 0) {
      ++next.others[*kind];
    } else {
      --room;
      ForeignRule found = {id, *kind, netlink::ToString(id.family, rule)};
      if (absl::c_any_of(expected_, [&](const auto& one) { return one.Covers(id, found.text); })) {
        next.expected.insert(rule.handle);
        continue;
      }
      if (found.text.size() > kMostText) found.text = found.text.substr(0, kMostText) + "...";
      // One of those that were only counted has found room.
      const bool counted = before.others.count(*kind) != 0;
      if (remembered_.insert(found).second && !first && !counted) {
        ++counts_[{id, *kind}];
        news_.push_back(found);
      }
      next.known.emplace(rule.handle, std::move(found));
    }
  }
  for (const auto& [kind, count] : next.others) {
    const auto earlier = before.others.find(kind);
    const uint64_t known = earlier == before.others.end() ? 0 : earlier->second;
    if (!first && count > known) counts_[{id, kind}] += count - known;
  }
  return next;
}

// Not those that are present, which would be new at the next check of iptables-legacy.
void ForeignRules::ForgetAbsent() {
  std::set<ForeignRule> present;
  for (const auto& [id, chain] : chains_) {
    for (const auto& [handle, rule] : chain.known) present.insert(rule);
  }
  remembered_ = std::move(present);
}

void ForeignRules::Take() {
  news_.clear();
  counts_.clear();
}

uint64_t ForeignRules::present() const {
  uint64_t count = 0;
  for (const auto& [id, chain] : chains_) {
    count += chain.known.size();
    for (const auto& [kind, others] : chain.others) count += others;
  }
  return count;
}

}  // namespace kipt::agent
