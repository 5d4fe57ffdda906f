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

struct CtStateStatement {
  CtStateMatch match;
  bool state_alias = false;  // XtCtState::state_alias
};

struct CommentStatement {
  std::string text;
};

struct CounterStatement {
  RuleCounters counters;
};

// ACCEPT, DROP, RETURN, jump, goto, and what nf_tables may add.
struct VerdictStatement {
  int32_t code = 0;
  std::string chain;
};

// An xtables match or target that we cannot say in a Rule.
struct XtStatement {
  bool is_target = false;
  std::string name;
  uint32_t revision = 0;
  // As iptables-save spells it, "-m" or "-j" included. Empty where we cannot.
  std::string text = {};
  // As in OpaqueRule.
  uint32_t marks_tested = 0;
  uint32_t marks_set = 0;
  ConnLabelSet labels_set = {};
};

using Statement = std::variant<AddressStatement, InterfaceStatement, ProtocolStatement,
                               PortStatement, TcpFlagsStatement, MarkMatch, CtStateStatement,
                               ConnLabelMatch, CommentStatement, CounterStatement, VerdictStatement,
                               SetMark, Masquerade, XtStatement, OtherExpression>;

// In the order of the expressions. Without a family (tables of inet, bridge, arp, netdev) nothing
// is known about the network header, nor about what an xtables name stands for there.
std::vector<Statement> ResolveStatements(std::optional<Family> family,
                                         const std::vector<Expression>& expressions);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_STATEMENT_H_
