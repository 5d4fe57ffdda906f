// SPDX-License-Identifier: Apache-2.0
//
// The text of an opaque rule.
#ifndef KIPT_NETLINK_RULE_DISPLAY_H_
#define KIPT_NETLINK_RULE_DISPLAY_H_

#include <optional>

#include "absl/types/span.h"
#include "netlink/statement.h"

namespace kipt::netlink {

// Their rule, in iptables-save's spelling where it has one. Statements without one are shown by
// name, never left out.
OpaqueRule DescribeOpaqueRule(std::optional<Family> family, absl::Span<const Statement> statements);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_RULE_DISPLAY_H_
