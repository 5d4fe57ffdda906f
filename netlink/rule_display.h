// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/rule_display.h
//
// Other people's rules: what they do to a packet as far as one can tell, and a text for people.
#ifndef KIPT_NETLINK_RULE_DISPLAY_H_
#define KIPT_NETLINK_RULE_DISPLAY_H_

#include <optional>

#include "absl/types/span.h"
#include "netlink/ruleset.h"
#include "netlink/statement.h"

namespace kipt::netlink {

// The rule that `statements` say, in iptables-save's spelling where it has one. Statements without
// one are shown by name, never left out. Without a family: as ResolveStatements.
OpaqueRule DescribeOpaqueRule(std::optional<Family> family, absl::Span<const Statement> statements);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_RULE_DISPLAY_H_
