// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/statement.h
//
// What the expressions of a rule say, registers resolved: one Statement for each option that
// iptables-save would print. From these rule_codec makes a Rule, if every one of them has a place
// in it, and rule_display the text of an opaque one.
#ifndef KIPT_NETLINK_STATEMENT_H_
#define KIPT_NETLINK_STATEMENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "netlink/expression.h"
#include "netlink/ruleset.h"
#include "netlink/xt_info.h"

namespace kipt::netlink {

struct AddressStatement {
  bool is_source = false;
  PrefixMatch match;
};

struct InterfaceStatement {
  bool is_input = false;
  bool negated = false;
  std::string name;  // "eth+" for all that start with "eth"
};

struct ProtocolStatement {
  bool negated = false;
  uint8_t protocol = 0;
};

// Of TCP, UDP, and the others that keep their ports in the same place.
struct PortStatement {
  bool is_source = false;
  bool negated = false;
  uint16_t first = 0;
  uint16_t last = 0;
};

// Of these bits of the TCP header's flags, exactly these are set.
struct TcpFlagsStatement {
  bool negated = false;
  uint8_t mask = 0;
  uint8_t flags = 0;
};

struct CommentStatement {
  std::string text;
};

using Statement =
    std::variant<AddressStatement, InterfaceStatement, ProtocolStatement, PortStatement,
                 TcpFlagsStatement, MarkMatch, XtCtState, ConnLabelMatch, CommentStatement,
                 RuleCounters, VerdictStatement, SetMark, Masquerade, OtherExpression>;

// In the order of the expressions. Without a family (tables of inet, bridge, arp, netdev) nothing
// is known about the network header, nor about what an xtables name stands for there.
std::vector<Statement> ResolveStatements(std::optional<Family> family,
                                         const std::vector<Expression>& expressions);

// ---- what one expression says; nothing where iptables has no option for it ----

// The length of a prefix mask. Nothing where a one follows a zero.
std::optional<uint8_t> PrefixLength(WireBytes mask);

// Of at least two bytes, and of at least four.
uint16_t NetworkOrder(WireBytes bytes);
uint32_t HostOrder(WireBytes bytes);

// payload: `length` bytes of the packet into a register.
struct PayloadLoad {
  uint32_t base = 0;  // enum nft_payload_bases
  uint32_t offset = 0;
  uint32_t length = 0;
};

// cmp, for equality or inequality.
struct Comparison {
  bool negated = false;
  WireBytes data;
};

// range, and cmp for more or less: low <= value <= high, as numbers in network order. An empty
// bound is none; one that is `open` does not belong to the range itself.
struct RangeComparison {
  bool negated = false;
  bool open = false;
  WireBytes low;
  WireBytes high;
};

// `mask` is as long as what is compared. Without a family nothing is known of the network header.
std::optional<Statement> ReadPayload(std::optional<Family> family, const PayloadLoad& load,
                                     const std::optional<WireBytes>& mask,
                                     const Comparison& comparison);
std::optional<Statement> ReadPortRange(const PayloadLoad& load, const RangeComparison& range);
// `key` is an enum nft_meta_keys.
std::optional<Statement> ReadMeta(uint32_t key, const std::optional<WireBytes>& mask,
                                  const Comparison& comparison);

// Without a family no text: the names stand for other things there.
Statement ReadXt(std::optional<Family> family, const XtExpression& xt);

// The rule that `statements` say, in iptables-save's spelling where it has one. Statements without
// one are shown by name, never left out. Without a family: as ResolveStatements.
OpaqueRule DescribeOpaqueRule(std::optional<Family> family, absl::Span<const Statement> statements);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_STATEMENT_H_
