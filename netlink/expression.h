// SPDX-License-Identifier: Apache-2.0
//
// A rule's expressions (NFTA_RULE_EXPRESSIONS) as the kernel sends them, without their meaning.
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

// The expressions in `list`, the content of NFTA_RULE_EXPRESSIONS, to which they point. Anything
// malformed becomes an Expression without data, so the rest is still seen.
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

RuleCounters ParseCounter(const Attributes& data);

// NFTA_*_DATA with nothing but a value in it.
std::optional<WireBytes> DataValue(const Attributes& attributes, uint16_t type);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_EXPRESSION_H_
