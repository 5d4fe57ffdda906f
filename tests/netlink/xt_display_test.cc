// SPDX-License-Identifier: Apache-2.0
//
// What the kernel test of surveys cannot show: blobs that iptables does not write, and any bytes.
// (That the texts are iptables-save's is tested there, against the program.)
#include "netlink/xt_display.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "netlink/xt_info.h"
#include "tests/netlink/wire_bytes.h"

namespace kipt::netlink {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

struct Row {
  std::string name;
  bool is_target;
  std::string extension;
  uint32_t revision;
  Bytes info;
  std::string text;  // empty: none
  Family family = Family::kIPv4;
};

void ExpectTexts(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    const auto text = row.is_target
                          ? DisplayXtTarget(row.family, row.extension, row.revision, row.info)
                          : DisplayXtMatch(row.family, row.extension, row.revision, row.info);
    EXPECT_EQ(text.value_or(""), row.text) << row.name;
  }
}

Bytes Tcp(uint8_t option, uint8_t mask, uint8_t flags, uint8_t inverted) {
  return Join({HostU16(0),
               HostU16(0xffff),
               HostU16(80),
               HostU16(90),
               {option, mask, flags, inverted},
               Zeros(4)});
}

TEST(XtDisplayTest, ShowsTcpAndUdpOrNothing) {
  const Bytes all_ports = Join({HostU16(0), HostU16(0xffff)});
  ExpectTexts({
      {"ports", false, "tcp", 0, Tcp(0, 0, 0, 0), "-m tcp --dport 80:90"},
      {"not these ports", false, "tcp", 0, Tcp(0, 0, 0, 2), "-m tcp ! --dport 80:90"},
      {"flags", false, "tcp", 0, Tcp(3, 0x17, 2, 4 | 8),
       "-m tcp --dport 80:90 ! --tcp-option 3 ! --tcp-flags FIN,SYN,RST,ACK SYN"},
      {"a flag without a name", false, "tcp", 0, Tcp(0, 0x40, 0, 0), ""},
      {"an unknown inversion", false, "tcp", 0, Tcp(0, 0, 0, 0x10), ""},
      {"not any source port", false, "tcp", 0, Tcp(0, 0, 0, 1), ""},
      {"another revision", false, "tcp", 1, Tcp(0, 0, 0, 0), ""},
      {"udp", false, "udp", 0, Join({all_ports, HostU16(53), HostU16(53), {0}, Zeros(7)}),
       "-m udp --dport 53"},
      {"udp's unknown inversion", false, "udp", 0, Join({all_ports, all_ports, {4}, Zeros(7)}), ""},
  });
}

TEST(XtDisplayTest, ShowsListsAndTypesOrNothing) {
  const auto multiport = [](uint8_t flags, uint8_t count, uint8_t range, uint8_t invert) {
    return Join(
        {{flags, count}, HostU16(80), HostU16(90), Zeros(26), {range}, Zeros(14), {invert}});
  };
  const auto types = [](uint16_t source, uint16_t destination, uint32_t flags) {
    return Join({HostU16(source), HostU16(destination), HostU32(flags)});
  };
  ExpectTexts({
      {"two ports", false, "multiport", 1, multiport(1, 2, 0, 0), "-m multiport --dports 80,90"},
      {"a range", false, "multiport", 1, multiport(0, 2, 1, 1), "-m multiport ! --sports 80:90"},
      {"half a range", false, "multiport", 1, multiport(0, 1, 1, 0), ""},
      {"no port", false, "multiport", 1, multiport(0, 0, 0, 0), ""},
      {"too many ports", false, "multiport", 1, multiport(0, 16, 0, 0), ""},
      {"an unknown kind", false, "multiport", 1, multiport(3, 1, 0, 0), ""},
      {"types", false, "addrtype", 1, types(4, 6, 2),
       "-m addrtype --src-type LOCAL ! --dst-type UNICAST,LOCAL"},
      {"of revision 0", false, "addrtype", 0,
       Join({HostU16(4), HostU16(2), HostU32(1), HostU32(0), Zeros(4)}),
       "-m addrtype ! --src-type LOCAL --dst-type UNICAST"},
      {"a type without a name", false, "addrtype", 1, types(0x1000, 0, 0), ""},
      {"an unknown flag", false, "addrtype", 1, types(4, 0, 0x10), ""},
      {"an inversion of nothing", false, "addrtype", 1, types(4, 0, 2), ""},
  });
}

TEST(XtDisplayTest, ShowsWhatRemembersOrNothing) {
  const auto recent = [](uint8_t mode, const std::string& name, uint32_t seconds = 0) {
    Bytes text(name.begin(), name.end());
    text.resize(200, 0);
    return Join({HostU32(seconds),
                 HostU32(0),
                 {mode, 0},
                 text,
                 {0},
                 Zeros(1),
                 FromHex("ffffffff"),
                 Zeros(12),
                 Zeros(4)});
  };
  const auto nth = [](uint16_t mode, uint32_t every, uint32_t packet) {
    return Join({HostU16(mode), HostU16(0), HostU32(every), HostU32(packet), HostU32(0), Zeros(8)});
  };
  const std::string tail = " --mask 255.255.255.255 --rsource";
  ExpectTexts({
      {"set", false, "recent", 1, recent(2, "SEP"), "-m recent --set --name SEP" + tail},
      {"reap", false, "recent", 1, recent(0x21, "SEP", 9),
       "-m recent --rcheck --seconds 9 --reap --name SEP" + tail},
      {"reap of no age", false, "recent", 1, recent(0x21, "SEP"), ""},
      {"two modes", false, "recent", 1, recent(3, "SEP"), ""},
      {"no mode", false, "recent", 1, recent(0, "SEP"), ""},
      {"an unknown flag", false, "recent", 1, recent(0x41, "SEP"), ""},
      {"no name", false, "recent", 1, recent(2, ""), ""},
      {"a name that needs quotes", false, "recent", 1, recent(2, "a b"), ""},
      {"a name without an end", false, "recent", 1, recent(2, std::string(200, 'x')), ""},
      {"every third", false, "statistic", 0, nth(1, 2, 1),
       "-m statistic --mode nth --every 3 --packet 1"},
      {"half", false, "statistic", 0, nth(0, 0x40000000, 0),
       "-m statistic --mode random --probability 0.50000000000"},
      {"every 2^32th", false, "statistic", 0, nth(1, 0xffffffff, 0), ""},
      {"an unknown mode", false, "statistic", 0, nth(2, 0, 0), ""},
      {"counted", false, "nfacct", 1, Join({Text("invalid"), Zeros(24), Zeros(8)}),
       "-m nfacct --nfacct-name  invalid"},
  });
}

TEST(XtDisplayTest, ShowsConntrackOfAllRevisionsOrNothing) {
  const auto conntrack = [](uint16_t flags, uint16_t inverted, const Bytes& rest) {
    return Join({FromHex("0a000000"),
                 Zeros(12),
                 FromHex("ff000000"),
                 Zeros(12),
                 Zeros(96),
                 HostU32(5),
                 HostU32(7),
                 HostU16(6),
                 {0, 80, 0, 81, 0, 82, 0, 83},
                 HostU16(flags),
                 HostU16(inverted),
                 rest});
  };
  const Bytes one = {6, 4};
  const Bytes two = Join({HostU16(6), HostU16(4), Zeros(2)});
  ExpectTexts({
      {"revision 1", false, "conntrack", 1, conntrack(0x147, 0x4, one),
       "-m conntrack --ctstate RELATED,ESTABLISHED --ctproto 6 ! --ctorigsrc 10.0.0.0/8 "
       "--ctorigsrcport 80 --ctstatus ASSURED"},
      {"revision 2", false, "conntrack", 2, conntrack(0x1280, 0x1000, two),
       "-m conntrack --ctorigdstport 81 --ctexpire 5:7 --ctdir REPLY"},
      {"the older name", false, "conntrack", 2, conntrack(0x2001, 0, two), ""},
      {"an inversion of nothing", false, "conntrack", 2, conntrack(1, 2, two), ""},
      {"another revision", false, "conntrack", 4, conntrack(1, 0, two), ""},
  });
}

TEST(XtDisplayTest, ShowsTargetsOrNothing) {
  const auto nat2 = [](uint32_t flags) {
    return Join({HostU32(flags),
                 FromHex("0a000001"),
                 Zeros(12),
                 FromHex("0a000001"),
                 Zeros(12),
                 {0, 80, 0, 90, 0, 7},
                 Zeros(6)});
  };
  const auto log = [](uint8_t level, uint8_t flags, const std::string& prefix) {
    Bytes bytes(prefix.begin(), prefix.end());
    bytes.resize(30, 0);
    return Join({{level, flags}, bytes});
  };
  const auto connmark = [](uint8_t direction, uint8_t shift, uint8_t mode) {
    return Join({HostU32(5), HostU32(7), HostU32(9), {direction, shift, mode}, Zeros(1)});
  };
  ExpectTexts({
      {"an address", true, "DNAT", 2, nat2(1), "-j DNAT --to-destination 10.0.0.1"},
      {"shifted ports", true, "DNAT", 2, nat2(0x2a),
       "-j DNAT --to-destination :80-90/7 --persistent"},
      {"a base without ports", true, "DNAT", 2, nat2(0x21), ""},
      {"to nowhere", true, "DNAT", 2, nat2(0), ""},
      {"random-fully, which DNAT does not print", true, "DNAT", 2, nat2(0x11), ""},
      {"a network", true, "DNAT", 2, nat2(0x41), ""},
      {"another revision", true, "DNAT", 3, nat2(1), ""},
      {"revision 0 in IPv6", true, "SNAT", 0, XtMasqueradeInfo(1), "", Family::kIPv6},
      {"revision 0", true, "SNAT", 0, XtMasqueradeInfo(1), "-j SNAT --to-source 0.0.0.0"},
      {"two ranges", true, "SNAT", 0, XtMasqueradeInfo(1, 2), ""},
      {"masquerade's revision", true, "MASQUERADE", 1, XtMasqueradeInfo(0), ""},
      {"a log", true, "LOG", 0, log(4, 0, ""), "-j LOG"},
      {"a log with all", true, "LOG", 0, log(7, 0x2f, "x: "),
       "-j LOG --log-prefix \"x: \" --log-level 7 --log-tcp-sequence --log-tcp-options "
       "--log-ip-options --log-uid --log-macdecode"},
      {"an unknown flag", true, "LOG", 0, log(4, 0x10, ""), ""},
      {"a prefix without an end", true, "LOG", 0, log(4, 0, std::string(30, 'x')), ""},
      {"no level", true, "LOG", 0, log(8, 0, ""), ""},
      {"reject", true, "REJECT", 0, HostU32(3), "-j REJECT --reject-with icmp-port-unreachable"},
      {"reject 6", true, "REJECT", 0, HostU32(3), "-j REJECT --reject-with icmp6-addr-unreachable",
       Family::kIPv6},
      {"a code that IPv6 does not have", true, "REJECT", 0, HostU32(2), "", Family::kIPv6},
      {"an echo reply", true, "REJECT", 0, HostU32(4), ""},
      {"an unknown way", true, "REJECT", 0, HostU32(9), ""},
      {"restore", true, "CONNMARK", 2, connmark(0, 0, 2),
       "-j CONNMARK --restore-mark --nfmask 0x9 --ctmask 0x7"},
      {"shifted", true, "CONNMARK", 2, connmark(1, 3, 2), ""},
      {"an unknown mode", true, "CONNMARK", 2, connmark(0, 0, 3), ""},
      {"an older NOTRACK", true, "NOTRACK", 0, {}, "-j NOTRACK"},
      {"a zone", true, "CT", 0, Join({HostU16(0), HostU16(1), Zeros(36)}), ""},
      {"a helper", true, "CT", 0, Join({HostU16(1), Zeros(10), Text("ftp"), Zeros(20)}), ""},
  });
}

// Every name that is known here, with every size and much content: nothing is read that is not
// there (a sanitizer sees it), and no text holds what would break a line.
TEST(XtDisplayTest, TakesAnyBytes) {
  const std::vector<std::string> matches = {
      "addrtype", "connmark", "conntrack", "icmp",      "icmp6", "limit", "multiport", "nfacct",
      "physdev",  "recent",   "sctp",      "statistic", "tcp",   "udp",   "mark",      "socket"};
  const std::vector<std::string> targets = {"CONNMARK", "CT",     "DNAT",       "LOG",      "NFLOG",
                                            "NOTRACK",  "REJECT", "MASQUERADE", "REDIRECT", "SNAT",
                                            "SET",      "TCPMSS", "TPROXY",     "MARK"};
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): the same every time
  int texts = 0;
  const auto look = [&](const Bytes& info) {
    for (const Family family : kFamilies) {
      for (uint32_t revision = 0; revision < 4; ++revision) {
        for (const std::string& name : matches) {
          if (const auto text = DisplayXtMatch(family, name, revision, info)) {
            ++texts;
            EXPECT_EQ(text->find('\0'), std::string::npos);
          }
          (void)MarksOfXtMatch(name, revision, info);
        }
        for (const std::string& name : targets) {
          if (const auto text = DisplayXtTarget(family, name, revision, info)) {
            ++texts;
            EXPECT_EQ(text->find('\0'), std::string::npos);
          }
          (void)MarksOfXtTarget(name, revision, info);
        }
      }
    }
  };
  for (size_t size = 0; size <= 340; ++size) {
    look(Bytes(size, 0));
    look(Bytes(size, 0xff));
    Bytes info(size);
    for (uint8_t& byte : info) byte = static_cast<uint8_t>(random() % 8);
    look(info);
  }
  EXPECT_GT(texts, 100);
}

TEST(XtMarksTest, KnowsWhichBitsAndLabelsARuleMayTurnOn) {
  struct MarkRow {
    std::string name;
    std::string extension;
    Bytes info;
    Marks marks;
    uint32_t revision = 0;
    bool is_target = false;
  };
  constexpr Marks kNone;
  const Marks kAll = {.tested = kAllMarks, .set = kAllMarks, .labels_set = AllConnLabels()};
  const auto label = [](size_t number) { return ConnLabelSet().set(number); };
  const auto connmark = [](uint8_t shift, uint8_t mode) {
    return Join({HostU32(5), HostU32(6), HostU32(9), {0, shift, mode}, Zeros(1)});
  };
  const std::vector<MarkRow> rows = {
      {"mark", "mark", XtMarkInfo(1, 3, 0), {.tested = 3}, 1},
      {"mark 0", "mark", XtMarkInfo(1, 3, 0), {.tested = kAllMarks}},
      {"half a mark", "mark", Zeros(4), {.tested = kAllMarks}, 1},
      {"connmark", "connmark", Zeros(16), kNone, 1},
      {"socket", "socket", {1}, kNone, 3},
      {"a socket's mark", "socket", {4}, {.set = kAllMarks, .cleared = kAllMarks}, 3},
      {"a socket's unknown flag", "socket", {8}, {.set = kAllMarks}, 3},
      {"rpfilter", "rpfilter", {8}, kNone},
      {"rpfilter by the mark", "rpfilter", {2}, {.tested = kAllMarks}},
      {"a program", "bpf", {}, {.tested = kAllMarks}, 1},
      {"MARK", "MARK", XtSetMarkInfo(5, 7), {.set = 5, .cleared = 2}, 2, true},
      {"MARK of old", "MARK", XtSetMarkInfo(5, 7), {.set = kAllMarks}, 0, true},
      {"restore", "CONNMARK", connmark(0, 2), {.set = 6, .cleared = 0xf}, 2, true},
      {"restore, shifted", "CONNMARK", connmark(1, 2), {.set = 12, .cleared = 13}, 2, true},
      {"save", "CONNMARK", connmark(0, 1), {.tested = 9}, 2, true},
      {"set the connection's", "CONNMARK", connmark(0, 0), kNone, 2, true},
      {"an unknown mode", "CONNMARK", connmark(0, 3), kAll, 2, true},
      {"an unknown revision", "CONNMARK", connmark(0, 0), kAll, 3, true},
      {"TPROXY",
       "TPROXY",
       Join({HostU32(0xf), HostU32(2), Zeros(24)}),
       {.set = 2, .cleared = 13},
       1,
       true},
      {"TPROXY of IPv4 only",
       "TPROXY",
       Join({HostU32(0xf), HostU32(2), Zeros(8)}),
       {.set = 2, .cleared = 13},
       0,
       true},
      {"SET", "SET", {}, kNone, 2, true},
      {"SET --map-mark",
       "SET",
       Join({Zeros(12), HostU32(0x100), Zeros(4)}),
       {.set = kAllMarks},
       3,
       true},
      {"SET of 3", "SET", Zeros(20), kNone, 3, true},
      {"TOS", "TOS", {}, kNone, 1, true},
      {"NFQUEUE", "NFQUEUE", {}, kAll, 3, true},
      {"HMARK", "HMARK", {}, {.set = kAllMarks, .cleared = kAllMarks}, 0, true},
      {"the target of ebtables", "mark", {}, kAll, 0, true},
      {"a label", "connlabel", Join({HostU16(114), HostU16(0)}), kNone},
      {"a label set", "connlabel", Join({HostU16(114), HostU16(2)}), {.labels_set = label(114)}},
      {"a label set, negated",
       "connlabel",
       Join({HostU16(3), HostU16(3)}),
       {.labels_set = label(3)}},
      {"a label beyond the last",
       "connlabel",
       Join({HostU16(128), HostU16(2)}),
       {.labels_set = AllConnLabels()}},
      {"half a label", "connlabel", {3, 0}, {.labels_set = AllConnLabels()}},
      {"a label of later",
       "connlabel",
       Join({HostU16(3), HostU16(0)}),
       {.labels_set = AllConnLabels()},
       1},
      {"a match of later", "brandnew", {}, {.tested = kAllMarks, .labels_set = AllConnLabels()}},
  };
  for (const MarkRow& row : rows) {
    EXPECT_EQ(row.is_target ? MarksOfXtTarget(row.extension, row.revision, row.info)
                            : MarksOfXtMatch(row.extension, row.revision, row.info),
              row.marks)
        << row.name;
  }
}

}  // namespace
}  // namespace kipt::netlink
