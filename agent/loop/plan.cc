// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/plan.h"

#include <set>
#include <string>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "agent/policy/ownership.h"
#include "agent/policy/rule_forms.h"
#include "netlink/reach.h"
#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::ObservedChain;
using netlink::ObservedRule;
using netlink::Table;

const ChainId& Firewall() {
  static const ChainId kChain = {Family::kIPv4, Table::kFilter, std::string(kFirewallChain)};
  return kChain;
}

const ChainId& Input() {
  static const ChainId kChain = {Family::kIPv4, Table::kFilter, "INPUT"};
  return kChain;
}

bool IsMartianRule(const netlink::Rule& rule) { return rule == DropMartians(0); }

// A martian packet that comes into `firewall` comes to the rule.
bool HoldsMartianRule(const ObservedChain& firewall, netlink::Walk& walk) {
  for (const ObservedRule& rule : firewall.rules) {
    if (rule.rule() != nullptr && IsMartianRule(*rule.rule())) return true;
    if (walk.Stops(Firewall(), rule)) return false;
  }
  return false;
}

// In table nat of `family`.
bool LacksPostroutingJumpAlone(const Diff& diff, Family family) {
  std::vector<const netlink::Operation*> in_nat;
  for (const Change& change : diff.changes) {
    const ChainId& chain = netlink::ChainOf(change.operation);
    if (chain.family == family && chain.table == Table::kNat) in_nat.push_back(&change.operation);
  }
  if (in_nat.size() != 1) return false;
  const auto* add = std::get_if<netlink::AddRule>(in_nat.front());
  const auto* jump = add == nullptr ? nullptr : std::get_if<netlink::Jump>(&add->rule.target);
  return jump != nullptr && jump->chain == kPostroutingChain;
}

std::vector<ForeignJump> ForeignJumps(const netlink::Snapshot& snapshot) {
  std::set<ForeignJump> jumps;
  for (const auto& [id, chain] : snapshot.chains) {
    if (netlink::FindBaseChain(id.table, id.name) == nullptr) continue;
    for (const ObservedRule& rule : chain.rules) {
      const std::string* target = netlink::JumpTarget(rule);
      if (target != nullptr && !IsKubeletChain({id.family, id.table, *target})) {
        jumps.insert({id, *target});
      }
    }
  }
  return {jumps.begin(), jumps.end()};
}

}  // namespace

MartianProtection FindMartianProtection(const netlink::Snapshot& observed,
                                        const std::optional<netlink::ObservedNativeTable>& native) {
  MartianProtection protection;
  if (native) {
    protection.stands = !native->altered;
    protection.dropped = protection.dropped_natively = native->counters.packets;
  }
  const ObservedChain* firewall = observed.Find(Firewall());
  const ObservedChain* input = observed.Find(Input());
  netlink::Walk walk(observed);
  protection.dormant = observed.dormant.count({Family::kIPv4, Table::kFilter}) != 0;
  protection.way = input != nullptr && input->hooked && walk.Leads(Input(), Firewall());
  if (firewall == nullptr) return protection;
  protection.rule = HoldsMartianRule(*firewall, walk);
  protection.stands |= protection.rule && protection.way && !protection.dormant;
  for (const ObservedRule& rule : firewall->rules) {
    if (rule.rule() == nullptr || !IsMartianRule(*rule.rule())) continue;
    protection.dropped += rule.counters.packets;
  }
  return protection;
}

bool MartianProtectionStands(MartianProtection found, absl::Span<const Change> applied) {
  if (found.stands) return true;
  // What is put in place stands where packets come to it: before what could keep them from it.
  for (const Change& change : applied) {
    const ChainId& chain = netlink::ChainOf(change.operation);
    if (std::holds_alternative<netlink::PutNativeTable>(change.operation)) return true;
    if (const auto* add = std::get_if<netlink::AddRule>(&change.operation)) {
      const auto* jump = std::get_if<netlink::Jump>(&add->rule.target);
      found.rule |= chain == Firewall() && IsMartianRule(add->rule);
      found.way |= chain == Input() && jump != nullptr && jump->chain == kFirewallChain;
    } else if (std::holds_alternative<netlink::WakeTable>(change.operation)) {
      found.dormant &= chain.family != Family::kIPv4 || chain.table != Table::kFilter;
    }
  }
  return found.rule && found.way && !found.dormant;
}

uint64_t CountedSince(std::optional<uint64_t>& seen, uint64_t now) {
  const std::optional<uint64_t> before = std::exchange(seen, now);
  if (!before) return 0;
  return now >= *before ? now - *before : now;
}

absl::StatusOr<Observation> Observe(netlink::Backend& backend,
                                    absl::Span<const netlink::ChainQuery> queries) {
  // First, so that a node without one is known for that before anything dearer is read.
  absl::StatusOr<netlink::NativeReading> native = backend.ReadNativeTable(NativeMartians());
  if (!native.ok()) return native.status();
  absl::StatusOr<netlink::Snapshot> snapshot = backend.Read(queries);
  if (!snapshot.ok()) return snapshot.status();
  if (native->table && native->generation != snapshot->generation) {
    return absl::AbortedError("the ruleset changed while it was read");
  }
  return Observation{*std::move(snapshot), native->table};
}

RuleSupport Proven(const RuleSupport& support, const netlink::Snapshot& snapshot) {
  const auto has_xt = [](const auto& chain) {
    return absl::c_any_of(chain.second.rules, [](const ObservedRule& rule) { return rule.xt; });
  };
  if (support.xt || support.refused || absl::c_none_of(snapshot.chains, has_xt)) return support;
  RuleSupport proven = support;
  proven.xt = true;
  proven.reason = "";
  return proven;
}

Plan Compare(const PolicyInput& input, const RuleSupport& support, const Observation& observed) {
  const netlink::Snapshot& snapshot = observed.snapshot;
  const RuleSupport proven = Proven(support, snapshot);
  Plan plan{.generation = snapshot.generation,
            .families = input.families,
            .diff = ComputeDiff(input, snapshot, observed.native, proven),
            .claimed_by_kube_proxy = {},
            .in_cleanup = {},
            .foreign_jumps = ForeignJumps(snapshot),
            .martians = FindMartianProtection(snapshot, observed.native),
            .support_disproved = proven.xt != support.xt};
  for (const Family family : netlink::kFamilies) {
    if (IsClaimedByKubeProxy(snapshot, family)) plan.claimed_by_kube_proxy.push_back(family);
    if (KubeProxyLeaves(snapshot, family) && LacksPostroutingJumpAlone(plan.diff, family)) {
      plan.in_cleanup.push_back(family);
    }
  }
  return plan;
}

}  // namespace kipt::agent
