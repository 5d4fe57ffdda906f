// SPDX-License-Identifier: Apache-2.0
//
// WireGuard interfaces and tc filters that set or test our mark bits, and what kubelet's chains do
// to their packets.
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/family_audit.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

// Every packet that `mark` has marked matches. False where the match reads a bit that it leaves.
bool Matches(const netlink::MarkMatch& match, const netlink::Marks& mark) {
  const bool known = (match.mask & ~(mark.set | mark.cleared)) == 0;
  return known && ((mark.set & match.mask) == match.value) != match.negated;
}

// The rule of filter/KUBE-FIREWALL that drops what `mark` marks; null where there is none, or no
// packet comes there.
const netlink::SurveyRule* DropOf(const FamilyAudit& audit, const netlink::Marks& mark) {
  if (!audit.chains.HangsOnBase("filter", kFirewallChain)) return nullptr;
  const auto& rules = audit.chains.Rules("filter", kFirewallChain);
  const auto drop = absl::c_find_if(rules, [&](const netlink::SurveyRule& rule) {
    const netlink::Rule* known = rule.rule();
    if (known == nullptr || !known->mark || !Matches(*known->mark, mark)) return false;
    // As kubelet's: it tests nothing else.
    return *known ==
           netlink::Rule{.comment = known->comment, .mark = known->mark, .target = netlink::Drop{}};
  });
  return drop == rules.end() ? nullptr : &*drop;
}

AuditFinding DeviceFinding(const DeviceMark& device, uint32_t bits, absl::string_view what) {
  return {.kind = AuditKind::kDeviceMark,
          .message = absl::StrCat(device.place, " ", what),
          .mark_bits = bits};
}

// Filters of one place are one finding only where they do the same: severity and bits are the
// first's.
void AddDevice(AuditFinding finding, const DeviceMark& device, FindingCollector& findings) {
  const std::string variant = finding.message;
  findings.AddDetail(std::move(finding), device.text, variant);
}

constexpr absl::string_view kRemedy =
    "Give it a mark without these bits (wg set INTERFACE fwmark MARK; FwMark and Table in "
    "wg-quick's configuration), or choose other bits: --iptables-masquerade-bit (kube-proxy's must "
    "be the same) and --iptables-drop-bit.";

// Whether one of the families drops or masquerades what `device` marks.
bool DescribeEffects(const DeviceMark& device, uint32_t bits,
                     const std::vector<FamilyAudit>& families, FindingCollector& findings) {
  const std::string marks = absl::StrCat("marks ", HexText(device.marks.set), ": ");
  bool acted = false;
  // Those that leave have passed kubelet's chains.
  if (device.egress) return acted;
  for (const FamilyAudit& audit : families) {
    const bool sees = audit.chains.family() == netlink::Family::kIPv4 ? device.ipv4 : device.ipv6;
    if (!sees) continue;
    const bool drops = DropOf(audit, device.marks) != nullptr;
    const bool masquerades = (bits & (uint32_t{1} << findings.options.bits.masquerade)) != 0 &&
                             audit.chains.HangsOnBase("nat", kPostroutingChain);
    if (!drops && !masquerades) continue;
    acted = true;
    AuditFinding finding = audit.Here(DeviceFinding(
        device, bits,
        absl::StrCat(marks, drops ? "KUBE-FIREWALL drops it" : "KUBE-POSTROUTING masquerades it")));
    finding.severity = drops ? AuditSeverity::kError : AuditSeverity::kWarning;
    finding.chain = drops ? "filter/KUBE-FIREWALL" : "nat/KUBE-POSTROUTING";
    finding.consequence =
        drops ? "Packets with this mark are dropped where this node sends them or receives them "
                "for itself: a tunnel that marks its packets so carries nothing."
              : "Packets with this mark leave with the address of the node's interface.";
    finding.remedy = std::string(kRemedy);
    AddDevice(std::move(finding), device, findings);
  }
  return acted;
}

}  // namespace

void AuditDeviceMarks(const NodeView& view, const std::vector<FamilyAudit>& families,
                      FindingCollector& findings) {
  const uint32_t ours = findings.marks;
  for (const DeviceMark& device : view.device_marks) {
    const uint32_t set = device.marks.set & ours;
    const uint32_t tested = device.marks.tested & ours;
    if ((set | tested) == 0) continue;
    if (device.marks.set == netlink::kAllMarks) {
      AddDevice(DeviceFinding(device, ours, "may set any mark bit"), device, findings);
      continue;
    }
    if (set != 0 && !DescribeEffects(device, set, families, findings)) {
      AuditFinding finding =
          DeviceFinding(device, set, absl::StrCat("sets mark bit ", HexText(set)));
      const bool soon = findings.options.mode == Mode::kLegacy && !device.egress;
      finding.severity = soon ? AuditSeverity::kWarning : AuditSeverity::kInfo;
      finding.consequence = soon ? "kubelet's chains act on it once they are in place." : "";
      finding.remedy = std::string(kRemedy);
      AddDevice(std::move(finding), device, findings);
    }
    if (tested == 0) continue;
    const bool wants = (device.carried & ours) != 0;
    AuditFinding finding =
        DeviceFinding(device, tested,
                      absl::StrCat("selects ", wants ? "packets with" : "packets by", " mark bit ",
                                   HexText(wants ? device.carried & ours : tested),
                                   ", which kubelet's chains set"));
    finding.severity = wants ? AuditSeverity::kWarning : AuditSeverity::kInfo;
    AddDevice(std::move(finding), device, findings);
  }
}

}  // namespace kipt::agent
