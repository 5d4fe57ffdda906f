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

using agent::FwmarkRule;
using agent::ReadFwmarkRules;
using agent::ReadRouteLocalnet;
using agent::RouteLocalnet;
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

struct TextRow {
  std::string name;
  fib_rule_hdr header;
  Bytes attributes;
  std::string text;
};

void ExpectTexts(const std::vector<TextRow>& rows) {
  for (const TextRow& row : rows) {
    SCOPED_TRACE(row.name);
    fib_rule_hdr header = row.header;
    if (header.family == 0) header.family = AF_INET;
    const FwmarkRules read = ReadOnly({RuleBytes(header, Join({row.attributes, kMark}))});
    ASSERT_THAT(read, IsOk());
    ASSERT_EQ(read->size(), 1U);
    EXPECT_EQ(read->front().text, row.text);
    EXPECT_EQ(read->front().inverted, (row.header.flags & FIB_RULE_INVERT) != 0);
  }
}

Bytes HostRange(uint16_t start, uint16_t end) { return Join({HostU16(start), HostU16(end)}); }

TEST(FwmarkRulesTest, SelectorsAreSpelledAsIpRuleSpellsThem) {
  constexpr uint8_t kNop = FR_ACT_NOP;
  const Bytes interfaces = Join({Attr(FRA_IIFNAME, Text("eth0")), Attr(FRA_OIFNAME, Text("eth1"))});
  ExpectTexts({
      {"a rule without a priority has 0", {.action = kNop}, {}, "0: from all fwmark 0x4/0x4 nop"},
      {"a rule has its priority",
       {.action = kNop},
       Attr(FRA_PRIORITY, HostU32(9)),
       "9: from all fwmark 0x4/0x4 nop"},
      {"an inverted rule selects the others",
       {.action = kNop, .flags = FIB_RULE_INVERT},
       {},
       "0: not from all fwmark 0x4/0x4 nop"},
      {"addresses of IPv4 have their length unless it is the whole address",
       {.dst_len = 32, .src_len = 8, .action = kNop},
       Join({Attr(FRA_SRC, {10, 0, 0, 0}), Attr(FRA_DST, {10, 1, 2, 3})}),
       "0: from 10.0.0.0/8 to 10.1.2.3 fwmark 0x4/0x4 nop"},
      {"addresses of IPv6 have their length unless it is the whole address",
       {.family = AF_INET6, .dst_len = 128, .src_len = 16, .action = kNop},
       Join({Attr(FRA_SRC, Join({{0xfd, 0}, Zeros(14)})), Attr(FRA_DST, Join({Zeros(15), {1}}))}),
       "0: from fd00::/16 to ::1 fwmark 0x4/0x4 nop"},
      {"a missing address is 0",
       {.dst_len = 7, .src_len = 8, .action = kNop},
       {},
       "0: from 0/8 to 0/7 fwmark 0x4/0x4 nop"},
      {"the type of service is a hexadecimal number",
       {.tos = 0x10, .action = kNop},
       {},
       "0: from all tos 0x10 fwmark 0x4/0x4 nop"},
      {"interfaces are named",
       {.action = kNop},
       interfaces,
       "0: from all fwmark 0x4/0x4 iif eth0 oif eth1 nop"},
      {"each interface that is missing is detached: the incoming one",
       {.action = kNop, .flags = FIB_RULE_IIF_DETACHED},
       interfaces,
       "0: from all fwmark 0x4/0x4 iif eth0 [detached] oif eth1 nop"},
      {"each interface that is missing is detached: the outgoing one",
       {.action = kNop, .flags = FIB_RULE_OIF_DETACHED},
       interfaces,
       "0: from all fwmark 0x4/0x4 iif eth0 oif eth1 [detached] nop"},
      {"a permanent rule is neither inverted nor detached",
       {.action = kNop, .flags = FIB_RULE_PERMANENT},
       interfaces,
       "0: from all fwmark 0x4/0x4 iif eth0 oif eth1 nop"},
      {"users and ports are ranges",
       {.action = kNop},
       Join({Attr(FRA_UID_RANGE, Join({HostU32(5), HostU32(7)})),
             Attr(FRA_SPORT_RANGE, HostRange(1, 100)), Attr(FRA_DPORT_RANGE, HostRange(53, 53))}),
       "0: from all fwmark 0x4/0x4 uidrange 5-7 sport 1-100 dport 53 nop"},
      {"an attribute of another size is none",
       {.action = kNop},
       Attr(FRA_PRIORITY, HostU16(9)),
       "0: from all fwmark 0x4/0x4 nop"},
  });
}

TEST(FwmarkRulesTest, ProtocolsHaveTheirNames) {
  const std::pair<uint8_t, std::string> rows[] = {{6, "tcp"},        {17, "udp"},   {1, "icmp"},
                                                  {58, "ipv6-icmp"}, {132, "sctp"}, {47, "47"}};
  for (const auto& [protocol, name] : rows) {
    ExpectTexts({{name,
                  {.action = FR_ACT_NOP},
                  Attr(FRA_IP_PROTO, Bytes{protocol}),
                  "0: from all fwmark 0x4/0x4 ipproto " + name + " nop"}});
  }
}

TEST(FwmarkRulesTest, ActionsAreSpelledAsIpRuleSpellsThem) {
  const auto table = [](uint32_t number) { return Attr(FRA_TABLE, HostU32(number)); };
  const Bytes target = Attr(FRA_GOTO, HostU32(60));
  std::vector<TextRow> rows = {
      {"the local table", {.action = FR_ACT_TO_TBL}, table(255), "lookup local"},
      {"the main table", {.action = FR_ACT_TO_TBL}, table(254), "lookup main"},
      {"the default table", {.action = FR_ACT_TO_TBL}, table(253), "lookup default"},
      {"a table without a name", {.action = FR_ACT_TO_TBL}, table(252), "lookup 252"},
      {"a table of the header", {.table = 7, .action = FR_ACT_TO_TBL}, {}, "lookup 7"},
      {"the table of the interface's device",
       {.action = FR_ACT_TO_TBL},
       Join({table(7), Attr(FRA_L3MDEV, Bytes{1})}),
       "lookup [l3mdev-table]"},
      {"not the table of a device",
       {.action = FR_ACT_TO_TBL},
       Join({table(7), Attr(FRA_L3MDEV, Bytes{0})}),
       "lookup 7"},
      {"a suppressed prefix length",
       {.action = FR_ACT_TO_TBL},
       Join({table(7), Attr(FRA_SUPPRESS_PREFIXLEN, HostU32(0))}),
       "lookup 7 suppress_prefixlength 0"},
      {"no suppressed prefix length",
       {.action = FR_ACT_TO_TBL},
       Join({table(7), Attr(FRA_SUPPRESS_PREFIXLEN, HostU32(UINT32_MAX))}),
       "lookup 7"},
      {"a jump", {.action = FR_ACT_GOTO}, target, "goto 60"},
      {"a permanent jump", {.action = FR_ACT_GOTO, .flags = FIB_RULE_PERMANENT}, target, "goto 60"},
      {"a jump to a rule that does not exist",
       {.action = FR_ACT_GOTO, .flags = FIB_RULE_UNRESOLVED},
       target,
       "goto 60 [unresolved]"},
      {"a jump without a target", {.action = FR_ACT_GOTO}, {}, "goto 0"},
      {"no action", {.action = FR_ACT_NOP}, {}, "nop"},
      {"silent loss", {.action = FR_ACT_BLACKHOLE}, {}, "blackhole"},
      {"an ICMP error", {.action = FR_ACT_UNREACHABLE}, {}, "unreachable"},
      {"an ICMP error of the administrator's", {.action = FR_ACT_PROHIBIT}, {}, "prohibit"},
      {"an action without a name", {.action = FR_ACT_RES4}, {}, "5"},
  };
  for (TextRow& row : rows) row.text = "0: from all fwmark 0x4/0x4 " + row.text;
  ExpectTexts(rows);
}

TEST(FwmarkRulesTest, AMarkOrAMaskIsEnough) {
  struct Row {
    std::string name;
    Bytes attributes;
    std::vector<FwmarkRule> rules;
  };
  const auto rule = [](uint32_t mark, uint32_t mask, const std::string& text) {
    return std::vector<FwmarkRule>{
        {.family = Family::kIPv4, .mark = mark, .mask = mask, .text = text}};
  };
  const Row rows[] = {
      {"both", kMark, rule(4, 4, "0: from all fwmark 0x4/0x4 nop")},
      {"a mark without a mask is compared whole", Attr(FRA_FWMARK, HostU32(4)),
       rule(4, 0xffffffff, "0: from all fwmark 0x4 nop")},
      {"a mask without a mark selects packets without these bits", Attr(FRA_FWMASK, HostU32(0xff)),
       rule(0, 0xff, "0: from all fwmark 0/0xff nop")},
      {"neither", Attr(FRA_PRIORITY, HostU32(7)), {}},
      {"no attributes", {}, {}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const fib_rule_hdr header = {.family = AF_INET, .action = FR_ACT_NOP};
    EXPECT_THAT(ReadOnly({RuleBytes(header, row.attributes)}), IsOkAndHolds(row.rules));
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

// What was sent, a request each.
struct SentRequest {
  nlmsghdr header = {};
  uint8_t family = 0;
};
std::vector<SentRequest> RequestsSentTo(const ScriptedKernel& kernel) {
  std::vector<SentRequest> requests;
  for (const Bytes& datagram : kernel.sent()) {
    SentRequest& request = requests.emplace_back();
    std::memcpy(&request.header, datagram.data(), sizeof request.header);
    request.family = datagram[sizeof request.header];
  }
  return requests;
}

TEST(FwmarkRulesTest, EachFamilyIsDumpedOnce) {
  const auto dump = [](uint8_t family) {
    const fib_rule_hdr header = {.family = family, .action = FR_ACT_NOP};
    return std::vector<Frame>{FromKernel(RuleBytes(header, kMark)), FromKernel(Done())};
  };
  const ScriptedKernel kernel(Script({dump(AF_INET), dump(AF_INET6)}));
  const FwmarkRules read = ReadFwmarkRules();
  ASSERT_THAT(read, IsOk());
  ASSERT_EQ(read->size(), 2U);
  EXPECT_EQ((*read)[0].family, Family::kIPv4);
  EXPECT_EQ((*read)[1].family, Family::kIPv6);
  const std::vector<SentRequest> requests = RequestsSentTo(kernel);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].family, AF_INET);
  EXPECT_EQ(requests[1].family, AF_INET6);
  for (const SentRequest& request : requests) {
    EXPECT_EQ(request.header.nlmsg_type, RTM_GETRULE);
    EXPECT_EQ(request.header.nlmsg_flags, NLM_F_REQUEST | NLM_F_DUMP);
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
    std::string name;
    std::vector<std::vector<Frame>> answers;
    absl::StatusCode code;
    std::string message;
  };
  const Row rows[] = {
      {"IPv4 is refused",
       {{FromKernel(Refusal(EPERM))}, {end}},
       absl::StatusCode::kPermissionDenied,
       "reading the routing rules: ip: "},
      {"IPv6 is refused",
       {{rule, end}, {FromKernel(Refusal(EPERM))}},
       absl::StatusCode::kPermissionDenied,
       "reading the routing rules: ip6: "},
      {"a dump ends with an error",
       {{rule, FromKernel(Done(ENOMEM))}, {end}},
       absl::StatusCode::kResourceExhausted,
       "reading the routing rules: ip: "},
      {"rules change meanwhile",
       {{rule, FromKernel(Done(0, NLM_F_DUMP_INTR))}, {end}},
       absl::StatusCode::kAborted,
       "reading the routing rules: "},
      {"no answer comes",
       {{rule}},
       absl::StatusCode::kDeadlineExceeded,
       "reading the routing rules: "},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
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
  struct Row {
    std::string name;
    std::map<std::string, std::string> settings;
    std::vector<std::string> wanted;
  };
  const std::vector<Row> rows = {
      {"none", {{"all", "0\n"}, {"default", "0\n"}, {"lo", "0\n"}, {"eth0", "0\n"}}, {}},
      {"some, sorted",
       {{"all", "0\n"}, {"eth1", "1\n"}, {"eth0", "1\n"}, {"eth2", "0\n"}},
       {"eth0", "eth1"}},
      {"all", {{"all", "1\n"}, {"eth0", "0\n"}, {"eth1", "1\n"}}, {"all"}},
      {"interfaces to come inherit", {{"all", "0\n"}, {"default", "1\n"}}, {"default"}},
      {"lo is no way in", {{"all", "0\n"}, {"default", "0\n"}, {"lo", "1\n"}}, {}},
      {"any number but 0", {{"all", "0\n"}, {"eth0", "2\n"}}, {"eth0"}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    Sysctls sysctls;
    for (const auto& [interface, value] : row.settings) sysctls.Set(interface, value);
    EXPECT_EQ(sysctls.Read(), RouteLocalnet{.interfaces = row.wanted});
  }
}

TEST(RouteLocalnetTest, TakesAnInterfaceThatWentForClosed) {
  Sysctls sysctls;
  sysctls.Set("all", "0\n").tree().Link("ipv4/conf/eth0", "gone");
  EXPECT_EQ(sysctls.Read(), RouteLocalnet());
}

TEST(RouteLocalnetTest, TakesAnInterfaceWhoseSettingsAreHiddenForOpen) {
  Sysctls sysctls;
  sysctls.Set("all", "0\n").tree().Directory("ipv4/conf/eth0");
  EXPECT_THAT(sysctls.Read().unread, HasSubstr("eth0/route_localnet: "));
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
