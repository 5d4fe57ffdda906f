// SPDX-License-Identifier: Apache-2.0
//
// Rule to wire, bytes against bytes: the messages here are written out by hand (wire_bytes.h).
#include <libmnl/libmnl.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/types/span.h"
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

// NLA_F_NESTED is how programs mark nests; the kernel's dumps do not.
void ClearNestMarks(absl::Span<uint8_t> attributes) {
  while (attributes.size() >= sizeof(nlattr)) {
    nlattr header = {};
    std::memcpy(&header, attributes.data(), sizeof(header));
    if ((header.nla_type & NLA_F_NESTED) != 0) {
      ClearNestMarks(attributes.subspan(sizeof(header), header.nla_len - sizeof(header)));
      header.nla_type &= NLA_TYPE_MASK;
      std::memcpy(attributes.data(), &header, sizeof(header));
    }
    attributes.remove_prefix(NLA_ALIGN(header.nla_len));
  }
}

// A stack full of ones: padding that is not cleared shows.
__attribute__((noinline)) void DirtyStack() {
  volatile char garbage[4096];
  for (volatile char& c : garbage) c = '\xff';
}

// The elements of NFTA_RULE_EXPRESSIONS as EncodeRule makes them.
std::string EncodedExpressions(const ChainId& chain, const Rule& rule) {
  Requests messages(1);
  DirtyStack();
  const absl::Status encoded = EncodeRule(
      chain, rule, messages.Begin(NftMessageType(NFT_MSG_NEWRULE), WireFamily(chain.family), 0));
  if (!encoded.ok()) return encoded.ToString();
  const auto bytes = Attributes::OfMessage(messages.bytes()).Bytes(4);
  Bytes list(bytes->begin(), bytes->end());
  ClearNestMarks(absl::MakeSpan(list));
  return ToHex(list);
}

Bytes Load(uint32_t offset, uint32_t length) { return Payload(1, offset, length); }
Bytes Counter() { return ExpressionBytes("counter", Join({Attr(1, Zeros(8)), Attr(2, Zeros(8))})); }

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
       List(Load(12, 4), Mask(FromHex("ff000000")), Compare(FromHex("7f000000"), 1), Load(16, 4),
            Mask(FromHex("ff000000")), Compare(FromHex("7f000000"), 0),
            XtMatch("comment", 0, XtCommentInfo("martian")),
            XtMatch("mark", 1, XtMarkInfo(0x8000, 0x8000, 0)),
            XtMatch("conntrack", 3, XtCtStateInfo(1, 1, 0x86)), Counter(), Verdict(0))},
      {"a host needs no mask", Rule{.source = PrefixMatch{host}, .target = Return{}},
       List(Load(12, 4), Compare(FromHex("0a010203"), 0), Counter(), Verdict(-5))},
      {"IPv6", Rule{.destination = PrefixMatch{v6, true}, .target = Jump{"OTHER"}},
       List(Load(24, 16), Mask(Join({FromHex("fff0"), Zeros(14)})),
            Compare(Join({FromHex("fd00"), Zeros(14)}), 1), Counter(), Verdict(-3, "OTHER")),
       kFilter6},
      {"a label, after all other matches",
       Rule{.comment = "c",
            .mark = MarkMatch{.value = 1, .mask = 3, .negated = true},
            .ct_state = CtStateMatch{0x08},
            .conn_label = ConnLabelMatch{.label = 115, .negated = true},
            .target = Drop{}},
       List(XtMatch("comment", 0, XtCommentInfo("c")), XtMatch("mark", 1, XtMarkInfo(1, 3, 1)),
            XtMatch("conntrack", 3, XtCtStateInfo(1, 0, 0x08)),
            XtMatch("connlabel", 0, XtConnLabelInfo(115, 1)), Counter(), Verdict(0)),
       kFilter6},
      {"a label that is set, and nothing else",
       Rule{.conn_label = ConnLabelMatch{.label = 127, .set = true}, .target = NoTarget{}},
       List(XtMatch("connlabel", 0, XtConnLabelInfo(127, 2)), Counter())},
      {"a label that is set where it could be done",
       Rule{.conn_label = ConnLabelMatch{.label = 0, .set = true, .negated = true}},
       List(XtMatch("connlabel", 0, XtConnLabelInfo(0, 3)), Counter(), Verdict(0))},
      {"mark", Rule{.target = SetMark{0x4000, 0}},
       List(Counter(), XtTarget("MARK", 2, XtSetMarkInfo(0x4000, 0)))},
      {"masquerade", Rule{.target = Masquerade{true}},
       List(Counter(), XtTarget("MASQUERADE", 0, XtMasqueradeInfo(0x10)))},
      {"masquerade of IPv6", Rule{.target = Masquerade{true}},
       List(Counter(), XtTarget("MASQUERADE", 0, XtMasqueradeInfo6(0x10))), kFilter6},
      {"masquerade by any port", Rule{.target = Masquerade{false}},
       List(Counter(), XtTarget("MASQUERADE", 0, XtMasqueradeInfo(0)))},
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
