// SPDX-License-Identifier: Apache-2.0
//
// The meaning of a rule's expressions: one Statement for each option that iptables-save would
// print. rule_codec makes a Rule of them, if each has a place in it; rule_display makes the text of
// an opaque one.
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

// A port of TCP, UDP and other protocols with ports at the same offsets.
struct PortStatement {
  bool is_source = false;
  bool negated = false;
  uint16_t first = 0;
  uint16_t last = 0;
};

// Exactly `flags` are set among the bits `mask` of the TCP header's flags.
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

// Those that have a place in a Rule are in the order in which ToString(Rule) prints them.
using Statement =
    std::variant<FamilyStatement, AddressStatement, InterfaceStatement, ProtocolStatement,
                 PortStatement, TcpFlagsStatement, CommentStatement, MarkMatch, XtCtState,
                 ConnStateStatement, ConnLabelMatch, RuleCounters, VerdictStatement, SetMark,
                 Masquerade, OtherExpression>;

// In the order of the expressions. Without a family (tables of inet, bridge, arp, netdev) the
// network header and the meaning of xtables' names are unknown, until a FamilyStatement.
std::vector<Statement> ResolveStatements(std::optional<Family> family,
                                         const std::vector<Expression>& expressions);

// From the data of an immediate. Nothing for another register.
std::optional<VerdictStatement> ParseVerdict(const Attributes& data);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_STATEMENT_H_
