// SPDX-License-Identifier: Apache-2.0
//
// Single expressions of nf_tables as conditions of a rule; none where iptables has no option.
#include "netlink/statement.h"

#include <gtest/gtest.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nf_tables_compat.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "netlink/comparison.h"
#include "netlink/rule_codec.h"
#include "netlink/xt_statement.h"
#include "tests/netlink/wire_bytes.h"

namespace kipt::netlink::statement_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

constexpr uint32_t kLink = 0;  // enum nft_payload_bases
constexpr uint32_t kNetwork = 1;
constexpr uint32_t kTransport = 2;

std::string Describe(const Statement& statement) {
  const auto no = [](bool negated) { return negated ? "! " : ""; };
  if (const auto* address = std::get_if<AddressStatement>(&statement)) {
    return absl::StrCat(no(address->match.negated), address->is_source ? "from " : "to ",
                        ToHex(Bytes(address->match.prefix.address.begin(),
                                    address->match.prefix.address.begin() + 4)),
                        "/", address->match.prefix.length);
  }
  if (const auto* port = std::get_if<PortStatement>(&statement)) {
    return absl::StrCat(no(port->negated), port->is_source ? "sport " : "dport ", port->first, ":",
                        port->last);
  }
  if (const auto* flags = std::get_if<TcpFlagsStatement>(&statement)) {
    return absl::StrCat(no(flags->negated), "flags ", flags->mask, "/", flags->flags);
  }
  if (const auto* protocol = std::get_if<ProtocolStatement>(&statement)) {
    return absl::StrCat(no(protocol->negated), "protocol ", protocol->protocol);
  }
  if (const auto* mark = std::get_if<MarkMatch>(&statement)) {
    return absl::StrCat(no(mark->negated), "mark ", mark->value, "/", mark->mask);
  }
  if (const auto* interface = std::get_if<InterfaceStatement>(&statement)) {
    return absl::StrCat(no(interface->negated), interface->is_input ? "in " : "out ",
                        interface->name);
  }
  return "another";
}

std::string DescribeAll(const std::vector<Statement>& statements) {
  return absl::StrJoin(statements, ", ", [](std::string* out, const Statement& statement) {
    absl::StrAppend(out, Describe(statement));
  });
}

// ---- payload ----

struct PayloadRow {
  PayloadLoad load;
  Bytes data = {};
  std::string text = {};
  std::optional<Bytes> mask = {};
  std::optional<Family> family = Family::kIPv4;
  bool negated = false;
};

const PayloadRow kPayloadRows[] = {
    // Addresses: 12 and 16 in struct iphdr, 8 and 24 in struct ipv6hdr.
    {{kNetwork, 12, 4}, {10, 0, 0, 1}, "from 0a000001/32"},
    {{kNetwork, 16, 4}, {10, 0, 0, 1}, "! to 0a000001/32", {}, Family::kIPv4, true},
    {{kNetwork, 12, 1}, {10}, "from 0a000000/8"},
    {{kNetwork, 12, 4}, {10, 0, 0, 0}, "from 0a000000/9", Bytes{255, 128, 0, 0}},
    {{kNetwork, 12, 4}, {10, 1, 0, 0}, "", Bytes{255, 0, 0, 0}},
    {{kNetwork, 12, 4}, {10, 0, 0, 0}, "", Bytes{255, 0, 255, 0}},
    {{kNetwork, 12, 0}},
    {{kNetwork, 12, 5}, {10, 0, 0, 1, 2}},
    {{kNetwork, 12, 4}, {10, 0, 0}},
    {{kNetwork, 14, 4}, {10, 0, 0, 1}},
    {{kNetwork, 8, 4}, {10, 0, 0, 1}},
    {{kLink, 12, 4}, {10, 0, 0, 1}},
    {{kTransport, 12, 4}, {10, 0, 0, 1}},
    {{kNetwork, 12, 4}, {10, 0, 0, 1}, "", {}, std::nullopt},
    {{kNetwork, 8, 16},
     {1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
     "from 01020304/128",
     {},
     Family::kIPv6},
    {{kNetwork, 24, 2}, {1, 2}, "to 01020000/16", {}, Family::kIPv6},
    {{kNetwork, 16, 4}, {1, 2, 3, 4}, "", {}, Family::kIPv6},
    // The protocol: 9 in struct iphdr, 6 in struct ipv6hdr.
    {{kNetwork, 9, 1}, {6}, "protocol 6"},
    {{kNetwork, 9, 1}, {6}, "! protocol 6", {}, Family::kIPv4, true},
    {{kNetwork, 6, 1}, {6}, "protocol 6", {}, Family::kIPv6},
    {{kNetwork, 6, 1}, {6}},
    {{kNetwork, 9, 1}, {6}, "", {}, Family::kIPv6},
    {{kNetwork, 9, 2}, {6, 0}},
    {{kTransport, 9, 1}, {6}},
    {{kNetwork, 9, 1}, {6}, "", Bytes{255}},
    {{kNetwork, 6, 1}, {6}, "", {}, std::nullopt},
    // The flags: 13 in struct tcphdr.
    {{kTransport, 13, 1}, {2}, "flags 23/2", Bytes{23}},
    {{kTransport, 13, 1}, {2}, "! flags 23/2", Bytes{23}, Family::kIPv4, true},
    {{kTransport, 13, 1}, {2}},
    {{kTransport, 12, 1}, {2}, "", Bytes{23}},
    {{kTransport, 13, 2}, {2, 0}, "", Bytes{23, 0}},
    {{kNetwork, 13, 1}, {2}, "", Bytes{23}},
    {{kTransport, 13, 1}, {2, 0}, "", Bytes{23, 0}},
    // Ports.
    {{kTransport, 0, 2}, {1, 2}, "sport 258:258"},
    {{kTransport, 2, 2}, {1, 2}, "! dport 258:258", {}, Family::kIPv4, true},
    {{kTransport, 1, 2}, {1, 2}},
    {{kTransport, 3, 2}, {1, 2}},
    {{kTransport, 4, 2}, {1, 2}},
    {{kTransport, 2, 4}, {0, 1, 0, 2}},
    {{kTransport, 0, 1}, {1}},
    {{kTransport, 0, 3}, {0, 1, 2}},
    {{kNetwork, 0, 2}, {1, 2}},
    {{kTransport, 0, 2}, {1, 2, 3}},
    {{kTransport, 0, 2}, {1, 2}, "", Bytes{255, 255}},
    {{kTransport, 0, 4}, {0, 1, 0, 2}, "sport 1:1, dport 2:2"},
    {{kTransport, 0, 4}, {0, 1, 0, 2}, "", {}, Family::kIPv4, true},
    {{kNetwork, 0, 4}, {0, 1, 0, 2}},
};

TEST(StatementTest, BytesOfThePacketAreTheOptionThatIptablesHas) {
  for (const PayloadRow& row : kPayloadRows) {
    const Comparison comparison = {.negated = row.negated, .data = row.data};
    const std::optional<WireBytes> mask =
        row.mask ? std::optional<WireBytes>(*row.mask) : std::nullopt;
    EXPECT_EQ(DescribeAll(ReadPayload(row.family, row.load, mask, comparison)), row.text)
        << "base " << row.load.base << " offset " << row.load.offset << " length "
        << row.load.length << " of " << row.data.size();
  }
}

struct RangeRow {
  PayloadLoad load;
  Bytes low;
  Bytes high;
  std::string text = {};
  bool open = false;
  bool negated = false;
};

TEST(StatementTest, ARangeIsOneOfPorts) {
  const PayloadLoad to = {kTransport, 2, 2};
  for (const RangeRow& row : std::vector<RangeRow>{
           {{kTransport, 0, 2}, {0, 5}, {1, 0}, "sport 5:256"},
           {to, {0, 5}, {0, 5}, "! dport 5:5", false, true},
           {to, {}, {0, 5}, "dport 0:5"},
           {to, {0, 5}, {}, "dport 5:65535"},
           {to, {}, {0, 5}, "dport 0:4", true},
           {to, {0, 5}, {}, "dport 6:65535", true},
           {to, {0, 6}, {0, 5}},
           {to, {}, {0, 0}, "", true},
           {to, {255, 255}, {}, "", true},
           {to, {0, 0, 5}, {0, 6}},
           {to, {0, 5}, {6}},
           {{kNetwork, 2, 2}, {0, 5}, {0, 6}},
       }) {
    const RangeComparison range = {
        .negated = row.negated, .open = row.open, .low = row.low, .high = row.high};
    EXPECT_EQ(DescribeAll(ReadPortRange(row.load, range)), row.text)
        << ToHex(row.low) << " to " << ToHex(row.high);
  }
}

// ---- meta ----

struct MetaRow {
  uint32_t key;
  Bytes data;
  std::string text = {};
  std::optional<Bytes> mask = {};
  bool negated = false;
};

TEST(StatementTest, WhatIsKnownAboutThePacketIsTheOptionThatIptablesHas) {
  for (const MetaRow& row : std::vector<MetaRow>{
           {NFT_META_MARK, HostU32(5), "mark 5/4294967295"},
           {NFT_META_MARK, HostU32(5), "! mark 5/7", HostU32(7), true},
           {NFT_META_MARK, {5, 0}},
           {NFT_META_MARK, {}},
           {NFT_META_PRIORITY, HostU32(5)},
           {NFT_META_L4PROTO, {6}, "protocol 6"},
           {NFT_META_L4PROTO, {6}, "! protocol 6", {}, true},
           {NFT_META_L4PROTO, {6, 0}},
           {NFT_META_L4PROTO, {6}, "", Bytes{255}},
           {NFT_META_NFPROTO, {6}},
           {NFT_META_IIFNAME, Text("eth0"), "in eth0"},
           {NFT_META_OIFNAME, {'e', 't', 'h'}, "! out eth+", {}, true},
           {NFT_META_IIFNAME, {}},
           {NFT_META_IIFNAME, Text("eth0"), "", Text("eth0")},
           {NFT_META_IIFTYPE, {1, 0}},
       }) {
    const std::optional<WireBytes> mask =
        row.mask ? std::optional<WireBytes>(*row.mask) : std::nullopt;
    const Comparison comparison = {.negated = row.negated, .data = row.data};
    EXPECT_EQ(DescribeAll(ReadMeta(row.key, mask, comparison)), row.text)
        << row.key << " " << ToHex(row.data);
  }
}

// ---- match and target ----

std::string ParsedXt(const std::string& expression, const std::vector<Bytes>& attributes) {
  const Bytes data = Join(attributes);
  const auto xt = ParseXt({.name = expression, .data = Attributes::Parse(data), .bytes = {}});
  if (!xt) return "none";
  return absl::StrCat(xt->is_target ? "target " : "match ", xt->name, " ", xt->revision, " ",
                      xt->info.size());
}

TEST(StatementTest, AnExtensionHasANameARevisionAndBytes) {
  const Bytes name = Attr(NFTA_TARGET_NAME, Text("x"));
  const Bytes revision = Attr(NFTA_TARGET_REV, 2);
  const Bytes info = Attr(NFTA_TARGET_INFO, Zeros(8));
  EXPECT_EQ(ParsedXt("match", {name, revision, info}), "match x 2 8");
  EXPECT_EQ(ParsedXt("target", {name, revision, info}), "target x 2 8");
  EXPECT_EQ(ParsedXt("another", {name, revision, info}), "none");
  EXPECT_EQ(ParsedXt("match", {revision, info}), "none");
  EXPECT_EQ(ParsedXt("match", {name, info}), "none");
  EXPECT_EQ(ParsedXt("match", {name, revision}), "none");
  EXPECT_EQ(ParsedXt("match", {name, revision, info, Attr(4, 1)}), "none");
  EXPECT_FALSE(ParseXt({.name = "match", .data = std::nullopt, .bytes = {}}));
}

struct XtRow {
  std::string name;
  uint32_t revision;
  std::string text;  // of an OtherExpression; empty: it is something better known
  Bytes info;
  bool is_target = false;
  bool decides = false;
  bool terminal = false;
  bool condition = false;
  std::string target = {};  // of an OtherExpression
  bool nfacct = false;
  std::optional<Family> family = Family::kIPv4;
};

const XtRow kXtRows[] = {
    {"comment", 0, "", XtCommentInfo("x")},
    {"comment", 0, "[xt comment rev 0]", XtCommentInfo("")},
    {"comment", 1, "[xt comment rev 1]", XtCommentInfo("x")},
    {"comment", 0, "-j [xt comment rev 0]", XtCommentInfo("x"), true, true},
    {"mark", 1, "", XtMarkInfo(1, 1, 0)},
    {"mark", 1, "[xt mark rev 1]", XtMarkInfo(1, 1, 2), false, false, false, true},
    {"conntrack", 3, "", XtCtStateInfo(1, 0, 2)},
    {"connlabel", 0, "", XtConnLabelInfo(5, 0)},
    {"MARK", 2, "", XtSetMarkInfo(1, 1), true},
    {"MASQUERADE", 0, "", XtMasqueradeInfo(0), true},
    {"MASQUERADE", 0, "-j [xt MASQUERADE rev 0]", XtMasqueradeInfo(0), true, true, true, false, "",
     false, std::nullopt},
    {"LOG", 0, "-j LOG", Join({{4, 0}, Zeros(30)}), true, false, false, false, "LOG"},
    {"TRACE", 0, "-j [xt TRACE rev 0]", {}, true},
    {"REJECT", 0, "-j REJECT --reject-with icmp-port-unreachable", HostU32(3), true, true, true,
     false, "REJECT"},
    {"DNAT", 9, "-j [xt DNAT rev 9]", {}, true, true, true},
    {"REDIRECT", 9, "-j [xt REDIRECT rev 9]", {}, true, true, true},
    {"SNAT", 9, "-j [xt SNAT rev 9]", {}, true, true, true},
    {"NETMAP", 9, "-j [xt NETMAP rev 9]", {}, true, true, true},
    {"NFLOG", 9, "-j [xt NFLOG rev 9]", {}, true},
    {"nfacct", 9, "-j [xt nfacct rev 9]", {}, true, true},
    {"nfacct", 0, "-m nfacct --nfacct-name  n", Join({Text("n"), Zeros(30), Zeros(8)}), false,
     false, false, true, "", true},
    {"nfacct", 9, "[xt nfacct rev 9]", {}, false, false, false, true},
    {"u32", 0, "[xt u32 rev 0]", {}, false, false, false, true},
};

TEST(StatementTest, AnExtensionOutsideTheVocabularyKeepsWhatItDoes) {
  for (const XtRow& row : kXtRows) {
    const Statement statement = ReadXt(
        row.family,
        {.is_target = row.is_target, .name = row.name, .revision = row.revision, .info = row.info});
    const auto* other = std::get_if<OtherExpression>(&statement);
    const std::string name = absl::StrCat(row.name, " ", row.revision);
    ASSERT_EQ(other == nullptr, row.text.empty()) << name;
    if (other == nullptr) continue;
    EXPECT_EQ(other->text, row.text) << name;
    EXPECT_EQ(other->target, row.target) << name;
    EXPECT_EQ(other->is_target, row.is_target) << name;
    EXPECT_EQ(other->condition, row.condition) << name;
    EXPECT_EQ(other->decides, row.decides) << name;
    EXPECT_EQ(other->terminal, row.terminal) << name;
    EXPECT_EQ(other->nfacct, row.nfacct) << name;
  }
}

TEST(StatementTest, OfAnOpaqueRuleTheFirstConditionOfEachKindIsKnown) {
  const absl::StatusOr<ObservedRule> rule =
      DecodeRule(RuleMessage(Family::kIPv4, {XtMatch("comment", 0, XtCommentInfo("first")),
                                             XtMatch("comment", 0, XtCommentInfo("second")),
                                             XtMatch("mark", 1, XtMarkInfo(1, 1, 0)),
                                             XtMatch("mark", 1, XtMarkInfo(2, 2, 0)), Verdict(0)}));
  ASSERT_TRUE(rule.ok()) << rule.status();
  const OpaqueRule* opaque = rule->opaque();
  ASSERT_NE(opaque, nullptr);
  EXPECT_EQ(opaque->known.comment, "first");
  EXPECT_EQ(opaque->known.mark, (MarkMatch{.value = 1, .mask = 1}));
  EXPECT_EQ(opaque->known.target, Target(NoTarget{}));
}

}  // namespace
}  // namespace kipt::netlink::statement_test
