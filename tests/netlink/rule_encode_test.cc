// SPDX-License-Identifier: Apache-2.0
//
// Rule to wire, bytes against bytes: the messages here are written out by hand.
#include <libmnl/libmnl.h>
#include <linux/netfilter/nf_tables.h>

#include <string>
#include <vector>

#include "netlink/rule_codec.h"
#include "netlink/socket.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink::rule_encode_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

const ChainId kFilter{Family::kIPv4, Table::kFilter, "TEST"};
const ChainId kFilter6{Family::kIPv6, Table::kFilter, "TEST"};

// The elements of NFTA_RULE_EXPRESSIONS as EncodeRule makes them.
std::string EncodedExpressions(const ChainId& chain, const Rule& rule) {
  Requests messages(1);
  const absl::Status encoded = EncodeRule(
      chain, rule, messages.Begin(NftMessageType(NFT_MSG_NEWRULE), WireFamily(chain.family), 0));
  if (!encoded.ok()) return encoded.ToString();
  // NLA_F_NESTED is how programs mark nests; the kernel's dumps do not.
  const auto bytes = Attributes::OfMessage(messages.bytes()).Bytes(4);
  std::vector<uint8_t> list(bytes->begin(), bytes->end());
  return ToHex(list);
}

// Like Attr, with NLA_F_NESTED in the nests, as programs write them.
Bytes Nest(uint16_t type, const Bytes& content) { return Attr(type | 0x8000, content); }
Bytes Element(const std::string& name, const Bytes& data) {
  return Nest(1, Join({Attr(1, Text(name)), Nest(2, data)}));
}
Bytes Load(uint32_t offset, uint32_t length) {
  return Element("payload", Join({Attr(1, 1), Attr(2, 1), Attr(3, offset), Attr(4, length)}));
}
Bytes MaskWith(const Bytes& mask) {
  return Element("bitwise",
                 Join({Attr(1, 1), Attr(2, 1), Attr(3, static_cast<uint32_t>(mask.size())),
                       Nest(4, Attr(1, mask)), Nest(5, Attr(1, Zeros(mask.size())))}));
}
Bytes CompareWith(const Bytes& data, uint32_t op) {
  return Element("cmp", Join({Attr(1, 1), Attr(2, op), Nest(3, Attr(1, data))}));
}
Bytes Counter() { return Element("counter", Join({Attr(1, Zeros(8)), Attr(2, Zeros(8))})); }
Bytes Immediate(int32_t code, const std::string& chain = "") {
  Bytes verdict = Attr(1, static_cast<uint32_t>(code));
  if (!chain.empty()) verdict = Join({verdict, Attr(2, Text(chain))});
  return Element("immediate", Join({Attr(1, 0), Nest(2, Nest(2, verdict))}));
}
Bytes Xt(const std::string& kind, const std::string& name, uint32_t revision, const Bytes& info) {
  return Element(kind, Join({Attr(1, Text(name)), Attr(2, revision), Attr(3, info)}));
}

TEST(EncodeRuleTest, WritesTheOneFormThatEveryIptablesReads) {
  struct Row {
    std::string name;
    Rule rule;
    std::vector<Bytes> expressions;
    ChainId chain = kFilter;
  };
  const Prefix loopback = *ParsePrefix(Family::kIPv4, "127.0.0.0/8");
  const Prefix host = *ParsePrefix(Family::kIPv4, "10.1.2.3");
  const Prefix v6 = *ParsePrefix(Family::kIPv6, "fd00::/12");
  const std::vector<Row> rows = {
      {"everything, in the order that iptables -C compares",
       Rule{.source = PrefixMatch{loopback, true},
            .destination = PrefixMatch{loopback},
            .comment = "martian",
            .mark = MarkMatch{0x8000, 0x8000},
            .ct_state = CtStateMatch{0x86, true},
            .target = Drop{}},
       List(Load(12, 4), MaskWith(FromHex("ff000000")), CompareWith(FromHex("7f000000"), 1),
            Load(16, 4), MaskWith(FromHex("ff000000")), CompareWith(FromHex("7f000000"), 0),
            Xt("match", "comment", 0, XtCommentInfo("martian")),
            Xt("match", "mark", 1, XtMarkInfo(0x8000, 0x8000, 0)),
            Xt("match", "conntrack", 3, XtCtStateInfo(1, 1, 0x86)), Counter(), Immediate(0))},
      {"a host needs no mask", Rule{.source = PrefixMatch{host}, .target = Return{}},
       List(Load(12, 4), CompareWith(FromHex("0a010203"), 0), Counter(), Immediate(-5))},
      {"IPv6", Rule{.destination = PrefixMatch{v6, true}, .target = Jump{"OTHER"}},
       List(Load(24, 16), MaskWith(Join({FromHex("fff0"), Zeros(14)})),
            CompareWith(Join({FromHex("fd00"), Zeros(14)}), 1), Counter(), Immediate(-3, "OTHER")),
       kFilter6},
      {"a label, behind all other matches",
       Rule{.comment = "c",
            .mark = MarkMatch{1, 1},
            .ct_state = CtStateMatch{0x08},
            .conn_label = ConnLabelMatch{.label = 115, .negated = true},
            .target = Drop{}},
       List(Xt("match", "comment", 0, XtCommentInfo("c")),
            Xt("match", "mark", 1, XtMarkInfo(1, 1, 0)),
            Xt("match", "conntrack", 3, XtCtStateInfo(1, 0, 0x08)),
            Xt("match", "connlabel", 0, XtConnLabelInfo(115, 1)), Counter(), Immediate(0)),
       kFilter6},
      {"a label that is set, and nothing else",
       Rule{.conn_label = ConnLabelMatch{.label = 127, .set = true}, .target = NoTarget{}},
       List(Xt("match", "connlabel", 0, XtConnLabelInfo(127, 2)), Counter())},
      {"mark", Rule{.target = SetMark{0x4000, 0}},
       List(Counter(), Xt("target", "MARK", 2, XtSetMarkInfo(0x4000, 0)))},
      {"masquerade", Rule{.target = Masquerade{true}},
       List(Counter(), Xt("target", "MASQUERADE", 0, XtMasqueradeInfo(0x10)))},
      {"masquerade of IPv6", Rule{.target = Masquerade{false}},
       List(Counter(), Xt("target", "MASQUERADE", 0, XtMasqueradeInfo6(0))), kFilter6},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(EncodedExpressions(row.chain, row.rule), ToHex(Join(row.expressions)));
  }
}

TEST(EncodeRuleTest, RefusesWhatTheWireCannotSay) {
  using namespace std::string_literals;
  struct Row {
    std::string name;
    Rule rule;
    std::string message;
    ChainId chain = kFilter;
  };
  Prefix too_long = *ParsePrefix(Family::kIPv4, "10.0.0.0/8");
  too_long.length = 33;
  Prefix too_long6 = *ParsePrefix(Family::kIPv6, "fd00::/48");
  too_long6.length = 129;
  Prefix host_bits = *ParsePrefix(Family::kIPv4, "10.0.0.1");
  host_bits.length = 8;
  const Prefix v6 = *ParsePrefix(Family::kIPv6, "fd00::/48");
  const ChainId nameless{Family::kIPv4, Table::kFilter, ""};
  const ChainId endless{Family::kIPv4, Table::kFilter, std::string(256, 'x')};
  const std::vector<Row> rows = {
      {"long comment", Rule{.comment = std::string(256, 'x')}, "at most 255 bytes"},
      {"comment with NUL", Rule{.comment = "a\0b"s}, "no NUL"},
      {"prefix", Rule{.source = PrefixMatch{too_long}}, "prefix of 33 bits"},
      {"an IPv6 prefix", Rule{.source = PrefixMatch{too_long6}}, "prefix of 129 bits", kFilter6},
      {"host bits", Rule{.destination = PrefixMatch{host_bits}}, "beyond its length"},
      {"an IPv6 prefix in IPv4", Rule{.source = PrefixMatch{v6}}, "prefix of 48 bits"},
      {"no state", Rule{.ct_state = CtStateMatch{}}, "state"},
      {"unnamed state", Rule{.ct_state = CtStateMatch{0x4000}}, "state"},
      {"label", Rule{.conn_label = ConnLabelMatch{.label = 128}}, "between 0 and 127"},
      {"label that is set",
       Rule{.conn_label = ConnLabelMatch{.label = 255, .set = true}, .target = NoTarget{}},
       "between 0 and 127"},
      {"nothing to do", Rule{.target = NoTarget{}}, "without a target"},
      {"nothing to do with a label",
       Rule{.conn_label = ConnLabelMatch{.label = 1}, .target = NoTarget{}}, "without a target"},
      {"jump to nothing", Rule{.target = Jump{""}}, "chain's name"},
      {"jump to too much", Rule{.target = Jump{endless.name}}, "chain's name"},
      {"jump with NUL", Rule{.target = Jump{"a\0b"s}}, "chain's name"},
      {"no chain", Rule{}, "chain's name", nameless},
      {"long chain", Rule{}, "chain's name", endless},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    Requests messages(1);
    nlmsghdr* message = messages.Begin(NftMessageType(NFT_MSG_NEWRULE), 0, 0);
    EXPECT_THAT(EncodeRule(row.chain, row.rule, message),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(row.message)));
  }
  Requests messages(1);
  const ChainId longest{Family::kIPv4, Table::kFilter, std::string(255, 'x')};
  EXPECT_THAT(EncodeRule(longest, Rule{}, messages.Begin(NftMessageType(NFT_MSG_NEWRULE), 0, 0)),
              IsOk());
}

}  // namespace
}  // namespace kipt::netlink::rule_encode_test
