// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/expression.h
//
// The expressions of a rule, as the kernel lists them in NFTA_RULE_EXPRESSIONS: the small machine's
// instructions, still in terms of registers. Read without libnftnl, whose parser gives up on a
// whole rule for one expression that it does not know.
#ifndef KIPT_NETLINK_EXPRESSION_H_
#define KIPT_NETLINK_EXPRESSION_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "netlink/attributes.h"

namespace kipt::netlink {

// payload: `length` bytes of the packet into a register.
struct PayloadLoad {
  uint32_t to = 0;
  uint32_t base = 0;  // enum nft_payload_bases
  uint32_t offset = 0;
  uint32_t length = 0;
};

// meta: packet metadata into a register.
struct MetaLoad {
  uint32_t to = 0;
  uint32_t key = 0;  // enum nft_meta_keys
};

// bitwise: to = from & mask. Those that also flip bits or shift are OtherExpression.
struct Masking {
  uint32_t from = 0;
  uint32_t to = 0;
  WireBytes mask;
};

// cmp, for equality or inequality. Others are OtherExpression.
struct Comparison {
  uint32_t from = 0;
  bool negated = false;
  WireBytes data;
};

struct CounterExpression {};

// immediate, into the verdict register.
struct VerdictExpression {
  int32_t code = 0;   // NF_ACCEPT, NF_DROP, enum nft_verdicts
  std::string chain;  // of a jump or goto
};

// match or target, of nft_compat.
struct XtExpression {
  bool is_target = false;
  std::string name;
  uint32_t revision = 0;
  WireBytes info;
};

// Outside our vocabulary, or malformed.
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
};

using Expression = std::variant<PayloadLoad, MetaLoad, Masking, Comparison, CounterExpression,
                                VerdictExpression, XtExpression, OtherExpression>;

// `list` is the content of NFTA_RULE_EXPRESSIONS. Points into it. Anything malformed becomes an
// OtherExpression, so that the rest is still seen.
std::vector<Expression> ParseExpressions(WireBytes list);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_EXPRESSION_H_
