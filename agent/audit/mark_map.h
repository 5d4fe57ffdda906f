// SPDX-License-Identifier: Apache-2.0
//
// The map of the packet mark's 32 bits: what sets, tests and clears which on this node, which of
// them well-known software uses, and what that means for the bits that are configured. Pure.
#ifndef KIPT_AGENT_AUDIT_MARK_MAP_H_
#define KIPT_AGENT_AUDIT_MARK_MAP_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/audit/audit.h"
#include "agent/audit/finding.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// A row of known_marks.csv.
struct KnownMark {
  std::string software;
  std::string use;
  // That some packet of it has.
  uint32_t bits = 0;
  // That it writes or compares.
  uint32_t mask = 0;
  std::string source;

  bool operator==(const KnownMark&) const = default;
};

// InvalidArgument, with the line's number: another number of fields, no number, bits outside the
// mask.
absl::StatusOr<std::vector<KnownMark>> ParseKnownMarks(absl::string_view csv);
// Those of this release.
const std::vector<KnownMark>& KnownMarks();

// Rules of one owner in one table, or what one interface or the routing rules do.
struct MarkUser {
  std::string who;  // "nft ip nat: kubelet", "the WireGuard interface wg0", "ip rule (IPv4)"
  // The bits of all rules together, where they are known.
  netlink::Marks marks = {};
  // Kubelet, kube-proxy or this agent.
  bool kubernetes = false;
  bool may_set_any = false;
  // Writes all 32 bits: nothing of what others have set is left.
  bool overwrites = false;
  size_t count = 0;
  // At most kMostExamples.
  std::vector<std::string> examples = {};
};

// What a bit that is configured meets.
struct MarkVerdict {
  int bit = 0;
  absl::string_view use;  // "masquerade", "drop"
  AuditSeverity severity = AuditSeverity::kInfo;
  std::vector<AuditFinding> findings = {};
  // Other programs that set or test the bit, or clear it, by MarkUser::who. A finding says where
  // that does harm.
  std::vector<std::string> used_by = {};
  std::vector<std::string> cleared_by = {};
};

struct MarkMap {
  std::vector<MarkUser> users = {};
  std::vector<MarkVerdict> verdicts = {};
  std::vector<std::string> problems = {};
};

// The map of one namespace.
MarkMap MapMarks(const NodeView& view, const AuditOptions& options);

// A warning or an error.
bool MarksNeedAttention(const MarkMap& map);

// At most 80 columns wide, except where a word is longer.
std::string MarkMapText(const MarkMap& map);
std::string MarkMapJson(const MarkMap& map);
std::string MarkMapSvg(const MarkMap& map);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_MARK_MAP_H_
