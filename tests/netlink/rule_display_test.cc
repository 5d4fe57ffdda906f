// SPDX-License-Identifier: Apache-2.0
//
// Opaque rules, which no Rule has a place for: their text, what they do to a packet, and what else
// is known of them.
#include <gtest/gtest.h>
#include <netinet/in.h>
// After the C library's.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "netlink/rule_codec.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/rows.h"

namespace kipt::netlink::rule_display_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

// "unconditional", "decides" and "terminal", those that hold.
std::string Facts(const OpaqueRule& rule) {
  std::string facts;
  if (rule.unconditional) facts += "unconditional ";
  if (rule.decides) facts += "decides ";
  if (rule.terminal) facts += "terminal ";
  if (rule.jump) facts += "to " + *rule.jump;
  return facts;
}

struct Row {
  std::string name;
  std::vector<Bytes> expressions;
  std::string text;
  std::string facts = "decides terminal ";
  Family family = Family::kIPv4;
  Bytes more = {};
  bool inet = false;
};

void ExpectShown(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    std::vector<uint8_t> message = RuleMessage(row.family, row.expressions, row.more);
    if (row.inet) message[16] = 1;  // after nlmsghdr: NFPROTO_INET
    const absl::StatusOr<ObservedRule> rule =
        DecodeRule(message, row.inet ? DecodeFor::kSurvey : DecodeFor::kSnapshot);
    ASSERT_TRUE(rule.ok()) << rule.status();
    ASSERT_NE(rule->opaque(), nullptr);
    EXPECT_EQ(rule->opaque()->text, row.text);
    EXPECT_EQ(Facts(*rule->opaque()), row.facts);
    if (row.inet) EXPECT_EQ(rule->opaque()->family.has_value(), absl::StrContains(row.text, "-d "));
  }
}

struct Condition {
  std::string text;  // the option, or the expression's name in brackets
  Bytes load;
  Bytes data;
  Bytes mask = {};
  Family family = Family::kIPv4;
};

// Each is compared for "not equal" where the text has "!".
void ExpectConditions(const std::vector<Condition>& rows) {
  for (const Condition& row : rows) {
    const Bytes compare = Compare(row.data, absl::StartsWith(row.text, "! ") ? 1 : 0);
    const Bytes mask = row.mask.empty() ? Bytes() : Mask(row.mask);
    const absl::StatusOr<ObservedRule> rule =
        DecodeRule(RuleMessage(row.family, {row.load, mask, compare, Verdict(1)}));
    ASSERT_TRUE(rule.ok()) << rule.status();
    EXPECT_EQ(ToString(row.family, *rule), row.text + " -j ACCEPT") << ToHex(row.load);
  }
}

Bytes Network(uint32_t offset, uint32_t length) { return Payload(1, offset, length); }
Bytes Transport(uint32_t offset, uint32_t length) { return Payload(2, offset, length); }

TEST(RuleDisplayTest, BytesOfThePacketAreTheOptionThatIptablesHas) {
  const std::string none = "[nft payload]";
  const Bytes ten = {10, 0, 0, 1};
  const Bytes port = {1, 2};
  ExpectConditions({
      // Addresses: 12 and 16 in struct iphdr, 8 and 24 in struct ipv6hdr.
      {"-s 10.0.0.1/32", Network(12, 4), ten},
      {"! -d 10.0.0.1/32", Network(16, 4), ten},
      {"-s 10.0.0.0/8", Network(12, 1), {10}},
      {"-s 10.0.0.0/9", Network(12, 4), {10, 0, 0, 0}, {255, 128, 0, 0}},
      {none, Network(12, 4), {10, 1, 0, 0}, {255, 0, 0, 0}},
      {none, Network(12, 4), {10, 0, 0, 0}, {255, 0, 255, 0}},
      {none, Network(12, 5), {10, 0, 0, 1, 2}},
      {none, Network(14, 4), ten},
      {none, Network(8, 4), ten},
      {none, Payload(0, 12, 4), ten},
      {none, Transport(12, 4), ten},
      {"-d 102::/16", Network(24, 2), port, {}, Family::kIPv6},
      {"-s 1::2/128", Network(8, 16), Join({{0, 1}, Zeros(13), {2}}), {}, Family::kIPv6},
      {none, Network(16, 4), ten, {}, Family::kIPv6},
      // The protocol: 9 in struct iphdr, 6 in struct ipv6hdr.
      {"-p tcp", Network(9, 1), {6}},
      {"! -p tcp", Network(9, 1), {6}},
      {"-p tcp", Network(6, 1), {6}, {}, Family::kIPv6},
      {none, Network(6, 1), {6}},
      {none, Network(9, 1), {6}, {}, Family::kIPv6},
      {none, Network(9, 2), {6, 0}},
      {none, Transport(9, 1), {6}},
      {none, Network(9, 1), {6}, {255}},
      // Ports.
      {"--sport 258", Transport(0, 2), port},
      {"! --dport 258", Transport(2, 2), port},
      {none, Transport(1, 2), port},
      {none, Transport(3, 2), port},
      {none, Transport(4, 2), port},
      {none, Transport(2, 4), {0, 1, 0, 2}},
      {none, Transport(0, 1), {1}},
      {none, Transport(0, 3), {0, 1, 2}},
      {none, Network(0, 2), port},
      {none, Transport(0, 2), port, {255, 255}},
      {"--sport 1 --dport 2", Transport(0, 4), {0, 1, 0, 2}},
      {none, Network(0, 4), {0, 1, 0, 2}},
  });
}

TEST(RuleDisplayTest, WhatIsKnownAboutThePacketIsTheOptionThatIptablesHas) {
  const std::string none = "[nft meta]";
  ExpectConditions({
      {"-m mark --mark 0x5", Meta(NFT_META_MARK), HostU32(5)},
      {"! -p tcp", Meta(NFT_META_L4PROTO), {6}},
      {none, Meta(NFT_META_L4PROTO), {6, 0}},
      {none, Meta(NFT_META_L4PROTO), {6}, {255}},
      {none, Meta(NFT_META_NFPROTO), {6}},
      {none, Meta(NFT_META_PRIORITY), HostU32(5)},
      {none, Meta(NFT_META_IIFTYPE), {1, 0}},
      {"-i lo", Meta(NFT_META_IIF), HostU32(1)},
      {none, Meta(NFT_META_IIF), HostU32(2)},
      {"-i eth0", Meta(NFT_META_IIFNAME), Text("eth0")},
      {"! -o eth+", Meta(NFT_META_OIFNAME), {'e', 't', 'h'}},
      {none, Meta(NFT_META_IIFNAME), {}},
      {none, Meta(NFT_META_IIFNAME), Text("eth0"), Text("eth0")},
  });
}

TEST(RuleDisplayTest, SpellsVerdictsAsIptables) {
  ExpectShown({
      {"accept", List(CounterBytes(), Verdict(1)), "-j ACCEPT", "unconditional decides terminal "},
      {"goto", List(Verdict(-4, "X")), "-g X", "unconditional decides terminal to X"},
      {"queue", List(Verdict(3)), "[nft verdict 3]", "unconditional decides terminal "},
      {"nothing", {}, "", "unconditional "},
      {"counter", List(CounterBytes()), "", "unconditional "},
      {"only a comment",
       {},
       "-m comment --comment x",
       "unconditional ",
       Family::kIPv4,
       UserDataComment("x")},
  });
}

TEST(RuleDisplayTest, PutsAddressesInterfacesAndProtocolFirst) {
  ExpectShown({
      {"a service rule",
       List(XtMatch("comment", 0, XtCommentInfo("ns/svc:p80 cluster IP")), Payload(1, 9, 1),
            Compare({6}), Payload(1, 16, 4), Compare(FromHex("ac1e0029")), Payload(1, 12, 2),
            Compare(FromHex("0ab4"), 1), Payload(2, 2, 2), Compare(FromHex("0050")), CounterBytes(),
            Verdict(-3, "KSVC")),
       "! -s 10.180.0.0/16 -d 172.30.0.41/32 -p tcp -m comment --comment \"ns/svc:p80 cluster "
       "IP\" -m tcp --dport 80 -j KSVC",
       "decides to KSVC"},
      {"interfaces",
       List(Meta(7), Compare(FromHex("657468"), 1), Meta(6), Compare(Text("lo")), Meta(16),
            Compare({58}), Verdict(0)),
       "-i lo ! -o eth+ -p ipv6-icmp -j DROP", "decides terminal ", Family::kIPv6},
      {"two ports",
       List(Meta(16), Compare({17}), Payload(2, 0, 2), Compare(FromHex("0035"), 1),
            Payload(2, 2, 2), Compare(FromHex("ffff")), Verdict(1)),
       "-p udp -m udp ! --sport 53 --dport 65535 -j ACCEPT"},
      {"every address", List(Payload(1, 12, 4), Mask(Zeros(4)), Compare(Zeros(4)), Verdict(1)),
       "-j ACCEPT", "unconditional decides terminal "},
      {"no address", List(Payload(1, 12, 4), Mask(Zeros(4)), Compare(Zeros(4), 1), Verdict(1)),
       "! -s 0.0.0.0/0 -j ACCEPT"},
      {"half of the addresses",
       List(Payload(1, 12, 4), Mask(FromHex("80000000")), Compare(Zeros(4)), Verdict(1)),
       "-s 0.0.0.0/1 -j ACCEPT"},
      {"a number for a protocol", List(Meta(16), Compare({99}, 1), Verdict(0)), "! -p 99 -j DROP"},
  });
}

TEST(RuleDisplayTest, SpellsLabelsAsIptables) {
  const auto label = [](uint16_t number, uint16_t options) {
    return XtMatch("connlabel", 0, XtConnLabelInfo(number, options));
  };
  const Bytes tcp = Join({Payload(1, 9, 1), Compare({6})});
  ExpectShown({
      {"accept of some", List(tcp, label(3, 0), CounterBytes(), Verdict(1)),
       "-p tcp -m connlabel --label \"3\" -j ACCEPT"},
      {"accept of all that have it", List(label(3, 0), Verdict(1)),
       "-m connlabel --label \"3\" -j ACCEPT", "decides terminal ", Family::kIPv6},
      {"set on some", List(tcp, label(0, 2), CounterBytes()),
       "-p tcp -m connlabel --label \"0\" --set", ""},
      {"counted", List(label(9, 1)), "-m connlabel ! --label \"9\"", ""},
      {"twice, in their order", List(label(2, 0), label(1, 3), Verdict(0)),
       "-m connlabel --label \"2\" -m connlabel ! --label \"1\" --set -j DROP"},
      {"that we cannot read", List(label(1, 4), Verdict(0)), "[xt connlabel rev 0] -j DROP"},
  });
}

TEST(RuleDisplayTest, NamesWhatItCannotSpell) {
  ExpectShown({
      {"match", List(XtMatch("statistic", 1, Zeros(24)), Verdict(-3, "SEP")),
       "[xt statistic rev 1] -j SEP", "decides to SEP"},
      {"target", List(XtTarget("BRANDNEW", 4, Zeros(8))), "-j [xt BRANDNEW rev 4]",
       "unconditional decides "},
      {"malformed match", List(ExpressionBytes("match", Attr(1, Text("mark"))), Verdict(1)),
       "[nft match] -j ACCEPT"},
      {"an empty comment", List(XtMatch("comment", 0, XtCommentInfo("")), Verdict(1)),
       "[xt comment rev 0] -j ACCEPT", "unconditional decides terminal "},
      {"a comment of another revision", List(XtMatch("comment", 1, XtCommentInfo("x")), Verdict(1)),
       "[xt comment rev 1] -j ACCEPT", "unconditional decides terminal "},
      {"a target of a match's name", List(XtTarget("comment", 0, XtCommentInfo("x"))),
       "-j [xt comment rev 0]", "unconditional decides "},
      {"a mark neither negated nor not", List(XtMatch("mark", 1, XtMarkInfo(1, 1, 2)), Verdict(1)),
       "[xt mark rev 1] -j ACCEPT"},
      {"masquerade of any family", List(XtTarget("MASQUERADE", 0, XtMasqueradeInfo(0))),
       "-j [xt MASQUERADE rev 0]", "unconditional decides terminal ", Family::kIPv4, Bytes(), true},
      {"a trace of no bytes", List(XtTarget("TRACE", 0, {})), "-j [xt TRACE rev 0]",
       "unconditional "},
      {"a log to netlink that is new", List(XtTarget("NFLOG", 9, {})), "-j [xt NFLOG rev 9]",
       "unconditional "},
      {"an extension that may be both", List(XtTarget("nfacct", 9, {})), "-j [xt nfacct rev 9]",
       "unconditional decides "},
      {"a reject", List(XtTarget("REJECT", 0, HostU32(3))),
       "-j REJECT --reject-with icmp-port-unreachable", "unconditional decides terminal "},
      {"-m state", List(XtMatch("conntrack", 3, XtCtStateInfo(0x2001, 1, 6)), Verdict(1)),
       "-m state ! --state RELATED,ESTABLISHED -j ACCEPT"},
      {"masquerade of two marks",
       List(XtMatch("mark", 1, XtMarkInfo(1, 1, 0)), XtMatch("mark", 1, XtMarkInfo(2, 2, 1)),
            XtTarget("MASQUERADE", 0, XtMasqueradeInfo(0x10))),
       "-m mark --mark 0x1/0x1 -m mark ! --mark 0x2/0x2 -j MASQUERADE --random-fully"},
      {"a mark twice",
       List(XtMatch("mark", 1, XtMarkInfo(1, 1, 0)), XtMatch("mark", 1, XtMarkInfo(2, 2, 1)),
            XtTarget("MARK", 2, XtSetMarkInfo(1, 1))),
       "-m mark --mark 0x1/0x1 -m mark ! --mark 0x2/0x2 -j MARK --set-xmark 0x1/0x1", "decides "},
  });
}

TEST(RuleDisplayTest, AnUnreadNatStillEndsTheRule) {
  for (const std::string name : {"DNAT", "NETMAP", "REDIRECT", "SNAT"}) {
    ExpectShown({{name, List(XtTarget(name, 9, {})), "-j [xt " + name + " rev 9]",
                  "unconditional decides terminal "}});
  }
}

TEST(RuleDisplayTest, ReadsAddressesInTablesOfInetOnceTheFamilyIsKnown) {
  const auto nfproto = [](uint8_t family) { return Join({Meta(15), Compare(Bytes{family})}); };
  ExpectShown({
      {"of IPv4", List(nfproto(2), Payload(1, 16, 1), Compare(Bytes{127}), Verdict(0)),
       "-d 127.0.0.0/8 [nft meta] -j DROP", "decides terminal ", Family::kIPv4, Bytes(), true},
      {"of IPv6", List(nfproto(10), Payload(1, 24, 2), Compare(Bytes{0xfd, 0}), Verdict(0)),
       "-d fd00::/16 [nft meta] -j DROP", "decides terminal ", Family::kIPv6, Bytes(), true},
      {"of any family", List(Payload(1, 16, 1), Compare(Bytes{127}), Verdict(0)),
       "[nft payload] -j DROP", "decides terminal ", Family::kIPv4, Bytes(), true},
      {"a protocol of any family", List(Payload(1, 6, 1), Compare(Bytes{6}), Verdict(0)),
       "[nft payload] -j DROP", "decides terminal ", Family::kIPv4, Bytes(), true},
  });
}

TEST(RuleDisplayTest, KnowsWhatNativeExpressionsDo) {
  const Bytes state = Ct(0);
  ExpectShown({
      {"log", List(ExpressionBytes("log", {})), "[nft log]", "unconditional "},
      {"limited log", List(ExpressionBytes("limit", Attr(1, Zeros(8))), ExpressionBytes("log", {})),
       "[nft limit] [nft log]", ""},
      {"reject", List(ExpressionBytes("reject", {})), "-j REJECT",
       "unconditional decides terminal "},
      {"masquerade", List(ExpressionBytes("masq", {})), "[nft masq]",
       "unconditional decides terminal "},
      {"ct state", List(state, Mask(HostU32(6)), Compare(HostU32(0), 1), Verdict(1)),
       "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"},
      {"not ct state", List(state, Mask(HostU32(0x41)), Compare(HostU32(0), 0), Verdict(1)),
       "-m conntrack ! --ctstate INVALID,UNTRACKED -j ACCEPT"},
      {"a state without a name",
       List(state, Mask(HostU32(0x82)), Compare(HostU32(0), 1), Verdict(1)), "[nft ct] -j ACCEPT"},
      {"set lookup", List(Payload(1, 12, 4), Lookup("s"), Verdict(0)),
       "[nft payload] [nft lookup] -j DROP"},
      {"verdict map",
       List(Payload(1, 12, 4),
            ExpressionBytes("lookup", Join({Attr(1, Text("m")), Attr(2, 1), Attr(3, 0)}))),
       "[nft payload] [nft lookup]", "decides "},
      {"mark set to something else", List(Ct(3), SetMeta(3)),
       "[nft ct] -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff", "decides "},
      {"no name", List(Attr(1, Attr(2, Zeros(4)))), "[nft ]", "decides "},
      {"-p for an xtables match", List(Verdict(1)), "[nft compat] -j ACCEPT", "decides terminal ",
       Family::kIPv4, Attr(5, Join({Attr(1, 6), Attr(2, 0)}))},
      {"-p and nothing else", List(CounterBytes()), "[nft compat]", "", Family::kIPv4,
       Attr(5, Join({Attr(1, 6), Attr(2, 0)}))},
  });
}

// As iptables-nft 1.8.8 and later write `-m tcp`, `-m udp`, `-m limit` and NFLOG.
TEST(RuleDisplayTest, SpellsNativeOptionsAsIptables) {
  const Bytes tcp = Join({Meta(16), Compare({6})});
  const Bytes dport = Payload(2, 2, 2);
  const Bytes flags = Payload(2, 13, 1);
  const auto limit = [](uint32_t rate, uint32_t unit, uint32_t burst, uint32_t flag) {
    return ExpressionBytes(
        "limit", Join({Attr(1, Join({Zeros(4), U32(rate)})), Attr(2, Join({Zeros(4), U32(unit)})),
                       Attr(3, burst), Attr(4, 0), Attr(5, flag)}));
  };
  const Bytes accept = Verdict(1);
  ExpectShown({
      {"a range", List(tcp, dport, Range({0, 5}, {1, 0}, 0), accept),
       "-p tcp -m tcp --dport 5:256 -j ACCEPT"},
      {"no range", List(tcp, dport, Range({0, 5}, {1, 0}, 1), accept),
       "-p tcp -m tcp ! --dport 5:256 -j ACCEPT"},
      {"at most", List(tcp, dport, Compare({0, 100}, 3), accept),
       "-p tcp -m tcp --dport 0:100 -j ACCEPT"},
      {"less", List(tcp, dport, Compare({0, 100}, 2), accept),
       "-p tcp -m tcp --dport 0:99 -j ACCEPT"},
      {"more", List(tcp, dport, Compare({0, 100}, 4), accept),
       "-p tcp -m tcp --dport 101:65535 -j ACCEPT"},
      {"at least", List(tcp, dport, Compare({0, 100}, 5), accept),
       "-p tcp -m tcp --dport 100:65535 -j ACCEPT"},
      {"one port", List(tcp, dport, Range({0, 5}, {0, 5}, 1), accept),
       "-p tcp -m tcp ! --dport 5 -j ACCEPT"},
      {"a range of source ports", List(tcp, Payload(2, 0, 2), Range({0, 5}, {1, 0}), accept),
       "-p tcp -m tcp --sport 5:256 -j ACCEPT"},
      {"a range of no port", List(tcp, dport, Range({0, 6}, {0, 5}), accept),
       "-p tcp [nft payload] -j ACCEPT"},
      {"less than nothing", List(tcp, dport, Compare({0, 0}, 2), accept),
       "-p tcp [nft payload] -j ACCEPT"},
      {"more than all", List(tcp, dport, Compare({255, 255}, 4), accept),
       "-p tcp [nft payload] -j ACCEPT"},
      {"a range of another header's bytes",
       List(tcp, Payload(1, 2, 2), Range({0, 5}, {0, 6}), accept),
       "-p tcp [nft payload] -j ACCEPT"},
      {"neither of both ports", List(tcp, Payload(2, 0, 4), Compare({0, 1, 0, 2}, 1), accept),
       "-p tcp [nft payload] -j ACCEPT"},
      {"not these flags", List(tcp, flags, Mask({0x17}), Compare({2}, 1), accept),
       "-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -j ACCEPT"},
      {"all flags", List(tcp, flags, Compare({2}), accept), "-p tcp [nft payload] -j ACCEPT"},
      {"bits before the flags", List(tcp, Payload(2, 12, 1), Mask({0x17}), Compare({2}), accept),
       "-p tcp [nft payload] -j ACCEPT"},
      {"bits of two bytes", List(tcp, Payload(2, 13, 2), Mask({0x17, 0}), Compare({2, 0}), accept),
       "-p tcp [nft payload] -j ACCEPT"},
      {"bits of another header", List(tcp, Payload(1, 13, 1), Mask({0x17}), Compare({2}), accept),
       "-p tcp [nft payload] -j ACCEPT"},
      {"in iptables' order",
       List(tcp, flags, Mask({0x17}), Compare({2}), limit(5, 60, 5, 0), dport, Compare({0, 22}),
            accept),
       "-p tcp -m tcp --dport 22 --tcp-flags FIN,SYN,RST,ACK SYN -m limit --limit 5/min -j ACCEPT"},
      {"a port twice", List(tcp, dport, Compare({0, 22}, 1), dport, Compare({0, 23}, 1), accept),
       "-p tcp -m tcp ! --dport 22 -m tcp ! --dport 23 -j ACCEPT"},
      {"a port of any protocol", List(dport, Compare({0, 22}), accept), "--dport 22 -j ACCEPT"},
      {"ports of two protocols",
       List(tcp, dport, Compare({0, 22}), Meta(16), Compare({17}), Payload(2, 0, 2),
            Compare({0, 53}), accept),
       "-p tcp -p udp -m tcp --dport 22 -m udp --sport 53 -j ACCEPT"},
      {"a flag without a name", List(tcp, flags, Mask({0x40}), Compare({0}), accept),
       "-p tcp [nft payload] -j ACCEPT"},
      {"flags of no protocol", List(flags, Mask({1}), Compare({1}), accept),
       "[nft payload] -j ACCEPT"},
      {"a target before a match", List(ExpressionBytes("log", Attr(1, {0, 5})), limit(5, 60, 5, 0)),
       "-m limit --limit 5/min -j NFLOG --nflog-group 5", ""},
      {"log to a group",
       List(ExpressionBytes("log", Join({Attr(1, {0, 5}), Attr(2, Text("a b"))}))),
       "-j NFLOG --nflog-prefix \"a b\" --nflog-group 5", "unconditional "},
  });
}

TEST(RuleDisplayTest, StillFindsTheJumpInARuleThatIsBroken) {
  ExpectShown({
      {"a broken element in front", List(Attr(1, FromHex("ffff")), Verdict(-3, "X")),
       "[nft malformed] -j X", "decides to X"},
      {"an unknown expression in front", List(ExpressionBytes("brandnew", {}), Verdict(-4, "X")),
       "[nft brandnew] -g X", "decides terminal to X"},
      {"a list that is cut off", List(FromHex("ff000100")), "[nft malformed]", "decides "},
  });
}

OpaqueRule Opaque(const std::vector<Bytes>& expressions, const Bytes& more = {}) {
  const absl::StatusOr<SurveyRule> rule =
      DecodeRule(RuleMessage(Family::kIPv4, expressions, more), DecodeFor::kSurvey);
  EXPECT_TRUE(rule.ok()) << rule.status();
  const OpaqueRule* opaque = rule.ok() ? rule->opaque() : nullptr;
  EXPECT_NE(opaque, nullptr);
  return opaque != nullptr ? *opaque : OpaqueRule();
}

struct OpaqueRow {
  std::string name;
  std::vector<Bytes> expressions;
  std::string target = "DROP";
  bool terminal = true;
  std::optional<InterfaceMatch> in_interface = {};
  bool returns = false;
  bool nfacct = false;
  std::optional<std::string> jump = {};
};

TEST(OpaqueRuleTest, KeepsWhatAnAuditAsksFor) {
  const Bytes other = XtMatch("u32", 0, {});
  const Bytes nfacct = XtMatch("nfacct", 0, Join({Text("n"), Zeros(30), Zeros(8)}));
  const Bytes log = XtTarget("LOG", 0, Join({{4, 0}, Zeros(30)}));
  const auto in = [](const std::string& name, uint32_t op = 0) { return Compare(Text(name), op); };
  const std::vector<OpaqueRow> rows = {
      {"accept", List(other, Verdict(NF_ACCEPT)), "ACCEPT"},
      {"drop", List(other, Verdict(NF_DROP))},
      {"return", List(other, Verdict(NFT_RETURN)), "RETURN", true, {}, true},
      {"return, then more", List(Verdict(NFT_RETURN), log), "RETURN", true, {}, true},
      {"jump", List(other, Verdict(NFT_JUMP, "C")), "", false, {}, false, false, "C"},
      {"mark", List(other, XtTarget("MARK", 2, XtSetMarkInfo(1, 1))), "MARK", false},
      {"masquerade", List(other, XtTarget("MASQUERADE", 0, XtMasqueradeInfo(0))), "MASQUERADE"},
      {"log", List(other, log), "LOG", false},
      {"reject", List(ExpressionBytes("reject", Join({Attr(1, 0), Attr(2, Bytes{3})}))), "REJECT"},
      {"a target that is not spelled", List(other, XtTarget("DNAT", 9, {})), ""},
      {"an account that is not spelled", List(XtMatch("nfacct", 9, {}), Verdict(NF_DROP))},
      {"counted by name", List(nfacct, other, Verdict(NF_DROP)), "DROP", true, {}, false, true},
      {"an interface", List(Meta(NFT_META_IIFNAME), in("eth0"), Verdict(NF_DROP)), "DROP", true,
       InterfaceMatch{"eth0", false}},
      {"not an interface", List(Meta(NFT_META_IIFNAME), in("eth0", 1), Verdict(NF_DROP)), "DROP",
       true, InterfaceMatch{"eth0", true}},
      {"two interfaces",
       List(Meta(NFT_META_IIFNAME), in("eth0"), Meta(NFT_META_IIFNAME), in("eth1"),
            Verdict(NF_DROP)),
       "DROP", true, InterfaceMatch{"eth0", false}},
      {"an output", List(Meta(NFT_META_OIFNAME), in("eth0"), Verdict(NF_DROP))},
  };
  for (const OpaqueRow& row : rows) {
    const OpaqueRule opaque = Opaque(row.expressions);
    EXPECT_EQ(opaque.target, row.target) << row.name;
    EXPECT_EQ(opaque.terminal, row.terminal) << row.name;
    EXPECT_EQ(opaque.returns, row.returns) << row.name;
    EXPECT_EQ(opaque.nfacct, row.nfacct) << row.name;
    EXPECT_EQ(opaque.in_interface, row.in_interface) << row.name;
    EXPECT_EQ(opaque.jump, row.jump) << row.name;
  }
}

TEST(OpaqueRuleTest, VerdictsThatLeaveThePacketHaveNothingToDoWithItsMark) {
  for (const int32_t code :
       std::vector<int32_t>{NF_ACCEPT, NF_DROP, NFT_CONTINUE, NFT_BREAK, NFT_RETURN}) {
    EXPECT_EQ(Opaque({XtMatch("u32", 0, {}), Verdict(code)}).marks, Marks{}) << code;
  }
  for (const int32_t code : std::vector<int32_t>{NFT_JUMP, NFT_GOTO}) {
    EXPECT_EQ(Opaque({XtMatch("u32", 0, {}), Verdict(code, "C")}).marks, Marks{}) << code;
  }
  EXPECT_NE(Opaque({XtMatch("u32", 0, {}), Verdict(NF_QUEUE)}).marks, Marks{});
}

TEST(OpaqueRuleTest, ATargetHasTheNameThatIptablesHas) {
  const auto name = [](const Target& target) {
    return TargetName({.content = Rule{.target = target}});
  };
  EXPECT_EQ(name(Drop{}), "DROP");
  EXPECT_EQ(name(Return{}), "RETURN");
  EXPECT_EQ(name(SetMark{1, 1}), "MARK");
  EXPECT_EQ(name(Masquerade{.random_fully = true}), "MASQUERADE");
  EXPECT_EQ(name(Jump{"C"}), "") << "a chain";
  EXPECT_EQ(TargetName({.content = OpaqueRule{.target = "SNAT"}}), "SNAT");
}

TEST(OpaqueRuleTest, TheFirstConditionOfEachKindIsKnown) {
  const OpaqueRule opaque = Opaque({XtMatch("comment", 0, XtCommentInfo("first")),
                                    XtMatch("comment", 0, XtCommentInfo("second")),
                                    XtMatch("mark", 1, XtMarkInfo(1, 1, 0)),
                                    XtMatch("mark", 1, XtMarkInfo(2, 2, 0)), Verdict(0)});
  EXPECT_EQ(opaque.known.comment, "first");
  EXPECT_EQ(opaque.known.mark, (MarkMatch{.value = 1, .mask = 1}));
  EXPECT_EQ(opaque.known.target, Target(NoTarget{}));
}

TEST(OpaqueRuleTest, AllIsKnownUnlessAConditionHasNoPlace) {
  const Bytes in = Join({Meta(NFT_META_IIFNAME), Compare(Text("eth0"))});
  const Bytes out = Join({Meta(NFT_META_OIFNAME), Compare(Text("eth0"))});
  const Bytes mark = XtMatch("mark", 1, XtMarkInfo(1, 1, 0));
  EXPECT_TRUE(Opaque({in, mark, Verdict(NF_DROP)}).all_known);
  for (const Bytes& more : {in, out, mark, XtMatch("u32", 0, {})}) {
    EXPECT_FALSE(Opaque({in, mark, more, Verdict(NF_DROP)}).all_known) << ToHex(more);
  }
  EXPECT_FALSE(Opaque({Verdict(NF_ACCEPT)}, Attr(5, Attr(1, 6))).perhaps_unconditional) << "-p";
}

}  // namespace
}  // namespace kipt::netlink::rule_display_test
