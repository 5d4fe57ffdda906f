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
  uint16_t port = 0;
};

struct CtStateStatement {
  CtStateMatch match;
  bool state_alias = false;  // XtCtState::state_alias
};

struct CommentStatement {
  std::string text;
};

struct CounterStatement {};

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
};

using Statement =
    std::variant<AddressStatement, InterfaceStatement, ProtocolStatement, PortStatement, MarkMatch,
                 CtStateStatement, CommentStatement, CounterStatement, VerdictStatement, SetMark,
                 Masquerade, XtStatement, OtherExpression>;

// In the order of the expressions.
std::vector<Statement> ResolveStatements(Family family, const std::vector<Expression>& expressions);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_STATEMENT_H_
