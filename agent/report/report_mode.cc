// SPDX-License-Identifier: Apache-2.0
#include "agent/report/report_mode.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "agent/policy/rule_forms.h"
#include "featuregates/printable.h"
#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

using featuregates::AppendLine;

// Who chooses an iptables mode as iptables-wrappers does finds this first.
absl::string_view MisleadingIn(const OtherMode& other, const netlink::ChainId& chain) {
  const bool looked_for = chain.table == netlink::Table::kMangle &&
                          (chain.name == kHintChain || chain.name == kCanaryChain);
  if (other.iptables_mode != "nft" || !looked_for) return "";
  return "  # misleading: iptables-wrappers takes hint or canary, nft's first, and so takes nft";
}

}  // namespace

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
    for (const std::string& finding : mode.findings) AppendLine(text, "  ! ", finding);
  }
  return text;
}

std::string OtherModeText(const OtherMode& other) {
  if (other.chains.empty() && other.problem.empty()) return "";
  std::string text =
      absl::StrCat("\nother iptables mode, ", other.iptables_mode, ", which is not managed\n");
  for (const netlink::ChainId& chain : other.chains) {
    AppendLine(text, "  . ", netlink::ToString(chain), MisleadingIn(other, chain));
  }
  if (!other.problem.empty()) {
    AppendLine(text, "  ! it could not be looked into: ", other.problem);
  }
  return text;
}

}  // namespace kipt::agent
