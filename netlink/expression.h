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
#include "netlink/ruleset.h"

namespace kipt::netlink {

// payload: `length` bytes of the packet into a register.
struct PayloadLoad {
  uint32_t to = 0;
  uint32_t base = 0;  // enum nft_payload_bases
  uint32_t offset = 0;
  uint32_t length = 0;
  bool operator==(const PayloadLoad&) const = default;
};

// meta: packet metadata into a register.
struct MetaLoad {
  uint32_t to = 0;
  uint32_t key = 0;  // enum nft_meta_keys
  bool operator==(const MetaLoad&) const = default;
};

// meta, from a register into the packet.
struct MetaStore {
  uint32_t from = 0;
  uint32_t key = 0;
  bool operator==(const MetaStore&) const = default;
};

// immediate: bytes of the rule's own into a register.
struct ImmediateLoad {
  uint32_t to = 0;
  WireBytes data;
  bool operator==(const ImmediateLoad&) const = default;
};

// bitwise: to = (from & mask) ^ flip. Those that shift, or take two registers, are OtherExpression.
struct Masking {
  uint32_t from = 0;
  uint32_t to = 0;
  WireBytes mask;
  WireBytes flip;  // as long as the mask; empty if it flips no bit
  bool operator==(const Masking&) const = default;
};

// cmp, for equality or inequality.
struct Comparison {
  uint32_t from = 0;
  bool negated = false;
  WireBytes data;
  bool operator==(const Comparison&) const = default;
};

// range, and cmp for more or less: low <= from <= high, as numbers in network order. An empty
// bound is none; one that is `open` does not belong to the range itself.
struct RangeComparison {
  uint32_t from = 0;
  bool negated = false;
  bool open = false;
  WireBytes low;
  WireBytes high;
  bool operator==(const RangeComparison&) const = default;
};

struct CounterExpression {
  uint64_t packets = 0;
  uint64_t bytes = 0;
  bool operator==(const CounterExpression&) const = default;
};

// immediate, into the verdict register.
struct VerdictExpression {
  int32_t code = 0;   // NF_ACCEPT, NF_DROP, enum nft_verdicts
  std::string chain;  // of a jump or goto
  bool operator==(const VerdictExpression&) const = default;
};

// match or target, of nft_compat.
struct XtExpression {
  bool is_target = false;
  std::string name;
  uint32_t revision = 0;
  WireBytes info;
  bool operator==(const XtExpression&) const = default;
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
  // As iptables-save spells it, where it does.
  std::string text = {};
  // As in OpaqueRule.
  std::string target = {};
  bool nfacct = false;
  Marks marks = {};
  bool operator==(const OtherExpression&) const = default;
};

using Expression = std::variant<PayloadLoad, MetaLoad, MetaStore, ImmediateLoad, Masking,
                                Comparison, RangeComparison, CounterExpression, VerdictExpression,
                                XtExpression, OtherExpression>;

// `list` is the content of NFTA_RULE_EXPRESSIONS. Points into it. Anything malformed becomes an
// OtherExpression, so that the rest is still seen. What a register holds is not known here: an
// expression that reads the packet mark from one says nothing of it in `marks`.
std::vector<Expression> ParseExpressions(WireBytes list);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_EXPRESSION_H_
