// SPDX-License-Identifier: Apache-2.0
//
// Which chains act on a mark: a walk along the way of a packet that bears it.
#ifndef KIPT_AGENT_AUDIT_MARK_WALK_H_
#define KIPT_AGENT_AUDIT_MARK_WALK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "netlink/survey.h"

namespace kipt::agent {

enum class MarkAction : uint8_t { kMasquerade, kDrop };

// A chain with such a rule.
struct MarkActor {
  std::string iptables_mode = {};
  netlink::TableId table = {};
  std::string chain = {};

  bool operator==(const MarkActor&) const = default;
};
// "chain masquerading of table ip kube-proxy"; with the mode where that is not `mode`.
std::string ToString(const MarkActor& actor, absl::string_view mode);

// The chains that masquerade packets that leave, or drop packets to this node, of `family`, because
// they bear all of `bits`, or all of them whatever they bear. One walk from the base chains of
// every table of `surveys`, by hook: packets have one mark, in all tables and in both iptables
// modes. A rule with the mark and another condition counts as one that some packets match.
std::vector<MarkActor> WhatActsOn(absl::Span<const netlink::Survey> surveys, netlink::Family family,
                                  uint32_t bits, MarkAction action);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_MARK_WALK_H_
