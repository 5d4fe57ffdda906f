// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/audit.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/family_audit.h"
#include "agent/audit/mode_meetings.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::Survey;

// The tables of kube-proxy's nftables mode, which `kube-proxy --cleanup` deletes of both families.
std::vector<std::string> NftablesProxy(const NodeView& view) {
  std::vector<std::string> tables;
  for (const Survey& survey : view.surveys) {
    for (const auto& [table, chains] : survey.tables) {
      if (table.name == kNftablesProxyTable && table.family.starts_with("ip")) {
        tables.push_back(absl::StrCat("the table ", netlink::ToString(table)));
      }
    }
  }
  return tables;
}

// Without the gate, only what kubelet of legacy mode left acts on the drop bit.
bool ActsOnDropBit(absl::Span<const NodeView> views, const AuditOptions& options) {
  if (options.mode == Mode::kLegacy) return true;
  return absl::c_any_of(views, [&](const NodeView& view) {
    return absl::c_any_of(view.surveys, [&](const Survey& survey) {
      return absl::c_any_of(netlink::kFamilies, [&](netlink::Family family) {
        const FamilyChains chains(survey, family);
        return chains.Has("nat", kMarkDropChain) ||
               absl::c_any_of(chains.Rules("filter", kFirewallChain), [&](const auto& rule) {
                 return (MarksTested(rule) >> options.bits.drop & 1U) != 0;
               });
      });
    });
  });
}

std::vector<FamilyAudit> AuditView(const NodeView& view, FindingCollector& findings) {
  findings.netns = view.name;
  const std::vector<std::string> nftables_proxy = NftablesProxy(view);
  std::vector<FamilyAudit> all;
  for (const Survey& survey : view.surveys) {
    std::vector<FamilyAudit> families;
    const auto left_out = view.left_out.find(survey.mode);
    const LeftOut* const left = left_out == view.left_out.end() ? nullptr : &left_out->second;
    findings.counted = HasCounters(survey) || (left != nullptr && left->counted);
    for (KubeProxyFacts& proxy : FindKubeProxy(survey)) {
      // Next to nftables mode, rules of iptables mode that no packet reaches are left over.
      const bool hooked = FamilyChains(survey, proxy.family).HangsOnBase("nat", "KUBE-SERVICES");
      if (!nftables_proxy.empty() && proxy.KeepsMarkMasq() && !hooked) {
        proxy.mode = KubeProxyMode::kLeftOver;
      }
      KubeProxyFacts after = proxy;
      if (findings.options.change == NodeChange::kKubeProxyNftables && proxy.KeepsMarkMasq()) {
        after.mode = KubeProxyMode::kNftables;
      }
      families.push_back({findings, FamilyChains(survey, proxy.family), std::move(proxy),
                          std::move(after), view.surveys, left, nftables_proxy});
    }
    for (FamilyAudit& family : families) {
      AuditRules(family);
      AuditChains(family);
    }
    AuditMarks(survey, families, findings);
    absl::c_move(families, std::back_inserter(all));
  }
  AuditClearedMarks(view, all, findings);
  for (AuditFinding& meeting : FindModeMeetings(view.surveys)) {
    // Chains of one severity are one finding; the allow list names kinds.
    const std::string severity(AuditSeverityName(meeting.severity));
    findings.AddSum(std::move(meeting), severity);
  }
  AuditSurroundings(view, all, findings);
  AuditProbe(view, all, findings);
  AuditChange(view, all, findings);
  return all;
}

}  // namespace

bool HasCounters(const Survey& survey) {
  return absl::c_any_of(survey.tables, [](const auto& table) {
    return absl::c_any_of(table.second, [](const auto& chain) {
      return absl::c_any_of(chain.second.rules,
                            [](const auto& rule) { return rule.counters.packets != 0; });
    });
  });
}

AuditReport Audit(absl::Span<const NodeView> views, const AuditOptions& options) {
  FindingCollector findings(options);
  AuditReport report{.change = options.change};
  if (!ActsOnDropBit(views, options)) findings.marks &= ~(uint32_t{1} << options.bits.drop);
  if (!options.mode_unknown.empty() && options.mode != Mode::kOff) {
    findings.AddSum(
        {.kind = AuditKind::kModeUnknown,
         .severity = AuditSeverity::kError,
         .message = options.mode_unknown,
         .consequence = "The agent writes nothing, so no program repairs what is missing.",
         .remedy = "Find out which iptables kubelet runs, and give --iptables-mode. If a move of "
                   "the node left the chains, remove them in the mode that is no longer used."},
        "");
  }
  for (const NodeView& view : views) {
    for (FamilyAudit& family : AuditView(view, findings)) {
      if (&view == &views.front()) report.kube_proxy.push_back(std::move(family.proxy));
    }
  }
  findings.Finish(report);
  return report;
}

}  // namespace kipt::agent
