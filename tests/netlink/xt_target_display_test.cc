// SPDX-License-Identifier: Apache-2.0
//
// Every option of the targets that are shown in iptables-save's words, the expressions that
// iptables-nft writes instead of extensions, and what has none.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "netlink/attributes.h"
#include "netlink/xt_display.h"
#include "tests/netlink/wire_bytes.h"

namespace kipt::netlink::xt_target_display_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

struct Row {
  Bytes info;
  std::string text;  // after "-j TARGET"
  bool shown = true;
};

void ExpectTexts(const std::string& target, uint32_t revision, const std::vector<Row>& rows,
                 Family family = Family::kIPv4) {
  for (const Row& row : rows) {
    const auto text = DisplayXtTarget(family, target, revision, row.info);
    EXPECT_EQ(text.value_or("none"),
              row.shown ? absl::StrCat("-j ", target, row.text) : std::string("none"))
        << ToHex(row.info);
  }
}

Row None(const Bytes& info) { return {info, "", false}; }

// ---- network address translation: flags 1 addresses, 2 ports, 4 random, 8 persistent,
// 16 random-fully, 32 a base ----

Bytes OldRange(uint32_t flags, uint8_t last = 9, uint8_t last_port = 90) {
  return Join(
      {HostU32(1), HostU32(flags), {10, 0, 0, 1, 10, 0, 0, last}, {0, 80, 0, last_port}, Zeros(4)});
}

Bytes Range(uint32_t flags, const Bytes& first, const Bytes& last, const Bytes& end) {
  Bytes low = first;
  Bytes high = last;
  low.resize(16, 0);
  high.resize(16, 0);
  return Join({HostU32(flags), low, high, {0, 80, 0, 90}, end});
}
Bytes Range4(uint32_t flags) {
  return Range(flags, {10, 0, 0, 1}, {10, 0, 0, 9}, Join({{0, 7}, Zeros(6)}));
}

TEST(XtTargetDisplayTest, ShowsNatOfIpv4) {
  ExpectTexts("SNAT", 0,
              {{OldRange(3), " --to-source 10.0.0.1-10.0.0.9:80-90"},
               {OldRange(3, 1, 80), " --to-source 10.0.0.1:80"},
               {OldRange(1), " --to-source 10.0.0.1-10.0.0.9"},
               {OldRange(2), " --to-source :80-90"}});
  ExpectTexts("SNAT", 2,
              {{Range4(1 | 4), " --to-source 10.0.0.1-10.0.0.9 --random"},
               {Range4(1 | 8), " --to-source 10.0.0.1-10.0.0.9 --persistent"},
               {Range4(1 | 16), " --to-source 10.0.0.1-10.0.0.9 --random-fully"},
               {Range4(3 | 32), " --to-source 10.0.0.1-10.0.0.9:80-90/7"},
               None(Range4(0))});
  ExpectTexts("DNAT", 2,
              {{Range4(1 | 4), " --to-destination 10.0.0.1-10.0.0.9 --random"},
               {Range4(1 | 8), " --to-destination 10.0.0.1-10.0.0.9 --persistent"},
               None(Range4(1 | 16))});
  ExpectTexts("REDIRECT", 0,
              {{OldRange(0), ""},
               {OldRange(2), " --to-ports 80-90"},
               {OldRange(2, 9, 80), " --to-ports 80"},
               {OldRange(2 | 4), " --to-ports 80-90 --random"},
               {OldRange(4), " --random"},
               None(OldRange(2 | 8)),
               None(OldRange(2 | 16))});
  ExpectTexts("MASQUERADE", 0,
              {{OldRange(0), ""},
               {OldRange(2), " --to-ports 80-90"},
               {OldRange(4), " --random"},
               {OldRange(16), " --random-fully"},
               None(OldRange(8))});
}

TEST(XtTargetDisplayTest, ShowsNatOfIpv6) {
  const Bytes one = Join({FromHex("fd00"), Zeros(13), {1}});
  const auto narrow = [&](uint32_t flags) { return Range(flags, one, one, {}); };
  const auto wide = [&](uint32_t flags) { return Range(flags, one, one, Zeros(8)); };
  for (const uint32_t revision : {1U, 2U}) {
    const auto range = [&](uint32_t flags) { return revision == 1 ? narrow(flags) : wide(flags); };
    ExpectTexts("SNAT", revision,
                {{range(1), " --to-source fd00::1"},
                 {range(3), " --to-source [fd00::1]:80-90"},
                 {range(2), " --to-source :80-90"}},
                Family::kIPv6);
  }
  ExpectTexts("MASQUERADE", 0, {{narrow(2), " --to-ports 80-90"}, {narrow(0), ""}}, Family::kIPv6);
  ExpectTexts("MASQUERADE", 1, {None(narrow(2))}, Family::kIPv6);
  ExpectTexts("SNAT", 0, {None(narrow(1))}, Family::kIPv6);
}

// ---- other targets ----

TEST(XtTargetDisplayTest, ShowsEachWayToReject) {
  const std::vector<std::string> four = {"icmp-net-unreachable",
                                         "icmp-host-unreachable",
                                         "icmp-proto-unreachable",
                                         "icmp-port-unreachable",
                                         "",
                                         "icmp-net-prohibited",
                                         "icmp-host-prohibited",
                                         "tcp-reset",
                                         "icmp-admin-prohibited",
                                         ""};
  const std::vector<std::string> six = {"icmp6-no-route",
                                        "icmp6-adm-prohibited",
                                        "",
                                        "icmp6-addr-unreachable",
                                        "icmp6-port-unreachable",
                                        "",
                                        "tcp-reset",
                                        "icmp6-policy-fail",
                                        "icmp6-reject-route",
                                        ""};
  for (uint32_t code = 0; code < four.size(); ++code) {
    const auto row = [&](const std::string& name) {
      return Row{HostU32(code), " --reject-with " + name, !name.empty()};
    };
    ExpectTexts("REJECT", 0, {row(four[code])}, Family::kIPv4);
    ExpectTexts("REJECT", 0, {row(six[code])}, Family::kIPv6);
  }
}

TEST(XtTargetDisplayTest, ShowsLogs) {
  const auto log = [](uint8_t flags) { return Join({{4, flags}, Zeros(30)}); };
  ExpectTexts("LOG", 0,
              {{log(1), " --log-tcp-sequence"},
               {log(2), " --log-tcp-options"},
               {log(4), " --log-ip-options"},
               {log(8), " --log-uid"},
               {log(0x20), " --log-macdecode"}});
  const auto nflog = [](uint32_t size, uint16_t group, uint16_t threshold, uint16_t flags,
                        size_t prefix = 0) {
    Bytes text(prefix, 'p');
    text.resize(64, 0);
    return Join({HostU32(size), HostU16(group), HostU16(threshold), HostU16(flags), HostU16(0),
                 text, Zeros(4)});
  };
  ExpectTexts("NFLOG", 0,
              {{nflog(0, 0, 0, 0), ""},
               {nflog(0, 1, 0, 0), " --nflog-group 1"},
               {nflog(0, 5, 0, 0, 1), " --nflog-prefix p --nflog-group 5"},
               {nflog(0, 0, 1, 0), " --nflog-threshold 1"},
               {nflog(1, 0, 0, 1), " --nflog-size 1"},
               {nflog(0, 0, 0, 1), ""},
               None(nflog(1, 0, 0, 0)),
               None(nflog(40, 0, 0, 0)),
               None(nflog(0, 0, 0, 2)),
               None(nflog(40, 0, 0, 3)),
               None(nflog(0, 0, 0, 0, 64))});
}

TEST(XtTargetDisplayTest, ShowsMarksOfConnections) {
  const Bytes marks = Join({HostU32(5), HostU32(7), HostU32(9)});
  const auto one = [&](uint8_t mode) { return Join({marks, {mode}, Zeros(3)}); };
  ExpectTexts("CONNMARK", 1,
              {{one(0), " --set-xmark 0x5/0x7"},
               {one(1), " --save-mark --nfmask 0x9 --ctmask 0x7"},
               {one(2), " --restore-mark --nfmask 0x9 --ctmask 0x7"},
               None(one(3))});
  ExpectTexts("CONNMARK", 2,
              {{Join({marks, {0, 0, 0, 0}}), " --set-xmark 0x5/0x7"},
               None(Join({marks, {1, 0, 0, 0}})),
               None(Join({marks, {0, 3, 0, 0}}))});
}

TEST(XtTargetDisplayTest, ShowsWhatLeavesConnectionTracking) {
  struct Tracked {
    uint16_t flags = 1;
    uint16_t zone = 0;
    uint32_t events = 0;
    uint32_t expected = 0;
    uint8_t helper = 0;
    uint8_t timeout = 0;
  };
  const auto ct = [](const Tracked& ct, uint32_t revision) {
    Bytes bytes = Join({HostU16(ct.flags),
                        HostU16(ct.zone),
                        HostU32(ct.events),
                        HostU32(ct.expected),
                        {ct.helper},
                        Zeros(15)});
    if (revision > 0) bytes = Join({bytes, {ct.timeout}, Zeros(31)});
    return Join({bytes, Zeros(12)});
  };
  for (const uint32_t revision : {0U, 1U, 2U}) {
    EXPECT_EQ(DisplayXtTarget(Family::kIPv4, "CT", revision, ct({.flags = 3}, revision)),
              "-j NOTRACK");
    ExpectTexts("CT", revision,
                {{ct({}, revision), " --notrack"},
                 None(ct({.flags = 0}, revision)),
                 None(ct({.flags = 2}, revision)),
                 None(ct({.flags = 4}, revision)),
                 None(ct({.zone = 1}, revision)),
                 None(ct({.events = 1}, revision)),
                 None(ct({.expected = 1}, revision)),
                 None(ct({.helper = 'x'}, revision))});
    if (revision > 0) ExpectTexts("CT", revision, {None(ct({.timeout = 'x'}, revision))});
  }
}

TEST(XtTargetDisplayTest, ShowsSegmentSizesAndProxies) {
  ExpectTexts("TCPMSS", 0,
              {{Join({HostU16(0xffff), Zeros(6)}), " --clamp-mss-to-pmtu"},
               {Join({HostU16(1400), Zeros(6)}), " --set-mss 1400"}});
  ExpectTexts("TPROXY", 1,
              {{Join({HostU32(0xff), HostU32(1), {10, 0, 0, 1}, Zeros(12), {0, 80}, Zeros(6)}),
                " --on-port 80 --on-ip 10.0.0.1 --tproxy-mark 0x1/0xff"}});
}

// ---- nf_tables' own ----

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
  const auto is_shown = [](const std::vector<Bytes>& attributes) {
    const std::string text = Native("limit", attributes);
    if (!text.empty()) EXPECT_EQ(text, "-m limit --limit 1/sec");
    return !text.empty();
  };
  EXPECT_TRUE(is_shown({rate, unit, burst}));
  EXPECT_TRUE(is_shown({rate, unit, burst, Attr(4, 0), Attr(5, 0), Attr(6, Bytes())}));
  EXPECT_FALSE(is_shown({unit, burst}));
  EXPECT_FALSE(is_shown({rate, burst}));
  EXPECT_FALSE(is_shown({rate, unit}));
  EXPECT_FALSE(is_shown({rate, unit, burst, Attr(4, 1)})) << "bytes";
  EXPECT_FALSE(is_shown({rate, unit, burst, Attr(5, 1)})) << "over the limit";
  EXPECT_FALSE(is_shown({rate, unit, burst, Attr(7, 0)})) << "something new";
  EXPECT_FALSE(is_shown({Attr(1, U64(0)), unit, burst}));
  const Bytes million = Attr(1, U64(1000000));
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
}  // namespace kipt::netlink::xt_target_display_test
