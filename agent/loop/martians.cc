// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/martians.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "agent/policy/native_martians.h"
#include "agent/policy/rule_forms.h"

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

// Nothing before a jump to KUBE-FIREWALL keeps all packets from it.
bool LeadsToFirewall(const ObservedChain& input) {
  for (const ObservedRule& rule : input.rules) {
    const std::string* target = netlink::JumpTarget(rule);
    if (target != nullptr && *target == kFirewallChain) return input.hooked;
    if (netlink::IsUnconditionalTerminal(rule)) return false;
  }
  return false;
}

}  // namespace

MartianProtection FindMartianProtection(const netlink::Snapshot& observed,
                                        const std::optional<netlink::ObservedNativeTable>& native) {
  MartianProtection protection;
  if (native) {
    protection.stands = !native->altered && native->table == NativeMartians();
    protection.dropped = native->counters.packets;
  }
  const ObservedChain* firewall = observed.Find(Firewall());
  const ObservedChain* input = observed.Find({Family::kIPv4, Table::kFilter, "INPUT"});
  if (firewall == nullptr) return protection;
  for (const ObservedRule& rule : firewall->rules) {
    if (rule.rule() == nullptr || !IsMartianRule(*rule.rule())) continue;
    protection.stands |= input != nullptr && LeadsToFirewall(*input);
    protection.dropped += rule.counters.packets;
  }
  return protection;
}

bool MartianProtectionStands(const SyncReport& report) {
  if (report.plan.martians.stands || report.native_put) return true;
  // A jump that was missing, or the rule, was put in place.
  const bool repaired =
      std::any_of(report.applied.begin(), report.applied.end(), [](const Change& change) {
        const auto* add = std::get_if<netlink::AddRule>(&change.operation);
        if (add == nullptr || add->chain.family != Family::kIPv4) return false;
        const auto* jump = std::get_if<netlink::Jump>(&add->rule.target);
        return (add->chain == Firewall() && IsMartianRule(add->rule)) ||
               (add->chain.name == "INPUT" && jump != nullptr && jump->chain == kFirewallChain);
      });
  return repaired && report.StatusOf(Family::kIPv4).ok();
}

uint64_t MartianCount::Note(uint64_t dropped) {
  const std::optional<uint64_t> before = std::exchange(seen_, dropped);
  if (!before) return 0;
  return dropped >= *before ? dropped - *before : dropped;
}

}  // namespace kipt::agent
