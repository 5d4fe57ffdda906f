// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/packet_fields.h
//
// What comparing one field of a packet says, and what an xtables match or target says: the readers
// behind ResolveStatements. Each answers nothing where the field, the mask or the value is one that
// iptables has no option for.
#ifndef KIPT_NETLINK_PACKET_FIELDS_H_
#define KIPT_NETLINK_PACKET_FIELDS_H_

#include <cstdint>
#include <optional>

#include "netlink/expression.h"
#include "netlink/ruleset.h"
#include "netlink/statement.h"

namespace kipt::netlink {

// Of at least two bytes, and of at least four.
uint16_t NetworkOrder(WireBytes bytes);
uint32_t HostOrder(WireBytes bytes);

// `mask` is as long as what is compared. Without a family nothing is known of the network header.
std::optional<Statement> ReadPayload(std::optional<Family> family, const PayloadLoad& load,
                                     const std::optional<WireBytes>& mask,
                                     const Comparison& comparison);
std::optional<Statement> ReadPortRange(const PayloadLoad& load, const RangeComparison& range);
std::optional<Statement> ReadMeta(const MetaLoad& load, const std::optional<WireBytes>& mask,
                                  const Comparison& comparison);

// Without a family no text: the names stand for other things there.
Statement ReadXt(std::optional<Family> family, const XtExpression& xt);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_PACKET_FIELDS_H_
