// SPDX-License-Identifier: Apache-2.0
//
// The meaning of a rule's expressions (NFTA_RULE_EXPRESSIONS): one Statement for each option that
// iptables-save would print. rule_codec makes a Rule of them, if each has a place in it;
// rule_display makes the text of an opaque one.
#ifndef KIPT_NETLINK_STATEMENT_H_
#define KIPT_NETLINK_STATEMENT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "netlink/attributes.h"
#include "netlink/ruleset.h"
#include "netlink/xt_info.h"

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

// Of TCP, UDP and other protocols with ports at the same offsets.
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

// `ct state`, natively.
struct ConnStateStatement {
  CtStateMatch match;
};

// `meta nfproto`, in a table of inet.
struct FamilyStatement {
  Family family = Family::kIPv4;
};

struct CommentStatement {
  std::string text;
};

// immediate into the verdict register.
struct VerdictStatement {
  int32_t code = 0;   // NF_ACCEPT, NF_DROP, enum nft_verdicts
  std::string chain;  // of a jump or goto

  bool operator==(const VerdictStatement&) const = default;
};

// An expression outside our vocabulary, or malformed.
struct OtherExpression {
  std::string name;  // as the kernel spells it; may be empty
  // May send packets past the rest of the rule.
  bool condition = true;
  // It chooses packets: it is known to send some past the rest of the rule. A load alone does not,
  // although it ends the rule for packets that are too short.
  bool selects = false;
  // May keep a packet from the next rule, or change it.
  bool decides = true;
  // Always keeps it from the next rule.
  bool terminal = false;
  // Where that is not known: it may always do so.
  bool perhaps_terminal = false;
  // As in OpaqueRule.
  bool queues = false;
  // Printed after the matches.
  bool is_target = true;
  // As iptables-save spells it, where it does.
  std::string text = {};
  // As in OpaqueRule.
  std::string target = {};
  bool nfacct = false;
  std::string set_directions = {};
  Marks marks = {};
};

using Statement =
    std::variant<FamilyStatement, AddressStatement, InterfaceStatement, ProtocolStatement,
                 PortStatement, TcpFlagsStatement, MarkMatch, XtCtState, ConnStateStatement,
                 ConnLabelMatch, CommentStatement, RuleCounters, VerdictStatement, SetMark,
                 Masquerade, OtherExpression>;

// In the order of the expressions. Without a family (tables of inet, bridge, arp, netdev) the
// network header and the meaning of xtables' names are unknown, until a FamilyStatement.
std::vector<Statement> ResolveStatements(std::optional<Family> family,
                                         const std::vector<Expression>& expressions);

// Their rule, in iptables-save's spelling where it has one. Statements without one are shown by
// name, never left out.
OpaqueRule DescribeOpaqueRule(std::optional<Family> family, absl::Span<const Statement> statements);

// The rule of iptables that `nft list ruleset` shows, and nft then loads, as exactly these
// expressions: a counter, and in place of xtables' matches and targets native ones. Its comment is
// lost. Nothing for other rules. nft translates `! --ctstate ...,DNAT` wrongly, to `ct status
// dnat`: that is read as it is.
std::optional<Rule> ReadTranslation(Family family, absl::Span<const Expression> expressions);

// Whether iptables-nft since 1.8.8 can list a rule of these in a table of iptables. False where one
// of its releases refuses them.
bool IsListable(Family family, absl::Span<const Expression> expressions);

// ---- single expressions ----

// From the data of an immediate. Nothing for another register.
std::optional<VerdictStatement> ParseVerdict(const Attributes& data);

// From the data of a counter.
RuleCounters ParseCounter(const Attributes& data);

// NFTA_*_DATA with nothing but a value in it.
std::optional<WireBytes> DataValue(const Attributes& attributes, uint16_t type);

// Attributes with the numbers of the registers that an expression reads and writes; 0 for none.
struct RegisterUse {
  absl::string_view name;
  std::array<uint16_t, 4> reads = {};
  uint16_t writes = 0;
};
// Null for an expression that we do not know: it may use any register.
const RegisterUse* FindRegisterUse(absl::string_view name);

// `marks` does not have what the expression does with a mark in a register.
OtherExpression DescribeOther(const Expression& expression);

// Without a family, without text.
Statement ReadXt(std::optional<Family> family, const XtExpression& xt);

// ---- comparisons; empty where iptables has no option for it ----

// The length of a prefix mask. Nothing where a one follows a zero.
std::optional<uint8_t> PrefixLength(WireBytes mask);

// Of at least four bytes.
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
// bound is none; an `open` range excludes its bounds.
struct RangeComparison {
  bool negated = false;
  bool open = false;
  WireBytes low;
  WireBytes high;
};

// `mask` is as long as what is compared.
std::vector<Statement> ReadPayload(std::optional<Family> family, const PayloadLoad& load,
                                   const std::optional<WireBytes>& mask,
                                   const Comparison& comparison);
std::vector<Statement> ReadPortRange(const PayloadLoad& load, const RangeComparison& range);
// `key` is an enum nft_meta_keys.
std::vector<Statement> ReadMeta(uint32_t key, const std::optional<WireBytes>& mask,
                                const Comparison& comparison);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_STATEMENT_H_
