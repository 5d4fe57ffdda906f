// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/martians.h"

#include <string>
#include <utility>
#include <variant>

#include "agent/policy/rule_forms.h"
#include "netlink/reach.h"

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

bool IsMartianRule(const netlink::Rule& rule) { return rule == DropMartians(0); }

const ChainId& Input() {
  static const ChainId kChain = {Family::kIPv4, Table::kFilter, "INPUT"};
  return kChain;
}

// A martian packet that comes into `firewall` comes to the rule.
bool HoldsMartianRule(const ObservedChain& firewall, netlink::Walk& walk) {
  for (const ObservedRule& rule : firewall.rules) {
    if (rule.rule() != nullptr && IsMartianRule(*rule.rule())) return true;
    if (walk.Stops(Firewall(), rule)) return false;
  }
  return false;
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

bool MartianProtectionStands(const SyncReport& report) {
  MartianProtection now = report.plan.martians;
  if (now.stands) return true;
  // What is put in place stands where packets come to it: before what could keep them from it.
  for (const Change& change : report.applied) {
    const ChainId& chain = netlink::ChainOf(change.operation);
    if (std::holds_alternative<netlink::PutNativeTable>(change.operation)) return true;
    if (const auto* add = std::get_if<netlink::AddRule>(&change.operation)) {
      const auto* jump = std::get_if<netlink::Jump>(&add->rule.target);
      now.rule |= chain == Firewall() && IsMartianRule(add->rule);
      now.way |= chain == Input() && jump != nullptr && jump->chain == kFirewallChain;
    } else if (std::holds_alternative<netlink::WakeTable>(change.operation)) {
      now.dormant &= chain.family != Family::kIPv4 || chain.table != Table::kFilter;
    }
  }
  return now.rule && now.way && !now.dormant;
}

uint64_t MartianCount::Note(uint64_t dropped) {
  const std::optional<uint64_t> before = std::exchange(seen_, dropped);
  if (!before) return 0;
  return dropped >= *before ? dropped - *before : dropped;
}

}  // namespace kipt::agent
