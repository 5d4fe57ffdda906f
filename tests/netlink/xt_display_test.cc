// SPDX-License-Identifier: Apache-2.0
//
// What the kernel test of surveys cannot show: blobs that this machine's iptables does not write,
// of older revisions and of none. (That all other texts are iptables-save's is tested there,
// against the program, with every option of testdata/rulesets/third-parties-*.rules.) And the
// expressions that iptables-nft writes instead of extensions.
#include "netlink/xt_display.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "netlink/attributes.h"
#include "tests/netlink/wire_bytes.h"

namespace kipt::netlink::xt_display_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

struct Row {
  std::string name;
  std::string option;  // "-m MATCH" or "-j TARGET"
  uint32_t revision;
  Bytes info;
  std::string rest = "none";  // of the text, after the option; none: it has no text
  Family family = Family::kIPv4;
};

void ExpectTexts(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    absl::string_view name = row.option;
    const auto text =
        absl::ConsumePrefix(&name, "-j ")
            ? DisplayXtTarget(row.family, name, row.revision, row.info)
            : DisplayXtMatch(row.family, absl::StripPrefix(name, "-m "), row.revision, row.info);
    EXPECT_EQ(text.value_or("none"), row.rest == "none" ? row.rest : row.option + row.rest)
        << row.name;
  }
}

Bytes Ports(uint16_t first, uint16_t last) { return Join({HostU16(first), HostU16(last)}); }

// iptables-nft since 1.8.8 writes expressions instead, which rule_display_test.cc has.
TEST(XtDisplayTest, ShowsTcpAndUdpOrNothing) {
  const Bytes all = Ports(0, 0xffff);
  const auto tcp = [](const Bytes& source, const Bytes& destination, const Bytes& rest) {
    return Join({source, destination, rest, Zeros(4)});
  };
  const auto udp = [](const Bytes& source, const Bytes& destination, uint8_t inverted) {
    return Join({source, destination, {inverted}, Zeros(7)});
  };
  const Bytes http = Ports(80, 90);
  ExpectTexts({
      {"ports", "-m tcp", 0, tcp(all, http, Zeros(4)), " --dport 80:90"},
      {"not these ports", "-m tcp", 0, tcp(all, http, {0, 0, 0, 2}), " ! --dport 80:90"},
      {"up to", "-m tcp", 0, tcp(Ports(0, 100), all, Zeros(4)), " --sport 0:100"},
      {"from", "-m tcp", 0, tcp(Ports(5, 0xffff), all, Zeros(4)), " --sport 5:65535"},
      {"both", "-m tcp", 0, tcp(Ports(5, 6), Ports(7, 7), {0, 0, 0, 1}),
       " ! --sport 5:6 --dport 7"},
      {"all", "-m tcp", 0, tcp(all, http, {3, 0x17, 2, 4 | 8}),
       " --dport 80:90 ! --tcp-option 3 ! --tcp-flags FIN,SYN,RST,ACK SYN"},
      {"an option", "-m tcp", 0, tcp(all, all, {3, 0, 0, 0}), " --tcp-option 3"},
      {"no flag set", "-m tcp", 0, tcp(all, all, {0, 1, 0, 0}), " --tcp-flags FIN NONE"},
      {"a flag without a name", "-m tcp", 0, tcp(all, http, {0, 0x40, 0, 0})},
      {"an unknown inversion", "-m tcp", 0, tcp(all, http, {0, 0, 0, 0x10})},
      {"not any source port", "-m tcp", 0, tcp(all, http, {0, 0, 0, 1})},
      {"another revision", "-m tcp", 1, tcp(all, http, Zeros(4))},
      {"udp", "-m udp", 0, udp(Ports(53, 53), all, 0), " --sport 53"},
      {"not udp's source", "-m udp", 0, udp(Ports(53, 53), Ports(54, 54), 1),
       " ! --sport 53 --dport 54"},
      {"not udp's destination", "-m udp", 0, udp(Ports(53, 53), Ports(54, 54), 2),
       " --sport 53 ! --dport 54"},
      {"udp's unknown inversion", "-m udp", 0, udp(all, all, 4)},
      {"a limit", "-m limit", 0, Join({HostU32(10000), HostU32(5), Zeros(32)}), " --limit 1/sec"},
      {"a limit of nothing", "-m limit", 0, Join({HostU32(0), HostU32(5), Zeros(32)})},
  });
}

TEST(XtDisplayTest, ShowsNoListAndNoTypeThatItCannotRead) {
  const auto multiport = [](uint8_t flags, uint8_t count, uint8_t range, uint8_t invert) {
    return Join(
        {{flags, count}, HostU16(80), HostU16(90), Zeros(26), {range}, Zeros(14), {invert}});
  };
  const auto types = [](uint16_t source, uint32_t flags) {
    return Join({HostU16(source), HostU16(0), HostU32(flags)});
  };
  const auto old = [](uint32_t not_source, uint32_t not_destination) {
    return Join({HostU16(4), HostU16(2), HostU32(not_source), HostU32(not_destination), Zeros(4)});
  };
  ExpectTexts({
      {"half a range", "-m multiport", 1, multiport(0, 1, 1, 0)},
      {"no port", "-m multiport", 1, multiport(0, 0, 0, 0)},
      {"too many ports", "-m multiport", 1, multiport(0, 16, 0, 0)},
      {"an unknown kind", "-m multiport", 1, multiport(3, 1, 0, 0)},
      {"an unknown inversion", "-m multiport", 1, multiport(2, 1, 0, 2)},
      {"a type without a name", "-m addrtype", 1, types(0x1000, 0)},
      {"an unknown flag", "-m addrtype", 1, types(4, 0x10)},
      {"an inversion of nothing", "-m addrtype", 1, types(4, 2)},
      {"of revision 0", "-m addrtype", 0, old(0, 0), " --src-type LOCAL --dst-type UNICAST"},
      {"not the destination", "-m addrtype", 0, old(0, 1),
       " --src-type LOCAL ! --dst-type UNICAST"},
      {"not the source", "-m addrtype", 0, old(1, 0), " ! --src-type LOCAL --dst-type UNICAST"},
      {"an unknown inversion of the source", "-m addrtype", 0, old(2, 0)},
      {"an unknown inversion of the destination", "-m addrtype", 0, old(0, 2)},
      {"an unknown inversion of ICMP", "-m icmp", 0, {8, 0, 0xff, 2}},
      {"a range of ICMP codes", "-m icmp", 0, {3, 4, 5, 0}},
      {"a range of codes to the last", "-m icmp", 0, {3, 5, 0xff, 0}},
      {"any type of one code", "-m icmp", 0, {0xff, 1, 1, 0}},
      {"any type of ICMPv6", "-m icmp6", 0, {0xff, 0, 0xff, 0}},
      {"a mark's unknown inversion", "-m connmark", 1,
       Join({HostU32(1), HostU32(3), {2}, Zeros(3)})},
  });
}

TEST(XtDisplayTest, ShowsNothingThatRemembersWhatItCannotRead) {
  const auto recent = [](uint8_t mode, const std::string& name, uint8_t invert = 0,
                         uint8_t side = 0) {
    Bytes text(name.begin(), name.end());
    text.resize(200, 0);
    return Join({Zeros(8), {mode, invert}, text, {side, 0}, FromHex("ffffffff"), Zeros(16)});
  };
  const auto nth = [](uint16_t mode, uint16_t flags, uint32_t every) {
    return Join({HostU16(mode), HostU16(flags), HostU32(every), HostU32(0), HostU32(0), Zeros(8)});
  };
  ExpectTexts({
      {"reap of no age", "-m recent", 1, recent(0x21, "SEP")},
      {"two modes", "-m recent", 1, recent(3, "SEP")},
      {"no mode", "-m recent", 1, recent(0, "SEP")},
      {"an unknown flag", "-m recent", 1, recent(0x41, "SEP")},
      {"an unknown inversion", "-m recent", 1, recent(2, "SEP", 2)},
      {"an unknown side", "-m recent", 1, recent(2, "SEP", 0, 2)},
      {"no name", "-m recent", 1, recent(2, "")},
      {"a name that needs quotes", "-m recent", 1, recent(2, "a b")},
      {"a name without an end", "-m recent", 1, recent(2, std::string(200, 'x'))},
      {"every 2^32th", "-m statistic", 0, nth(1, 0, 0xffffffff)},
      {"an unknown mode", "-m statistic", 0, nth(2, 0, 0)},
      {"an unknown inversion", "-m statistic", 0, nth(1, 2, 2)},
  });
}

TEST(XtDisplayTest, ShowsNoPortOfABridgeThatIsNoName) {
  struct Device {
    std::string name = "eth0";
    Bytes mask = Bytes(5, 0xff);
  };
  const Device veth = {.name = "veth", .mask = Bytes(4, 0xff)};
  const auto physdev = [](const Device& in, const Device& out, uint8_t bitmask) {
    Bytes info;
    for (const Device& device : {in, out}) {
      Bytes name(device.name.begin(), device.name.end());
      name.resize(16, 0);
      Bytes mask = device.mask;
      mask.resize(16, 0);
      info = Join({info, name, mask});
    }
    return Join({info, {0, bitmask}, Zeros(6)});
  };
  const auto in = [&](const std::string& name, const Bytes& mask) {
    return physdev({.name = name, .mask = mask}, veth, 1);
  };
  const Device long_name = {.name = std::string(16, '\xff'), .mask = Bytes(16, 0xff)};
  ExpectTexts({
      {"an unknown option", "-m physdev", 0, physdev({}, veth, 32)},
      {"a name cut off", "-m physdev", 0, in("eth0", Bytes(3, 0xff))},
      {"a hole in the name", "-m physdev", 0, in("eth0", FromHex("ffff00ffffff"))},
      {"a hole after the name", "-m physdev", 0, in("eth0", FromHex("ffffffffff00ff"))},
      {"no mask", "-m physdev", 0, in("e", {})},
      {"no name", "-m physdev", 0, in("", {})},
      {"all of the mask, and what follows it looks like more", "-m physdev", 0,
       physdev({.name = "eth0", .mask = Bytes(16, 0xff)}, long_name, 1), " --physdev-in eth0"},
  });
}

TEST(XtDisplayTest, ShowsConntrackOfAllRevisionsOrNothing) {
  const auto conntrack = [](uint16_t flags, uint16_t inverted, const Bytes& rest) {
    return Join({FromHex("0a000000"), Zeros(12), FromHex("ff000000"), Zeros(12 + 96), HostU32(5),
                 HostU32(7), HostU16(6), FromHex("0050 0051 0052 0053"), HostU16(flags),
                 HostU16(inverted), rest});
  };
  const Bytes one = {6, 4};
  const Bytes two = Join({HostU16(6), HostU16(4), Zeros(2)});
  // Of revision 3, with a range of ports in the place of each.
  const auto third = [](uint16_t flags, uint16_t states, uint16_t status, Bytes mask = {}) {
    mask.resize(16, 0);
    return Join({FromHex("80000000"), Zeros(12), mask, Zeros(96 + 8 + 2 + 8), HostU16(flags),
                 HostU16(0), HostU16(states), HostU16(status), Zeros(8 + 6)});
  };
  ExpectTexts({
      {"revision 1", "-m conntrack", 1, conntrack(0x147, 0x4, one),
       " --ctstate RELATED,ESTABLISHED --ctproto 6 ! --ctorigsrc 10.0.0.0/8 "
       "--ctorigsrcport 80 --ctstatus ASSURED"},
      {"revision 1, its other ports", "-m conntrack", 1, conntrack(0xe00, 0, one),
       " --ctorigdstport 81 --ctreplsrcport 82 --ctrepldstport 83"},
      {"revision 2", "-m conntrack", 2, conntrack(0x1280, 0x1000, two),
       " --ctorigdstport 81 --ctexpire 5:7 --ctdir REPLY"},
      {"the older name", "-m conntrack", 2, conntrack(0x2001, 0, two)},
      {"an inversion of nothing", "-m conntrack", 2, conntrack(1, 2, two)},
      {"another revision", "-m conntrack", 4, conntrack(1, 0, two)},
      {"a state without a name", "-m conntrack", 3, third(0x1, 0x10, 0)},
      {"a status without a name", "-m conntrack", 3, third(0x40, 8, 0x10)},
      {"no mask of an address", "-m conntrack", 3, third(0x4, 0, 0)},
      {"a mask with a hole", "-m conntrack", 3, third(0x4, 0, 0, {0xff, 0, 0xff})},
      {"the highest bit", "-m conntrack", 3, third(0x4, 0, 0, {0x80}), " --ctorigsrc 128.0.0.0/1"},
  });
}

// Flags: 1 addresses, 2 ports, 4 random, 8 persistent, 16 random-fully, 32 a base.
TEST(XtDisplayTest, ShowsNatOfOlderRevisionsOrNothing) {
  const auto old = [](uint32_t flags, uint8_t last = 9, uint8_t last_port = 90) {
    const Bytes range = {10, 0, 0, 1, 10, 0, 0, last, 0, 80, 0, last_port};
    return Join({HostU32(1), HostU32(flags), range, Zeros(4)});
  };
  const auto nat2 = [](uint32_t flags) {
    const Bytes address = Join({FromHex("0a000001"), Zeros(12)});
    return Join({HostU32(flags), address, address, {0, 80, 0, 90, 0, 7}, Zeros(6)});
  };
  const auto narrow = [](uint32_t flags) {
    const Bytes one = Join({FromHex("fd00"), Zeros(13), {1}});
    return Join({HostU32(flags), one, one, {0, 80, 0, 90}});
  };
  ExpectTexts({
      {"revision 0", "-j SNAT", 0, old(3), " --to-source 10.0.0.1-10.0.0.9:80-90"},
      {"one of each", "-j SNAT", 0, old(3, 1, 80), " --to-source 10.0.0.1:80"},
      {"addresses", "-j SNAT", 0, old(1), " --to-source 10.0.0.1-10.0.0.9"},
      {"ports", "-j SNAT", 0, old(2), " --to-source :80-90"},
      {"two ranges", "-j SNAT", 0, XtMasqueradeInfo(1, 2)},
      {"revision 1", "-j SNAT", 1, narrow(3), " --to-source [fd00::1]:80-90", Family::kIPv6},
      {"revision 0 in IPv6", "-j SNAT", 0, narrow(1), "none", Family::kIPv6},
      {"to nowhere", "-j SNAT", 2, nat2(0)},
      {"a base without ports", "-j DNAT", 2, nat2(0x21)},
      {"random-fully, which DNAT does not print", "-j DNAT", 2, nat2(0x11)},
      {"a network", "-j DNAT", 2, nat2(0x41)},
      {"another revision", "-j DNAT", 3, nat2(1)},
      {"persistent", "-j REDIRECT", 0, old(2 | 8)},
      {"random-fully", "-j REDIRECT", 0, old(2 | 16)},
      {"persistently", "-j MASQUERADE", 0, old(8)},
      {"masquerade's revision", "-j MASQUERADE", 1, XtMasqueradeInfo(0)},
  });
}

TEST(XtDisplayTest, ShowsOtherTargetsOrNothing) {
  const auto log = [](uint8_t level, uint8_t flags, const std::string& prefix) {
    Bytes bytes(prefix.begin(), prefix.end());
    bytes.resize(30, 0);
    return Join({{level, flags}, bytes});
  };
  const auto nflog = [](uint32_t size, uint16_t group, uint16_t threshold, uint16_t flags,
                        size_t prefix = 0) {
    Bytes text(prefix, 'p');
    text.resize(64, 0);
    return Join({HostU32(size), HostU16(group), HostU16(threshold), HostU16(flags), HostU16(0),
                 text, Zeros(4)});
  };
  const Bytes marks = Join({HostU32(5), HostU32(7), HostU32(9)});
  ExpectTexts({
      {"an unknown flag", "-j LOG", 0, log(4, 0x10, "")},
      {"a prefix without an end", "-j LOG", 0, log(4, 0, std::string(30, 'x'))},
      {"no level", "-j LOG", 0, log(8, 0, "")},
      {"a log to netlink", "-j NFLOG", 0, nflog(0, 0, 0, 0), ""},
      {"to a group, with a prefix", "-j NFLOG", 0, nflog(0, 5, 0, 0, 1),
       " --nflog-prefix p --nflog-group 5"},
      {"a threshold", "-j NFLOG", 0, nflog(0, 0, 1, 0), " --nflog-threshold 1"},
      {"a size", "-j NFLOG", 0, nflog(1, 0, 0, 1), " --nflog-size 1"},
      {"a size of nothing", "-j NFLOG", 0, nflog(0, 0, 0, 1), ""},
      {"a size that does not count", "-j NFLOG", 0, nflog(1, 0, 0, 0)},
      {"an unknown flag", "-j NFLOG", 0, nflog(0, 0, 0, 2)},
      {"a size and an unknown flag", "-j NFLOG", 0, nflog(40, 0, 0, 3)},
      {"a prefix without an end", "-j NFLOG", 0, nflog(0, 0, 0, 0, 64)},
      {"an echo reply", "-j REJECT", 0, HostU32(4)},
      {"an unknown way", "-j REJECT", 0, HostU32(9)},
      {"a code that IPv6 does not have", "-j REJECT", 0, HostU32(2), "none", Family::kIPv6},
      {"its echo reply", "-j REJECT", 0, HostU32(5), "none", Family::kIPv6},
      {"an unknown way of IPv6", "-j REJECT", 0, HostU32(9), "none", Family::kIPv6},
      {"set", "-j CONNMARK", 1, Join({marks, {0}, Zeros(3)}), " --set-xmark 0x5/0x7"},
      {"save", "-j CONNMARK", 1, Join({marks, {1}, Zeros(3)}),
       " --save-mark --nfmask 0x9 --ctmask 0x7"},
      {"restore", "-j CONNMARK", 1, Join({marks, {2}, Zeros(3)}),
       " --restore-mark --nfmask 0x9 --ctmask 0x7"},
      {"an unknown mode", "-j CONNMARK", 1, Join({marks, {3}, Zeros(3)})},
      {"another direction", "-j CONNMARK", 2, Join({marks, {1, 0, 0, 0}})},
      {"shifted", "-j CONNMARK", 2, Join({marks, {0, 3, 0, 0}})},
      {"an older NOTRACK", "-j NOTRACK", 0, {}, ""},
  });
}

TEST(XtDisplayTest, ShowsWhatLeavesConnectionTracking) {
  for (const uint32_t revision : {0U, 1U, 2U}) {
    // Flags, zone, events, expected events, the helper's name; later the timeout's.
    const auto ct = [&](size_t at, const Bytes& value) {
      Bytes bytes = Join({HostU16(1), Zeros(revision > 0 ? 70 : 38)});
      std::copy(value.begin(), value.end(), bytes.begin() + static_cast<ptrdiff_t>(at));
      return bytes;
    };
    ExpectTexts({
        {"not tracked", "-j CT", revision, ct(0, HostU16(1)), " --notrack"},
        {"no flag", "-j CT", revision, ct(0, HostU16(0))},
        {"an alias alone", "-j CT", revision, ct(0, HostU16(2))},
        {"an unknown flag", "-j CT", revision, ct(0, HostU16(4))},
        {"a zone", "-j CT", revision, ct(2, HostU16(1))},
        {"events", "-j CT", revision, ct(4, HostU32(1))},
        {"expected events", "-j CT", revision, ct(8, HostU32(1))},
        {"a helper", "-j CT", revision, ct(12, {'x'})},
    });
    EXPECT_EQ(DisplayXtTarget(Family::kIPv4, "CT", revision, ct(0, HostU16(3))), "-j NOTRACK");
    if (revision > 0) ExpectTexts({{"a timeout", "-j CT", revision, ct(28, {'x'})}});
  }
}

TEST(LimitTextTest, TakesTheUnitThatLosesLittle) {
  const std::pair<uint64_t, std::string> periods[] = {
      {0, ""},
      {1, "10000/sec"},
      {124, "80/sec"},
      {7000, "123428/day"},
      {10000, "1/sec"},
      {120000, "5/min"},
      {600000, "1/min"},
      {600059, "1439/day"},
      {36000000, "1/hour"},
      {36003599, "23/day"},
      {864000000, "1/day"},
      {864000001, ""},
      {uint64_t{UINT32_MAX} + 1, ""},
  };
  for (const auto& [period, text] : periods) {
    EXPECT_EQ(LimitText(period, 5).value_or(""),
              text.empty() ? "" : absl::StrCat("-m limit --limit ", text))
        << period;
  }
  EXPECT_EQ(LimitText(10000, 7), "-m limit --limit 1/sec --limit-burst 7");
}

std::string Native(const std::string& name, const std::vector<Bytes>& attributes) {
  const Bytes bytes = Join(attributes);
  return DisplayNative(name, Attributes::Parse(bytes).value_or(Attributes()));
}

Bytes U64(uint64_t value) {
  return Join({U32(static_cast<uint32_t>(value >> 32)), U32(static_cast<uint32_t>(value))});
}

TEST(DisplayNativeTest, ShowsLimits) {
  const Bytes rate = Attr(1, U64(1));
  const Bytes unit = Attr(2, U64(1));
  const Bytes burst = Attr(3, 5);
  const Bytes million = Attr(1, U64(1000000));
  const std::string second = "-m limit --limit 1/sec";
  EXPECT_EQ(Native("limit", {rate, unit, burst}), second);
  EXPECT_EQ(Native("limit", {rate, unit, burst, Attr(4, 0), Attr(5, 0), Attr(6, Bytes())}), second);
  EXPECT_EQ(Native("limit", {unit, burst}), "");
  EXPECT_EQ(Native("limit", {rate, burst}), "");
  EXPECT_EQ(Native("limit", {rate, unit}), "");
  EXPECT_EQ(Native("limit", {rate, unit, burst, Attr(4, 1)}), "") << "bytes";
  EXPECT_EQ(Native("limit", {rate, unit, burst, Attr(5, 1)}), "") << "over the limit";
  EXPECT_EQ(Native("limit", {rate, unit, burst, Attr(7, 0)}), "") << "something new";
  EXPECT_EQ(Native("limit", {Attr(1, U64(0)), unit, burst}), "");
  EXPECT_EQ(Native("limit", {million, Attr(2, U64(UINT32_MAX)), burst}), "-m limit --limit 20/day");
  EXPECT_EQ(Native("limit", {million, Attr(2, U64(uint64_t{UINT32_MAX} + 1)), burst}), "");
}

TEST(DisplayNativeTest, ShowsLogsToAGroup) {
  const Bytes group = Attr(1, {0, 5});
  const Bytes size = Attr(3, 40);
  const Bytes threshold = Attr(4, {0, 7});
  EXPECT_EQ(Native("log", {group}), "-j NFLOG --nflog-group 5");
  EXPECT_EQ(Native("log", {group, size}), "-j NFLOG --nflog-group 5 --nflog-size 40");
  EXPECT_EQ(Native("log", {group, threshold}), "-j NFLOG --nflog-group 5 --nflog-threshold 7");
  EXPECT_EQ(Native("log", {group, Attr(4, 7)}), "") << "a threshold of four bytes";
  EXPECT_EQ(Native("log", {group, Attr(5, 4)}), "") << "a level";
  EXPECT_EQ(Native("log", {size}), "");
  EXPECT_EQ(Native("quota", {group}), "");
}

}  // namespace
}  // namespace kipt::netlink::xt_display_test
