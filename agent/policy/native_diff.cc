// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/native_diff.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {

using netlink::Family;

namespace {

constexpr absl::string_view kInstallModules =
    "install the kernel modules (kernel-modules-extra on RHEL 10)";

void ReportConnLabels(const Ruleset& desired, Diff& diff) {
  const RuleSupport& support = desired.support;
  if (!desired.labels || desired.families.empty() || (support.xt && support.conn_labels)) return;
  diff.findings.push_back(
      {Condition::kConnLabelsImpossible,
       {desired.families.front(), netlink::Table::kNat, std::string(kLabelMasqChain)},
       absl::StrCat("ConnLabelMarking is on, but this node has no connection labels (",
                    support.xt ? support.conn_labels_reason : support.reason,
                    "): nothing that needs them is made", support.xt ? ", everything else is" : "",
                    ". Turn the feature gate off, or ",
                    support.xt ? "install the kernel module xt_connlabel" : kInstallModules),
       false});
}

}  // namespace

void DiffNative(const Ruleset& desired, const std::optional<netlink::ObservedNativeTable>& observed,
                bool martian_rule_can_stand, Diff& diff) {
  NativeDiff& native = diff.native;
  if (observed) native.dropped = observed->counters.packets;
  if (desired.native) {
    native.in_place = observed && !observed->altered && observed->table == *desired.native;
    if (!native.in_place) native.put = desired.native;
    native.reason = absl::StrCat(
        "keeps neighbours from 127.0.0.1 (CVE-2020-8558) where iptables "
        "can hold no rule: ",
        desired.support.reason);
    return;
  }
  if (!observed) return;
  const bool managed =
      desired.mode != Mode::kOff && std::find(desired.families.begin(), desired.families.end(),
                                              observed->table.family) != desired.families.end();
  if (!managed || !martian_rule_can_stand) {
    native.stale = true;
    native.reason = "stale, kept: the martian rule of KUBE-FIREWALL does not stand for it";
    return;
  }
  native.remove =
      netlink::DeleteNativeTable{.family = observed->table.family, .name = observed->table.name};
  native.reason = "the martian rule of KUBE-FIREWALL stands, and this table says the same";
}

void ReportSupport(const Ruleset& desired, Diff& diff) {
  ReportConnLabels(desired, diff);
  if (desired.support.xt || desired.mode == Mode::kOff || desired.families.empty()) return;
  const Family family = desired.families.front();
  if (desired.mode == Mode::kLegacy) {
    diff.findings.push_back(
        {Condition::kLegacyModeImpossible,
         {family, netlink::Table::kNat, std::string(kMarkMasqChain)},
         absl::StrCat("legacy mode is wanted, but iptables can hold no rule on this node (",
                      desired.support.reason,
                      "): others could not jump to KUBE-MARK-MASQ or KUBE-MARK-DROP. Turn the "
                      "feature gate IPTablesOwnershipCleanup on, or ",
                      kInstallModules),
         false});
    return;
  }
  diff.findings.push_back(
      {Condition::kNativeProtection,
       {family, netlink::Table::kMangle, std::string(kHintChain)},
       absl::StrCat("iptables can hold no rule on this node (", desired.support.reason,
                    "): the martian protection is native, and ",
                    desired.support.hint == HintPolicy::kAlways
                        ? "the hint is made all the same (--hint-policy=always)"
                        : "no hint tells others to use iptables (--hint-policy=always makes one)"),
       false});
}

}  // namespace kipt::agent
