// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/native_martians.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter_ipv4.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::Family;
using netlink::NativeChain;
using netlink::NativeDrop;

// "None of RELATED, ESTABLISHED, DNAT" takes two rules: a packet without a connection has no status
// to test, and a rule that tests it passes such a packet on.
std::vector<NativeDrop> Rules() {
  const netlink::Rule martian = DropMartians(0);
  NativeDrop without_connection = {.source = martian.source, .destination = martian.destination};
  without_connection.comment = martian.comment;
  NativeDrop with_connection = without_connection;
  without_connection.state_any = NF_CT_STATE_INVALID_BIT | NF_CT_STATE_UNTRACKED_BIT;
  with_connection.state_none = NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED);
  with_connection.status_none = IPS_DST_NAT;
  return {without_connection, with_connection};
}

// A drop in any base chain is final, so anywhere on the hook would do; before iptables' filter, so
// that an admin's ACCEPT rules read as they do beside KUBE-FIREWALL, which stands first.
constexpr int32_t kPriority = NF_IP_PRI_FILTER - 1;

netlink::DeleteNativeTable Removal() {
  return {.family = Family::kIPv4, .name = std::string(kNativeTable)};
}

Standing NativeStanding(std::string reason) {
  const netlink::Operation table = Removal();
  return {netlink::ChainOf(table), netlink::ToString(table), std::move(reason)};
}

constexpr absl::string_view kInstallModules =
    "install the kernel modules (kernel-modules-extra on RHEL 10)";

void ReportConnLabels(const PolicyInput& input, const RuleSupport& support, Diff& diff) {
  if (!input.labels || input.families.empty() || (support.xt && support.conn_labels)) return;
  diff.findings.push_back(
      {Condition::kConnLabelsImpossible,
       {input.families.front(), netlink::Table::kNat, std::string(kLabelMasqChain)},
       absl::StrCat("ConnLabelMarking is on, but this node has no connection labels (",
                    support.xt ? support.conn_labels_reason : support.reason,
                    "): nothing that needs them is made", support.xt ? ", everything else is" : "",
                    ". Turn the feature gate off, or ",
                    support.xt ? "install the kernel module xt_connlabel" : kInstallModules),
       false});
}

}  // namespace

netlink::NativeTable NativeMartians() {
  return {
      .family = netlink::Family::kIPv4,
      .name = std::string(kNativeTable),
      .chains = {
          NativeChain{
              .name = "input", .hook = NF_INET_LOCAL_IN, .priority = kPriority, .rules = Rules()},
          NativeChain{.name = "output",
                      .hook = NF_INET_LOCAL_OUT,
                      .priority = kPriority,
                      .rules = Rules()}}};
}

void DiffNative(const PolicyInput& input, const Ruleset& desired, const RuleSupport& support,
                const std::optional<netlink::ObservedNativeTable>& observed,
                bool martian_rule_can_stand, Diff& diff) {
  if (desired.native) {
    std::string reason = absl::StrCat(
        "keeps neighbours from 127.0.0.1 (CVE-2020-8558) where iptables "
        "can hold no rule: ",
        support.reason);
    if (observed && !observed->altered) {
      diff.in_place.push_back(NativeStanding(std::move(reason)));
    } else {
      diff.changes.push_back({netlink::PutNativeTable{*desired.native}, std::move(reason)});
    }
    return;
  }
  if (!observed) return;
  const auto& families = input.families;
  const bool managed = input.mode != Mode::kOff &&
                       std::find(families.begin(), families.end(), Family::kIPv4) != families.end();
  if (!managed || !martian_rule_can_stand) {
    diff.stale.push_back(
        NativeStanding("stale, kept: the martian rule of KUBE-FIREWALL does not stand for it"));
    return;
  }
  diff.changes.push_back(
      {Removal(), "the martian rule of KUBE-FIREWALL stands, and this table says the same"});
}

bool IsNative(const netlink::ChainId& chain) {
  return chain.family == Family::kIPv4 && chain.table == netlink::Table::kFilter &&
         chain.name == kNativeTable;
}

void ReportSupport(const PolicyInput& input, const RuleSupport& support, Diff& diff) {
  ReportConnLabels(input, support, diff);
  if (support.xt || input.mode == Mode::kOff || input.families.empty()) return;
  const Family family = input.families.front();
  if (input.mode == Mode::kLegacy) {
    diff.findings.push_back(
        {Condition::kLegacyModeImpossible,
         {family, netlink::Table::kNat, std::string(kMarkMasqChain)},
         absl::StrCat("legacy mode is wanted, but iptables can hold no rule on this node (",
                      support.reason,
                      "): others could not jump to KUBE-MARK-MASQ or KUBE-MARK-DROP. Turn the "
                      "feature gate IPTablesOwnershipCleanup on, or ",
                      kInstallModules),
         false});
    return;
  }
  diff.findings.push_back(
      {Condition::kNativeProtection,
       {family, netlink::Table::kMangle, std::string(kHintChain)},
       absl::StrCat("iptables can hold no rule on this node (", support.reason,
                    "): the martian protection is native, and ",
                    input.hint == HintPolicy::kAlways
                        ? "the hint is made all the same (--hint-policy=always)"
                        : "no hint tells others to use iptables (--hint-policy=always makes one)"),
       false});
}

}  // namespace kipt::agent
