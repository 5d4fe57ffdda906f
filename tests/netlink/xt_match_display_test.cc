// SPDX-License-Identifier: Apache-2.0
//
// Every option of the matches that are shown in iptables-save's words, and what has none.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "netlink/xt_display.h"
#include "tests/netlink/wire_bytes.h"

namespace kipt::netlink::xt_match_display_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

struct Row {
  Bytes info;
  std::string text;  // empty: none
  Family family = Family::kIPv4;
};

void ExpectTexts(const std::string& match, uint32_t revision, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    const auto text = DisplayXtMatch(row.family, match, revision, row.info);
    EXPECT_EQ(text.value_or(""), row.text.empty() ? "" : absl::StrCat("-m ", match, row.text))
        << ToHex(row.info);
  }
}

TEST(XtMatchDisplayTest, ShowsPorts) {
  const auto ports = [](uint16_t first, uint16_t last) {
    return Join({HostU16(first), HostU16(last)});
  };
  const Bytes all = ports(0, 0xffff);
  const auto tcp = [&](const Bytes& source, const Bytes& destination, const Bytes& rest) {
    return Join({source, destination, rest, Zeros(4)});
  };
  ExpectTexts("tcp", 0,
              {{tcp(ports(0, 100), all, Zeros(4)), " --sport 0:100"},
               {tcp(ports(5, 0xffff), all, Zeros(4)), " --sport 5:65535"},
               {tcp(ports(5, 6), ports(7, 7), {0, 0, 0, 1}), " ! --sport 5:6 --dport 7"},
               {tcp(all, all, {3, 0, 0, 0}), " --tcp-option 3"},
               {tcp(all, all, {0, 1, 0, 0}), " --tcp-flags FIN NONE"},
               {tcp(all, all, {0, 2, 1, 0}), " --tcp-flags SYN FIN"}});
  const auto udp = [&](const Bytes& source, const Bytes& destination, uint8_t inverted) {
    return Join({source, destination, {inverted}, Zeros(7)});
  };
  ExpectTexts("udp", 0,
              {{udp(ports(53, 53), all, 0), " --sport 53"},
               {udp(ports(53, 53), ports(54, 54), 1), " ! --sport 53 --dport 54"},
               {udp(ports(53, 53), ports(54, 54), 2), " --sport 53 ! --dport 54"}});
  const auto sctp = [&](uint32_t flags, uint32_t inverted) {
    return Join({ports(3, 3), ports(1, 2), Zeros(256 + 4 + 12 + 4), HostU32(flags),
                 HostU32(inverted), Zeros(4)});
  };
  ExpectTexts("sctp", 0,
              {{sctp(1, 0), " --sport 1:2"},
               {sctp(2, 0), " --dport 3"},
               {sctp(3, 1), " ! --sport 1:2 --dport 3"},
               {sctp(3, 2), " --sport 1:2 ! --dport 3"},
               {sctp(4, 0), ""}});
}

TEST(XtMatchDisplayTest, ShowsListsOfPorts) {
  const auto multiport = [](uint8_t flags, uint8_t count, uint8_t invert) {
    return Join({{flags, count}, HostU16(80), HostU16(90), Zeros(26), Zeros(15), {invert}});
  };
  ExpectTexts("multiport", 1,
              {{multiport(0, 1, 0), " --sports 80"},
               {multiport(1, 1, 0), " --dports 80"},
               {multiport(2, 1, 0), " --ports 80"},
               {multiport(2, 1, 1), " ! --ports 80"},
               {multiport(2, 1, 2), ""},
               {multiport(1, 15, 0), " --dports 80,90,0,0,0,0,0,0,0,0,0,0,0,0,0"}});
}

TEST(XtMatchDisplayTest, ShowsIcmpTypes) {
  ExpectTexts("icmp", 0,
              {{{8, 0, 0xff, 0}, " --icmp-type 8"},
               {{8, 0, 0xff, 1}, " ! --icmp-type 8"},
               {{8, 0, 0xff, 2}, ""},
               {{3, 4, 4, 0}, " --icmp-type 3/4"},
               {{3, 0, 0, 0}, " --icmp-type 3/0"},
               {{3, 4, 5, 0}, ""},
               {{3, 5, 0xff, 0}, ""},
               {{0xff, 0, 0xff, 0}, " --icmp-type any"},
               {{0xff, 1, 1, 0}, ""}});
  ExpectTexts("icmp6", 0, {{{128, 0, 0xff, 0}, " --icmpv6-type 128"}, {{0xff, 0, 0xff, 0}, ""}});
}

TEST(XtMatchDisplayTest, ShowsAddressTypes) {
  const auto types = [](uint16_t source, uint16_t destination, uint32_t flags) {
    return Join({HostU16(source), HostU16(destination), HostU32(flags)});
  };
  ExpectTexts("addrtype", 1,
              {{types(1, 0, 0), " --src-type UNSPEC"},
               {types(0, 1, 0), " --dst-type UNSPEC"},
               {types(4, 0, 4), " --src-type LOCAL --limit-iface-in"},
               {types(4, 0, 8), " --src-type LOCAL --limit-iface-out"}});
  const auto old = [](uint32_t not_source, uint32_t not_destination) {
    return Join({HostU16(4), HostU16(2), HostU32(not_source), HostU32(not_destination), Zeros(4)});
  };
  ExpectTexts("addrtype", 0,
              {{old(0, 0), " --src-type LOCAL --dst-type UNICAST"},
               {old(0, 1), " --src-type LOCAL ! --dst-type UNICAST"},
               {old(1, 0), " ! --src-type LOCAL --dst-type UNICAST"},
               {old(1, 1), " ! --src-type LOCAL ! --dst-type UNICAST"},
               {old(2, 0), ""},
               {old(0, 2), ""}});
}

TEST(XtMatchDisplayTest, ShowsWhatCountsPackets) {
  const auto nth = [](uint16_t flags) {
    return Join({HostU16(1), HostU16(flags), HostU32(2), HostU32(1), HostU32(0), Zeros(8)});
  };
  ExpectTexts("statistic", 0, {{nth(1), " --mode nth ! --every 3 --packet 1"}, {nth(2), ""}});
  ExpectTexts("limit", 0,
              {{Join({HostU32(10000), HostU32(5), Zeros(32)}), " --limit 1/sec"},
               {Join({HostU32(0), HostU32(5), Zeros(32)}), ""}});
  const auto connmark = [](uint32_t mask, uint8_t invert) {
    return Join({HostU32(1), HostU32(mask), {invert}, Zeros(3)});
  };
  ExpectTexts("connmark", 1,
              {{connmark(3, 0), " --mark 0x1/0x3"},
               {connmark(0xffffffff, 0), " --mark 0x1"},
               {connmark(3, 1), " ! --mark 0x1/0x3"},
               {connmark(3, 2), ""}});
}

TEST(XtMatchDisplayTest, ShowsWhatWasSeenRecently) {
  struct Seen {
    uint8_t mode;
    uint32_t seconds = 0;
    uint32_t hits = 0;
    uint8_t invert = 0;
    uint8_t side = 0;
  };
  const auto recent = [](const Seen& seen) {
    Bytes name = Text("SEP");
    name.resize(200, 0);
    return Join({HostU32(seen.seconds),
                 HostU32(seen.hits),
                 {seen.mode, seen.invert},
                 name,
                 {seen.side, 0},
                 FromHex("ffffffff"),
                 Zeros(16)});
  };
  const std::string tail = " --name SEP --mask 255.255.255.255 --rsource";
  ExpectTexts("recent", 1,
              {{recent({.mode = 1}), " --rcheck" + tail},
               {recent({.mode = 2}), " --set" + tail},
               {recent({.mode = 4}), " --update" + tail},
               {recent({.mode = 8}), " --remove" + tail},
               {recent({.mode = 2, .invert = 1}), " ! --set" + tail},
               {recent({.mode = 2, .invert = 2}), ""},
               {recent({.mode = 1, .hits = 1}), " --rcheck --hitcount 1" + tail},
               {recent({.mode = 1, .seconds = 1}), " --rcheck --seconds 1" + tail},
               {recent({.mode = 0x11}), " --rcheck --rttl" + tail},
               {recent({.mode = 2, .side = 1}), " --set --name SEP --mask 255.255.255.255 --rdest"},
               {recent({.mode = 2, .side = 2}), ""}});
}

TEST(XtMatchDisplayTest, ShowsPortsOfBridges) {
  struct Device {
    std::string name = "eth0";
    Bytes mask = Bytes(5, 0xff);
  };
  const auto physdev = [](const Device& in, const Device& out, uint8_t invert, uint8_t bitmask) {
    Bytes info;
    for (const Device& device : {in, out}) {
      Bytes name(device.name.begin(), device.name.end());
      name.resize(16, 0);
      Bytes mask = device.mask;
      mask.resize(16, 0);
      info = Join({info, name, mask});
    }
    return Join({info, {invert, bitmask}, Zeros(6)});
  };
  const Device eth0;
  const Device veth = {.name = "veth", .mask = Bytes(4, 0xff)};
  Bytes hole(6, 0xff);
  hole[2] = 0;
  Bytes later(7, 0xff);
  later[5] = 0;
  ExpectTexts("physdev", 0,
              {{physdev(eth0, veth, 0, 1), " --physdev-in eth0"},
               {physdev(eth0, veth, 1, 1), " ! --physdev-in eth0"},
               {physdev(eth0, veth, 0, 2), " --physdev-out veth+"},
               {physdev(eth0, veth, 0, 3), " --physdev-in eth0 --physdev-out veth+"},
               {physdev(eth0, veth, 0, 4), " --physdev-is-bridged"},
               {physdev(eth0, veth, 4, 4), " ! --physdev-is-bridged"},
               {physdev(eth0, veth, 0, 8), " --physdev-is-in"},
               {physdev(eth0, veth, 0, 16), " --physdev-is-out"},
               {physdev(eth0, veth, 0, 32), ""},
               {physdev({.name = "eth0", .mask = Bytes(3, 0xff)}, veth, 0, 1), ""},
               {physdev({.name = "eth0", .mask = hole}, veth, 0, 1), ""},
               {physdev({.name = "eth0", .mask = later}, veth, 0, 1), ""},
               {physdev({.name = "e", .mask = {}}, veth, 0, 1), ""},
               {physdev({.name = "", .mask = {}}, veth, 0, 1), ""},
               // All of the mask, and what follows it looks like more.
               {physdev({.name = "eth0", .mask = Bytes(16, 0xff)},
                        {.name = std::string(16, '\xff'), .mask = Bytes(16, 0xff)}, 0, 1),
                " --physdev-in eth0"}});
}

Bytes PortsOf(bool high) {
  return high ? Join({HostU16(2), HostU16(4), HostU16(6), HostU16(8)})
              : Join({HostU16(1), HostU16(3), HostU16(5), HostU16(7)});
}

TEST(XtMatchDisplayTest, ShowsEachOptionOfConntrack) {
  const auto info = [](uint16_t flags, uint16_t inverted, uint16_t states, uint16_t status) {
    const auto address = [](const char* hex, const char* mask) {
      return Join({FromHex(hex), Zeros(12), FromHex(mask), Zeros(12)});
    };
    return Join({address("0a000000", "ff000000"), address("0a010000", "ffff0000"),
                 address("0a020300", "ffffff00"), address("0a020304", "ffffffff"), HostU32(5),
                 HostU32(7), HostU16(6), PortsOf(false), HostU16(flags), HostU16(inverted),
                 HostU16(states), HostU16(status), PortsOf(true), Zeros(6)});
  };
  const std::pair<uint16_t, std::string> options[] = {{0x1, "--ctstate NEW"},
                                                      {0x2, "--ctproto 6"},
                                                      {0x4, "--ctorigsrc 10.0.0.0/8"},
                                                      {0x8, "--ctorigdst 10.1.0.0/16"},
                                                      {0x10, "--ctreplsrc 10.2.3.0/24"},
                                                      {0x20, "--ctrepldst 10.2.3.4"},
                                                      {0x40, "--ctstatus ASSURED"},
                                                      {0x80, "--ctexpire 5:7"},
                                                      {0x100, "--ctorigsrcport 1:2"},
                                                      {0x200, "--ctorigdstport 3:4"},
                                                      {0x400, "--ctreplsrcport 5:6"},
                                                      {0x800, "--ctrepldstport 7:8"}};
  for (const auto& [flag, text] : options) {
    ExpectTexts("conntrack", 3,
                {{info(flag, 0, 8, 4), " " + text}, {info(flag, flag, 8, 4), " ! " + text}});
  }
  ExpectTexts("conntrack", 3,
              {{info(0x1000, 0, 8, 4), " --ctdir ORIGINAL"},
               {info(0x1000, 0x1000, 8, 4), " --ctdir REPLY"},
               {info(0x1001, 1, 8, 4), " ! --ctstate NEW --ctdir ORIGINAL"},
               {info(0x1001, 0x1001, 8, 4), " ! --ctstate NEW --ctdir REPLY"},
               {info(0x1, 0, 0x10, 0), ""},
               {info(0x40, 0, 8, 0), " --ctstatus NONE"},
               {info(0x40, 0, 8, 1), " --ctstatus EXPECTED"},
               {info(0x40, 0, 8, 0x10), ""}});
}

TEST(XtMatchDisplayTest, ShowsConntracksAddressesOfBothFamilies) {
  const auto info = [](const Bytes& address, Bytes mask) {
    mask.resize(16, 0);
    return Join({address, mask, Zeros(96 + 8 + 2), PortsOf(false), HostU16(4), HostU16(0), Zeros(4),
                 PortsOf(true), Zeros(6)});
  };
  const Bytes four = Join({FromHex("80000000"), Zeros(12)});
  const Bytes six = Join({FromHex("fd00"), Zeros(13), {1}});
  ExpectTexts("conntrack", 3,
              {{info(four, Bytes(4, 0xff)), " --ctorigsrc 128.0.0.0"},
               {info(four, {0x80}), " --ctorigsrc 128.0.0.0/1"},
               {info(four, {}), ""},
               {info(four, {0xff, 0, 0xff}), ""},
               {info(six, Bytes(16, 0xff)), " --ctorigsrc fd00::1", Family::kIPv6},
               {info(six, Bytes(8, 0xff)), " --ctorigsrc fd00::1/64", Family::kIPv6}});
}

TEST(XtMatchDisplayTest, ShowsThePortsOfOlderRevisionsOfConntrack) {
  const auto info = [](uint16_t flags, uint32_t revision) {
    return Join({Zeros(128 + 8 + 2),
                 {0, 80, 0, 81, 0, 82, 0, 83},
                 HostU16(flags),
                 HostU16(0),
                 revision == 1 ? Bytes{0, 0} : Zeros(6)});
  };
  for (const uint32_t revision : {1U, 2U}) {
    ExpectTexts("conntrack", revision,
                {{info(0x100, revision), " --ctorigsrcport 80"},
                 {info(0x200, revision), " --ctorigdstport 81"},
                 {info(0x400, revision), " --ctreplsrcport 82"},
                 {info(0x800, revision), " --ctrepldstport 83"}});
  }
}

}  // namespace
}  // namespace kipt::netlink::xt_match_display_test
