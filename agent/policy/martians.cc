// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/martians.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "agent/policy/ownership.h"
#include "agent/policy/rule_forms.h"
#include "netlink/reach.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::ObservedChain;
using netlink::ObservedRule;
using netlink::Table;

ChainId Firewall() { return {Family::kIPv4, Table::kFilter, std::string(kFirewallChain)}; }
ChainId Input() { return {Family::kIPv4, Table::kFilter, "INPUT"}; }

bool HoldsMartianRule(const ObservedChain& firewall, netlink::Walk& walk) {
  for (const ObservedRule& rule : firewall.rules) {
    if (IsMartianRule(rule)) return true;
    if (walk.Stops(Firewall(), rule)) return false;
  }
  return false;
}

}  // namespace

bool IsMartianRule(const ObservedRule& rule) {
  return rule.rule() != nullptr && *rule.rule() == DropMartians(0);
}

MartianProtection FindMartianProtection(const netlink::Snapshot& observed) {
  MartianProtection protection;
  if (observed.native) {
    protection.stands = !observed.native->altered;
    protection.dropped = protection.dropped_natively = observed.native->counters.packets;
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
    if (IsMartianRule(rule)) protection.dropped += rule.counters.packets;
  }
  return protection;
}

bool MartianProtectionStands(MartianProtection found, absl::Span<const Change> applied) {
  if (found.stands) return true;
  // We put rules where packets reach them.
  for (const Change& change : applied) {
    const ChainId& chain = netlink::ChainOf(change.operation);
    if (std::holds_alternative<netlink::PutNativeTable>(change.operation)) return true;
    if (const auto* add = std::get_if<netlink::AddRule>(&change.operation)) {
      const auto* jump = std::get_if<netlink::Jump>(&add->rule.target);
      found.rule |= chain == Firewall() && add->rule == DropMartians(0);
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

}  // namespace kipt::agent
