// SPDX-License-Identifier: Apache-2.0
#include "agent/report/report.h"

#include <algorithm>
#include <tuple>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "agent/policy/diff.h"
#include "agent/policy/retirement.h"
#include "agent/policy/rule_forms.h"
#include "agent/text/printable.h"
#include "featuregates/known_features.h"
#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;

bool IsRemoval(const netlink::Operation& operation) {
  return std::holds_alternative<netlink::DeleteRule>(operation) ||
         std::holds_alternative<netlink::DeleteChain>(operation) ||
         std::holds_alternative<netlink::DeleteNativeTable>(operation);
}

// A line of a plan. `sign`: '+' to be added, '-' to be removed, '=' stays.
struct PlanLine {
  char sign;
  ExistingItem item;
};

// The order of a plan: table by table, base chains last, a chain before its rules, what stays
// before what is added before what is removed, and the native table after all.
auto Place(const PlanLine& line) {
  const auto& [chain, text, reason] = line.item;
  const size_t rank =
      absl::StartsWith(text, ":") ? 0 : 1 + absl::string_view("=+-").find(line.sign);
  const bool base = netlink::IsBaseChain(chain);
  return std::make_tuple(IsNative(chain), chain.family, chain.table, base, chain.name, rank);
}

std::vector<PlanLine> PlanLines(const Diff& diff) {
  std::vector<PlanLine> lines;
  for (const auto* items : {&diff.in_place, &diff.stale, &diff.of_kube_proxy}) {
    for (const ExistingItem& item : *items) lines.push_back({'=', item});
  }
  for (const Change& change : diff.changes) {
    lines.push_back(
        {IsRemoval(change.operation) ? '-' : '+',
         {netlink::ChainOf(change.operation), netlink::ToString(change.operation), change.reason}});
  }
  std::ranges::stable_sort(lines, {}, Place);
  return lines;
}

auto CountOf(const std::vector<Change>& changes, Family family) {
  return absl::c_count_if(changes, [&](const Change& change) {
    return netlink::ChainOf(change.operation).family == family;
  });
}

// The releases of kubelet that make the same rules as the emulated one does.
std::string KubeletsText(const Subject& subject) {
  constexpr featuregates::Version kFirstWithGate =
      featuregates::kIPTablesOwnershipCleanupLife[0].since;
  constexpr featuregates::Version kFirstWithGateOn = featuregates::kDefaultEmulatedVersion;
  const featuregates::Version emulated = subject.emulated_version;
  if (subject.input.mode == Mode::kOff) return "";
  if (subject.input.mode == Mode::kCleanup) {
    const bool by_default = emulated >= kFirstWithGateOn;
    return absl::StrCat(", rules of kubelet ",
                        featuregates::ToString(by_default ? kFirstWithGateOn : kFirstWithGate),
                        " to ", featuregates::ToString(featuregates::kNewestKnownRelease),
                        by_default ? "" : " with the gate on");
  }
  if (emulated < kFirstWithGate) return ", rules of kubelet " + featuregates::ToString(emulated);
  return absl::StrCat(", rules of kubelet ", featuregates::ToString(kFirstWithGate), " to ",
                      featuregates::ToString(kFirstWithGateOn), " with the gate off");
}

std::string HeaderText(const Subject& subject, uint32_t generation) {
  const std::string families = absl::StrJoin(
      subject.input.families, " ",
      [](std::string* out, Family family) { absl::StrAppend(out, netlink::FamilyName(family)); });
  std::string text =
      absl::StrFormat("mode %s%s, iptables %s, families %s", ModeName(subject.input.mode),
                      KubeletsText(subject), subject.iptables_mode, families);
  if (subject.input.mode == Mode::kLegacy) {
    absl::StrAppend(&text, ", masquerade bit ", subject.input.bits.masquerade, ", drop bit ",
                    subject.input.bits.drop);
  }
  if (subject.input.labels) {
    absl::StrAppend(&text, ", masquerade label ", subject.input.labels->masquerade, ", drop label ",
                    subject.input.labels->drop);
  }
  absl::StrAppend(&text, ", generation ", generation, "\n");
  return text;
}

std::string LinesText(const Diff& diff) {
  std::string text;
  std::string last;
  for (const auto& [sign, item] : PlanLines(diff)) {
    const ChainId& chain = item.chain;
    const bool native = IsNative(chain);
    const std::string head =
        absl::StrCat("\n", netlink::FamilyName(chain.family), " ",
                     native ? kNativeTable : netlink::TableName(chain.table), "\n");
    if (native || head != last) text += head;
    last = head;
    AppendLine(text, "  ", absl::string_view(&sign, 1), " ", item.text, "  # ", item.reason);
  }
  return text;
}

std::string ChangesText(const std::vector<Change>& changes) {
  Diff diff;
  diff.changes = changes;
  return LinesText(diff);
}

std::string FindingsText(const std::vector<Finding>& findings) {
  if (findings.empty()) return "";
  std::string text = "\nfindings\n";
  for (const Finding& finding : findings) {
    AppendLine(text, "  ! ", ConditionName(finding.condition), " (",
               SeverityName(SeverityOf(finding.condition)), ") ", netlink::ToString(finding.chain),
               ": ", finding.message, finding.repaired ? " (repaired by this plan)" : "");
  }
  return text;
}

std::string KeptText(const std::vector<Claimed>& kept) {
  std::string text, of_kube_proxy;
  for (const Claimed& one : kept) {
    AppendLine(one.of_kube_proxy ? of_kube_proxy : text, "  = ", netlink::ToString(one.item.chain),
               ": ", one.item.text, "  # ", ToString(one.claims));
  }
  const auto under = [](absl::string_view heading, const std::string& lines) {
    return lines.empty() ? "" : absl::StrCat("\n", heading, "\n", lines);
  };
  return absl::StrCat(under("kept, because another program uses it", text),
                      under("kube-proxy's, and not stale", of_kube_proxy));
}

// ", 2 kube-proxy's"; nothing where there is nothing.
std::string KubeProxysText(auto count) {
  return count == 0 ? "" : absl::StrCat(", ", count, " kube-proxy's");
}

// `plan` with what is retired among its changes, and claims among what is stale.
Diff WithRetirement(const Plan& plan) {
  Diff diff = plan.diff;
  if (!plan.retirement) return diff;
  diff.stale = WithClaims(std::move(diff.stale), *plan.retirement);
  diff.changes.insert(diff.changes.end(), plan.retirement->changes.begin(),
                      plan.retirement->changes.end());
  return diff;
}

std::string MartianText(const Subject& subject, const Plan& plan) {
  std::string text = "martian packets: ";
  if (plan.martians.in_place) {
    absl::StrAppend(&text, "dropped by a rule (", plan.martians.dropped, " so far)");
  } else if (subject.route_localnet.empty()) {
    text += "no rule, and route_localnet is nowhere 1";
  } else if (!plan.martians.elsewhere.empty()) {
    absl::StrAppend(&text, "no rule of kubelet's; dropped by ", plan.martians.elsewhere);
  } else {
    text += plan.martians.rule ? "EXPOSED: no packet reaches the rule" : "EXPOSED: no rule";
  }
  if (!subject.route_localnet.empty()) {
    absl::StrAppend(&text, "; ", ToString(subject.route_localnet));
  }
  return Printable(text) + "\n";
}

// iptables-wrappers chooses the iptables mode by this chain.
absl::string_view MisleadingIn(const OtherMode& other, const netlink::ChainId& chain) {
  const bool looked_for = chain.table == netlink::Table::kMangle &&
                          (chain.name == kHintChain || chain.name == kCanaryChain);
  if (other.iptables_mode != "nft" || !looked_for) return "";
  return "  # misleading: iptables-wrappers accepts hint or canary, checks nft first, and so takes "
         "nft";
}

// Without `all` only what needs attention.
std::string OtherText(const Subject& subject, bool all = true) {
  if (!subject.other_mode) return "";
  const OtherMode& other = *subject.other_mode;
  std::string lines;
  for (const netlink::ChainId& chain : other.chains) {
    const absl::string_view misleading = MisleadingIn(other, chain);
    if (all || !misleading.empty()) {
      AppendLine(lines, "  . ", netlink::ToString(chain), misleading);
    }
  }
  if (!other.problem.empty()) AppendLine(lines, "  ! it could not be read: ", other.problem);
  return lines.empty() ? ""
                       : absl::StrCat("\nother iptables mode, ", other.iptables_mode,
                                      ", which is not managed\n", lines);
}

// Everything that a plan leaves unchanged.
std::string UnchangedText(const Subject& subject, Diff diff, const Retirement& other) {
  diff.changes.clear();
  const std::string lines = LinesText(diff);
  return absl::StrCat(lines.empty() ? "" : "\nunchanged\n", lines, OtherText(subject),
                      KeptText(other.kept));
}

// A family's line of `status`.
std::string FamilyText(const Diff& diff, Family family) {
  const auto changes = CountOf(diff.changes, family);
  const auto findings = absl::c_count_if(diff.findings, [&](const Finding& finding) {
    return finding.chain.family == family && NeedsAttention(finding);
  });
  if (changes == 0) return findings == 0 ? "in place" : Counted(findings, "finding");
  return absl::StrCat(Counted(changes, "change"), " needed (see plan)",
                      findings == 0 ? "" : ", " + Counted(findings, "finding"));
}

// "", "1.31+", "to 1.27", "1.29 to 1.42".
std::string ReleasesText(const Capability& capability) {
  if (capability.until.empty()) {
    return absl::StrCat(capability.since, capability.since.empty() ? "" : "+");
  }
  return absl::StrCat(capability.since, capability.since.empty() ? "" : " ", "to ",
                      capability.until);
}

}  // namespace

std::string PlanText(const Subject& subject, const Plan& plan) {
  const Diff diff = WithRetirement(plan);
  const Retirement other = plan.other_retirement.value_or(Retirement());
  const auto removed = absl::c_count_if(
      diff.changes, [](const Change& change) { return IsRemoval(change.operation); });
  const size_t not_managed = subject.other_mode ? subject.other_mode->chains.size() : 0;
  const bool hidden =
      !subject.show_all &&
      diff.in_place.size() + diff.stale.size() + diff.of_kube_proxy.size() + not_managed > 0;
  return absl::StrCat(
      HeaderText(subject, plan.generation), ChangesText(diff.changes), FindingsText(diff.findings),
      ChangesText(WithoutNative(other.changes)),
      subject.show_all ? UnchangedText(subject, diff, other) : OtherText(subject, /*all=*/false),
      "\n",
      absl::StrFormat("%d to add, %d to remove, %d in place, %d stale%s, %s",
                      std::ssize(diff.changes) - removed, removed, diff.in_place.size(),
                      diff.stale.size(), KubeProxysText(diff.of_kube_proxy.size()),
                      Counted(diff.findings.size(), "finding")),
      not_managed == 0 ? "" : absl::StrCat(", ", not_managed, " not managed"),
      hidden ? " (--all lists what is unchanged)" : "", "\n");
}

std::string SyncText(const Subject& subject, const SyncReport& report) {
  std::string text = HeaderText(subject, report.plan.generation);
  absl::StrAppend(&text, ChangesText(report.applied), FindingsText(report.plan.diff.findings));
  for (const RetireReport& mode : report.retired) {
    if (mode.plan.empty() && mode.plan.kept.empty()) continue;
    absl::StrAppend(&text, "\nretired: ", RetireText(mode, /*dry_run=*/false));
  }
  text += "\n";
  for (const FamilyResult& result : report.families) {
    const auto changes = CountOf(report.applied, result.family);
    AppendLine(text, netlink::FamilyName(result.family), ": ",
               !result.status.ok() ? absl::StrCat("FAILED: ", result.status.message())
               : changes == 0      ? "nothing to change"
                                   : Counted(changes, "change") + " made");
  }
  return text;
}

std::string StatusText(const Subject& subject, const Plan& plan) {
  std::string text = HeaderText(subject, plan.generation);
  for (const Family family : subject.input.families) {
    absl::StrAppend(&text, netlink::FamilyName(family), ": ", FamilyText(plan.diff, family), "\n");
  }
  Diff native = WithRetirement(plan);
  std::erase_if(native.changes, [](const Change& change) { return !IsNative(change); });
  absl::StrAppend(&text, MartianText(subject, plan), LinesText(native),
                  FindingsText(plan.diff.findings), OtherText(subject));
  const std::vector<std::string> incidents = CurrentIncidentLines(subject.incidents);
  if (!incidents.empty()) text += "\nlast incidents:\n";
  for (const std::string& line : incidents) AppendLine(text, line);
  return text;
}

std::string NpdLine(absl::string_view text) {
  constexpr size_t kMostBytes = 80;
  constexpr absl::string_view kCut = "...";
  // A program that counts characters would cut non-ASCII text in the middle.
  std::string line = Printable(text);
  for (char& byte : line) {
    if (static_cast<unsigned char>(byte) >= 0x80) byte = '?';
  }
  if (line.size() <= kMostBytes) return line;
  return absl::StrCat(line.substr(0, kMostBytes - kCut.size()), kCut);
}

std::string RetireText(const RetireReport& report, bool dry_run) {
  std::string text =
      absl::StrCat("iptables ", report.iptables_mode, ", generation ", report.generation, "\n",
                   ChangesText(report.plan.changes), KeptText(report.plan.kept), "\n");
  for (const Family family : report.plan.unsettled) {
    absl::StrAppend(&text, netlink::FamilyName(family),
                    ": the desired rules are not all in place; run sync first, then retire\n");
  }
  const auto kube_proxys =
      absl::c_count_if(report.plan.kept, [](const Claimed& one) { return one.of_kube_proxy; });
  absl::StrAppend(&text, report.plan.changes.size(),
                  dry_run               ? " to remove"
                  : report.applied      ? " removed"
                  : report.plan.empty() ? " to remove"
                                        : " NOT removed",
                  ", ", std::ssize(report.plan.kept) - kube_proxys, " kept",
                  KubeProxysText(kube_proxys), "\n");
  return text;
}

std::string GatesText(featuregates::Version emulated_version,
                      const featuregates::FeatureGates& gates) {
  constexpr char kRow[] = "%-28s %-10s %-8s %-8s %-7s %s\n";
  const auto yes_no = [](bool value) { return value ? "true" : "false"; };
  std::string text =
      absl::StrCat("emulated version ", featuregates::ToString(emulated_version), "\n\n",
                   absl::StrFormat(kRow, "GATE", "STAGE", "DEFAULT", "VALUE", "LOCKED", "SET"));
  for (const featuregates::GateState& gate : gates.States()) {
    text += absl::StrFormat(kRow, gate.name, featuregates::StageName(gate.stage),
                            yes_no(gate.enabled_by_default), yes_no(gate.enabled),
                            yes_no(gate.locked), yes_no(gate.explicitly_set));
  }
  return text;
}

std::string DetectText(absl::Span<const FamilyMode> modes) {
  std::string text;
  for (const FamilyMode& mode : modes) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", netlink::FamilyName(mode.family), ": ",
                    IptablesModeName(mode.mode), "\n");
    for (const Evidence& evidence : mode.evidence) {
      AppendLine(text,
                 absl::StrFormat("  %-8s %-8s ", EvidenceSourceName(evidence.source),
                                 IptablesModeName(evidence.says)),
                 evidence.text);
    }
    if (mode.mode == IptablesMode::kUnknown) {
      AppendLine(text, "  ! ", WhyUnknown(mode));
      continue;
    }
    for (const std::string& finding : mode.findings) AppendLine(text, "  ! ", finding);
  }
  return text;
}

std::string CapabilitiesText(const CapabilityReport& report) {
  std::string text;
  AppendLine(text, "kernel ", report.kernel.empty() ? "unknown" : report.kernel);
  for (const SoftwareCapabilities& one : report.software) {
    absl::StrAppend(&text, "\n", one.software, ": ", CapabilityStateName(one.state), "\n");
    for (const std::string& finding : one.findings) AppendLine(text, "  ! ", finding);
    for (const Capability& each : one.capabilities) {
      AppendLine(text,
                 absl::StrFormat("  %-8s %-25s %-12s ", CapabilityStateName(each.state),
                                 each.feature, ReleasesText(each)),
                 each.why, each.needed ? "" : ", optional", "  # ", each.reason);
    }
  }
  return text;
}

}  // namespace kipt::agent
