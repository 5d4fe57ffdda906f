// SPDX-License-Identifier: Apache-2.0
//
// Routing rules from messages written by hand: also those that no `ip rule add` makes, and errors.
// tests/kernel/ip_rules_test.cc compares with what `ip rule` prints.
#include "agent/detect/routing.h"

#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/scripted_kernel.h"
#include "tests/netlink/kernel_script.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/failing_call.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::agent;  // NOLINT(google-build-using-namespace): its vocabulary
using netlink::Family;

using FwmarkRules = absl::StatusOr<std::vector<FwmarkRule>>;

const Bytes kMark = Join({Attr(FRA_FWMARK, HostU32(4)), Attr(FRA_FWMASK, HostU32(4))});

Bytes RuleBytes(const fib_rule_hdr& header, const Bytes& attributes, int type = RTM_NEWRULE) {
  Bytes raw(sizeof header);
  std::memcpy(raw.data(), &header, sizeof header);
  return Message(type, NLM_F_MULTI, 0, Join({raw, attributes}));
}

// Rules of IPv4, and no rules of IPv6.
FwmarkRules ReadOnly(const std::vector<Bytes>& rules) {
  const Bytes dump = Join({Join(rules), Done()});
  const ScriptedKernel kernel(Script({{FromKernel(dump)}, {FromKernel(Done())}}));
  return ReadFwmarkRules();
}

fib_rule_hdr Action(uint8_t action, uint32_t flags = 0) {
  return {.family = AF_INET, .action = action, .flags = flags};
}

// What `ip rule add` makes is in tests/kernel/ip_rules_test.cc; here is the rest.
TEST(FwmarkRulesTest, AreSpelledAsIpRuleSpellsThem) {
  const fib_rule_hdr nop = Action(FR_ACT_NOP);
  const fib_rule_hdr lookup = Action(FR_ACT_TO_TBL);
  fib_rule_hdr short_addresses = nop;
  short_addresses.src_len = 8;
  short_addresses.dst_len = 7;
  fib_rule_hdr table_7 = lookup;
  table_7.table = 7;
  const Bytes table = Attr(FRA_TABLE, HostU32(7));
  const Bytes interfaces = Join({Attr(FRA_IIFNAME, Text("eth0")), Attr(FRA_OIFNAME, Text("eth1"))});
  const Bytes target = Attr(FRA_GOTO, HostU32(60));
  struct Row {
    fib_rule_hdr header;
    Bytes attributes;
    std::string text;
  };
  std::vector<Row> rows = {
      {nop, Attr(FRA_PRIORITY, HostU16(9)), "nop"},  // an attribute of another size is none
      {Action(FR_ACT_NOP, FIB_RULE_PERMANENT), interfaces, "iif eth0 oif eth1 nop"},
      {table_7, Bytes(), "lookup 7"},
      {lookup, Attr(FRA_TABLE, HostU32(252)), "lookup 252"},
      {lookup, Join({table, Attr(FRA_L3MDEV, Bytes(1, 1))}), "lookup [l3mdev-table]"},
      {lookup, Join({table, Attr(FRA_L3MDEV, Bytes(1, 0))}), "lookup 7"},
      {lookup, Join({table, Attr(FRA_SUPPRESS_PREFIXLEN, HostU32(UINT32_MAX))}), "lookup 7"},
      {Action(FR_ACT_GOTO, FIB_RULE_PERMANENT), target, "goto 60"},
      {Action(FR_ACT_GOTO, FIB_RULE_UNRESOLVED), target, "goto 60 [unresolved]"},
      {Action(FR_ACT_GOTO), Bytes(), "goto 0"},
      {Action(FR_ACT_BLACKHOLE), Bytes(), "blackhole"},
      {Action(FR_ACT_RES4), Bytes(), "5"},
  };
  const std::pair<uint8_t, std::string> protocols[] = {
      {6, "tcp"}, {17, "udp"}, {1, "icmp"}, {58, "ipv6-icmp"}, {132, "sctp"}, {47, "47"}};
  for (const auto& [protocol, name] : protocols) {
    rows.push_back({nop, Attr(FRA_IP_PROTO, Bytes(1, protocol)), "ipproto " + name + " nop"});
  }
  for (Row& row : rows) row.text = "0: from all fwmark 0x4/0x4 " + row.text;
  rows.push_back({short_addresses, Bytes(), "0: from 0/8 to 0/7 fwmark 0x4/0x4 nop"});
  rows.push_back({Action(FR_ACT_NOP, FIB_RULE_INVERT), {}, "0: not from all fwmark 0x4/0x4 nop"});
  for (const Row& row : rows) {
    SCOPED_TRACE(row.text);
    const FwmarkRules read = ReadOnly({RuleBytes(row.header, Join({row.attributes, kMark}))});
    ASSERT_THAT(read, IsOk());
    ASSERT_EQ(read->size(), 1U);
    EXPECT_EQ(read->front().text, row.text);
    EXPECT_EQ(read->front().inverted, (row.header.flags & FIB_RULE_INVERT) != 0);
  }
}

TEST(FwmarkRulesTest, AMarkOrAMaskIsEnough) {
  const auto rule = [](uint32_t mark, uint32_t mask, const std::string& text) {
    return std::vector<FwmarkRule>{
        {.family = Family::kIPv4, .mark = mark, .mask = mask, .text = text}};
  };
  const std::pair<Bytes, std::vector<FwmarkRule>> rows[] = {
      {kMark, rule(4, 4, "0: from all fwmark 0x4/0x4 nop")},
      // A mark without a mask is compared whole; a mask alone selects packets without these bits.
      {Attr(FRA_FWMARK, HostU32(4)), rule(4, 0xffffffff, "0: from all fwmark 0x4 nop")},
      {Attr(FRA_FWMASK, HostU32(0xff)), rule(0, 0xff, "0: from all fwmark 0/0xff nop")},
      {Attr(FRA_PRIORITY, HostU32(7)), {}},
      {{}, {}},
  };
  for (const auto& [attributes, rules] : rows) {
    EXPECT_THAT(ReadOnly({RuleBytes(Action(FR_ACT_NOP), attributes)}), IsOkAndHolds(rules));
  }
}

TEST(FwmarkRulesTest, WhatIsNoRuleIsSkipped) {
  const fib_rule_hdr header = {.family = AF_INET, .action = FR_ACT_NOP};
  const Bytes good = RuleBytes(header, kMark);
  Bytes malformed = good;
  malformed[16 + sizeof header] = 0xff;  // the first attribute is longer than the message
  const std::pair<std::string, Bytes> rows[] = {
      {"another type of message", RuleBytes(header, kMark, RTM_DELRULE)},
      {"a message without a whole header", Message(RTM_NEWRULE, NLM_F_MULTI, 0, Zeros(8))},
      {"a malformed attribute", malformed},
  };
  for (const auto& [name, bytes] : rows) {
    SCOPED_TRACE(name);
    const FwmarkRules read = ReadOnly({bytes, good});
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(read->size(), 1U);
  }
}

TEST(FwmarkRulesTest, AFamilyWithoutPolicyRoutingHasNoRules) {
  const std::vector<Frame> rules = {
      FromKernel(RuleBytes({.family = AF_INET6, .action = FR_ACT_NOP}, kMark)), FromKernel(Done())};
  for (const int error : {EOPNOTSUPP, EAFNOSUPPORT}) {
    SCOPED_TRACE(error);
    const ScriptedKernel kernel(Script({{FromKernel(Refusal(error))}, rules}));
    const FwmarkRules read = ReadFwmarkRules();
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(read->size(), 1U);
  }
  EXPECT_THAT(ReadOnly({}), IsOkAndHolds(IsEmpty()));
}

TEST(FwmarkRulesTest, RulesThatWereNotAllReadAreAnError) {
  const Frame rule = FromKernel(RuleBytes({.family = AF_INET, .action = FR_ACT_NOP}, kMark));
  const Frame end = FromKernel(Done());
  struct Row {
    std::vector<std::vector<Frame>> answers;
    absl::StatusCode code;
    std::string message = "reading the routing rules: ";
  };
  using Code = absl::StatusCode;
  const Frame refusal = FromKernel(Refusal(EPERM));
  const Row rows[] = {
      {{{refusal}, {end}}, Code::kPermissionDenied, "reading the routing rules: ip: "},
      {{{rule, end}, {refusal}}, Code::kPermissionDenied, "reading the routing rules: ip6: "},
      {{{rule, FromKernel(Done(ENOMEM))}, {end}}, Code::kResourceExhausted},
      {{{rule, FromKernel(Done(0, NLM_F_DUMP_INTR))}, {end}}, Code::kAborted},
      {{{rule}}, Code::kDeadlineExceeded},
  };
  for (const Row& row : rows) {
    const ScriptedKernel kernel(Script(row.answers));
    EXPECT_THAT(ReadFwmarkRules(), StatusIs(row.code, HasSubstr(row.message)));
  }
}

TEST(FwmarkRulesTest, AKernelWithoutThatNetlinkIsAnError) {
  const FailingCall call = {
      .number = SYS_socket, .argument = 2, .value = NETLINK_ROUTE, .error = EPROTONOSUPPORT};
  WithFailingCall(call, [] {
    EXPECT_THAT(ReadFwmarkRules(),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("reading the routing rules: ")));
  });
}

class Sysctls {
 public:
  Sysctls& Set(const std::string& interface, const std::string& value) {
    tree_.Write("ipv4/conf/" + interface + "/route_localnet", value);
    return *this;
  }
  RouteLocalnet Read() const { return ReadRouteLocalnet(tree_.root()); }
  const TemporaryTree& tree() const { return tree_; }

 private:
  TemporaryTree tree_;
};

TEST(RouteLocalnetTest, NamesTheInterfacesThatAreOpen) {
  using Settings = std::map<std::string, std::string>;
  const std::pair<Settings, std::vector<std::string>> rows[] = {
      {{{"all", "0\n"}, {"default", "0\n"}, {"lo", "0\n"}, {"eth0", "0\n"}}, {}},
      {{{"all", "0\n"}, {"eth1", "1\n"}, {"eth0", "1\n"}, {"eth2", "0\n"}}, {"eth0", "eth1"}},
      {{{"all", "1\n"}, {"eth0", "0\n"}, {"eth1", "1\n"}}, {"all"}},
      {{{"all", "0\n"}, {"default", "1\n"}}, {"default"}},        // interfaces to come inherit
      {{{"all", "0\n"}, {"default", "0\n"}, {"lo", "1\n"}}, {}},  // packets do not enter by lo
      {{{"all", "0\n"}, {"eth0", "2\n"}}, {"eth0"}},
  };
  for (const auto& [settings, expected] : rows) {
    Sysctls sysctls;
    for (const auto& [interface, value] : settings) sysctls.Set(interface, value);
    EXPECT_EQ(sysctls.Read(), RouteLocalnet{.interfaces = expected});
  }
}

TEST(RouteLocalnetTest, TakesAnInterfaceThatWentForClosedAndHiddenSettingsForOpen) {
  Sysctls sysctls;
  sysctls.Set("all", "0\n").tree().Link("ipv4/conf/eth0", "gone");
  EXPECT_EQ(sysctls.Read(), RouteLocalnet());
  sysctls.tree().Directory("ipv4/conf/eth1");
  EXPECT_THAT(sysctls.Read().unread, HasSubstr("eth1/route_localnet: "));
}

TEST(RouteLocalnetTest, WhatCannotBeReadMayBeOpenAndHidesNoOther) {
  Sysctls sysctls;
  sysctls.Set("eth0", "yes\n").Set("eth1", "1\n").Set("eth2", "?\n");
  RouteLocalnet read = sysctls.Read();
  EXPECT_THAT(read.interfaces, ElementsAre("eth1"));
  EXPECT_THAT(read.unread, HasSubstr("all/route_localnet: ")) << "no setting of all";
  read = sysctls.Set("all", "0\n").Read();
  EXPECT_THAT(read.interfaces, ElementsAre("eth1"));
  EXPECT_THAT(read.unread, HasSubstr("eth0/route_localnet: "));
  EXPECT_EQ(ToString(read), "route_localnet is 1 for eth1, and may be for others: " + read.unread);
  EXPECT_EQ(ToString(RouteLocalnet{.interfaces = {"eth1"}}), "route_localnet is 1 for eth1");
  EXPECT_EQ(ToString(RouteLocalnet{.unread = "why"}), "route_localnet may be 1: why");
  EXPECT_EQ(sysctls.Set("all", "1\n").Read(), RouteLocalnet{.interfaces = {"all"}});
}

// /proc that shows processes only; an empty file system on /proc/sys or a directory below it.
TEST(RouteLocalnetTest, ADirectoryThatIsNotThereMayBeOpen) {
  const TemporaryTree tree;
  const RouteLocalnet read = ReadRouteLocalnet(tree.Path("none"));
  EXPECT_FALSE(read.empty());
  EXPECT_THAT(read.interfaces, IsEmpty());
  EXPECT_THAT(ToString(read), HasSubstr("route_localnet may be 1: "));
  EXPECT_FALSE(ReadRouteLocalnet(tree.root()).empty());
  tree.Write("core/somaxconn", "4096\n");
  EXPECT_FALSE(ReadRouteLocalnet(tree.root()).empty());
}

}  // namespace
}  // namespace kipt::testing
