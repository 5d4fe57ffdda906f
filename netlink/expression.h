// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/expression.h
//
// The expressions of a rule, as the kernel lists them in NFTA_RULE_EXPRESSIONS: the small machine's
// instructions. Read without libnftnl, whose parser gives up on a whole rule for one expression
// that it does not know.
#ifndef KIPT_NETLINK_EXPRESSION_H_
#define KIPT_NETLINK_EXPRESSION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "netlink/attributes.h"
#include "netlink/ruleset.h"

namespace kipt::netlink {

struct Expression {
  std::string name;                // as the kernel spells it; may be empty
  std::optional<Attributes> data;  // nothing where it is malformed
  WireBytes bytes;                 // all of it, from the name on
};

// `list` is the content of NFTA_RULE_EXPRESSIONS. Points into it. Anything malformed becomes an
// Expression without data, so that the rest is still seen.
std::vector<Expression> ParseExpressions(WireBytes list);

// match or target, of nft_compat.
struct XtExpression {
  bool is_target = false;
  std::string name;
  uint32_t revision = 0;
  WireBytes info;
};
// Nothing for other expressions, and for malformed ones.
std::optional<XtExpression> ParseXt(const Expression& expression);

// immediate into the verdict register: ACCEPT, DROP, RETURN, jump, goto, and what nf_tables may
// add.
struct VerdictStatement {
  int32_t code = 0;   // NF_ACCEPT, NF_DROP, enum nft_verdicts
  std::string chain;  // of a jump or goto

  bool operator==(const VerdictStatement&) const = default;
};
// Of the data of an immediate. Nothing for another register.
std::optional<VerdictStatement> ParseVerdict(const Attributes& data);

// NFTA_*_DATA with nothing but a value in it.
std::optional<WireBytes> DataValue(const Attributes& attributes, uint16_t type);

// What an expression says that is outside our vocabulary, or malformed.
struct OtherExpression {
  std::string name;  // as the kernel spells it; may be empty
  // Sends some packets past the rest of the rule.
  bool condition = true;
  // May keep a packet from the next rule, or change it.
  bool decides = true;
  // Always keeps it from the next rule.
  bool terminal = false;
  // Nothing follows it: printed behind the matches.
  bool is_target = true;
  // As iptables-save spells it, where it does.
  std::string text = {};
  // As in OpaqueRule.
  std::string target = {};
  bool nfacct = false;
  Marks marks = {};
};

// What a register holds is not known here: an expression that reads the packet mark from one says
// nothing of it in `marks`.
OtherExpression DescribeOther(const Expression& expression);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_EXPRESSION_H_
