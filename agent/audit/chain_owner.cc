// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/chain_owner.h"

#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "agent/policy/nft_copies.h"
#include "agent/policy/ownership.h"

namespace kipt::agent {
namespace {

struct OwnerRow {
  Owner owner;
  absl::string_view name;
};
// How the comments of rules in base chains begin.
constexpr OwnerRow kComments[] = {
    {Owner::kNodeLocalDns, "NodeLocal DNS"},
    {Owner::kPortmap, "CNI portfwd"},
    {Owner::kHostPorts, "kube hostport"},
    {Owner::kCalico, "cali:"},
    {Owner::kCilium, "cilium"},
    {Owner::kFlannel, "flanneld"},
    {Owner::kWeave, "NOTE: this must go before '-j KUBE-FORWARD'"},
    {Owner::kIpMasqAgent, "ip-masq"},
    {Owner::kAntrea, "Antrea:"},
    {Owner::kKubeRouter, "kube-router"},
    {Owner::kNetavark, "netavark"},
    {Owner::kAwsVpcCni, "AWS SNAT CHAIN"},
    {Owner::kAwsVpcCni, "AWS, "},
};

}  // namespace

Owner OwnerOfRule(const netlink::TableId& table, absl::string_view chain, bool base,
                  const netlink::SurveyRule& rule) {
  const Owner of_chain = OwnerOfChain(table, chain, base);
  const std::optional<netlink::ChainId> id = KnownChainId(table, chain);
  const absl::string_view jump = JumpOf(rule);
  if (of_chain == Owner::kKubelet ||
      (of_chain == Owner::kThisAgent && IsPrivateChain(table.name, chain))) {
    const netlink::Rule* known = rule.rule();
    if (known != nullptr && RecognizeKubeletForm(*id, *known)) return of_chain;
    if (RecognizeCopy(*id, rule) || MayBeCopy(*id, rule)) return of_chain;
    if (IsIpvsHairpin(rule.opaque())) return Owner::kKubeProxyIpvs;
  } else if (of_chain != Owner::kBaseChain && of_chain != Owner::kUnknown) {
    return of_chain;
  }
  // Before comments: kubelet's jump from POSTROUTING has that of kube-proxy's.
  if (id && IsKubeletJump(*id, rule)) {
    return IsPrivateChain(table.name, jump) ? Owner::kThisAgent : Owner::kKubelet;
  }
  for (const OwnerRow& row : kComments) {
    if (absl::StartsWith(KnownMatches(rule).comment, row.name)) return row.owner;
  }
  const Owner of_target = jump.empty() ? Owner::kUnknown : OwnerOfChain(table, jump);
  // That a rule uses a chain of kubelet's or of ours does not make it that.
  return IsKubeletsOrOurs(of_target) ? Owner::kUnknown : of_target;
}

absl::string_view JumpOf(const netlink::SurveyRule& rule) {
  const std::string* jump = JumpTarget(rule);
  return jump == nullptr ? absl::string_view() : *jump;
}

FamilyChains::FamilyChains(const netlink::Survey& survey, netlink::Family family)
    : survey_(survey), family_(family), name_(netlink::FamilyName(family)) {}

netlink::TableId FamilyChains::Id(absl::string_view table) const {
  return {.family = name_, .name = std::string(table)};
}

const FamilyChains::Chains& FamilyChains::In(absl::string_view table) const {
  static const Chains* const kNone = new Chains();
  const auto found = survey_.tables.find(Id(table));
  return found == survey_.tables.end() ? *kNone : found->second;
}

const netlink::SurveyChain* FamilyChains::Find(absl::string_view table,
                                               absl::string_view chain) const {
  return survey_.Find(Id(table), std::string(chain));
}

const FamilyChains::RuleList& FamilyChains::Rules(absl::string_view table,
                                                  absl::string_view chain) const {
  static const RuleList* const kNone = new RuleList();
  const netlink::SurveyChain* found = Find(table, chain);
  return found == nullptr ? *kNone : found->rules;
}

bool FamilyChains::HangsOnBase(absl::string_view table, absl::string_view chain,
                               absl::string_view from) const {
  const auto jumps = [&](const netlink::SurveyRule& rule) { return JumpOf(rule) == chain; };
  return absl::c_any_of(In(table), [&](const auto& entry) {
    return entry.second.base && (from.empty() || from == absl::string_view(entry.first)) &&
           absl::c_any_of(entry.second.rules, jumps);
  });
}

bool FamilyChains::HasAnywhere(absl::string_view chain) const {
  return Has("mangle", chain) || Has("nat", chain) || Has("filter", chain);
}

}  // namespace kipt::agent
