// SPDX-License-Identifier: Apache-2.0
//
// WireGuard interfaces and tc filters from messages written by hand: this machine's kernel may have
// neither. tests/other-kernel/guests/marks.sh asks a kernel that has both.
#include "agent/detect/device_marks.h"

#include <linux/genetlink.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/tc_act/tc_ctinfo.h>
#include <linux/tc_act/tc_skbedit.h>
#include <linux/wireguard.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/scripted_kernel.h"
#include "tests/netlink/kernel_script.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/failing_call.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::agent;  // NOLINT(google-build-using-namespace): its vocabulary

constexpr uint16_t kFamily = 0x1d;  // of WireGuard, in these answers
constexpr uint32_t kAll = 0xffffffff;
using Answer = std::vector<Frame>;

template <typename T>
Bytes Raw(const T& value) {
  Bytes raw(sizeof value);
  std::memcpy(raw.data(), &value, sizeof value);
  return raw;
}
Bytes Nest(uint16_t type, const std::vector<Bytes>& parts) { return Attr(type, Join(parts)); }
Answer Dumped(const std::vector<Bytes>& messages, int flags = 0) {
  return {FromKernel(Join({Join(messages), Done(0, flags)}))};
}
Answer Refused(int error) { return {FromKernel(Refusal(error))}; }

Bytes LinkMessage(int index, const std::string& name, const std::string& kind) {
  ifinfomsg header = {};
  header.ifi_index = index;
  return Message(RTM_NEWLINK, NLM_F_MULTI, 0,
                 Join({Raw(header), Attr(IFLA_IFNAME, Text(name)),
                       Nest(IFLA_LINKINFO, {Attr(IFLA_INFO_KIND, Text(kind))})}));
}
Bytes FamilyMessage(const std::string& name, uint16_t id) {
  return Message(GENL_ID_CTRL, NLM_F_MULTI, 0,
                 Join({{CTRL_CMD_NEWFAMILY, 2, 0, 0},
                       Attr(CTRL_ATTR_FAMILY_NAME, Text(name)),
                       Attr(CTRL_ATTR_FAMILY_ID, HostU16(id))}));
}
Bytes DeviceMessage(const Bytes& attributes) {
  return Message(kFamily, NLM_F_MULTI, 0, Join({{WG_CMD_GET_DEVICE, 1, 0, 0}, attributes}));
}
Bytes FwmarkMessage(uint32_t mark) { return DeviceMessage(Attr(WGDEVICE_A_FWMARK, HostU32(mark))); }

Bytes TcMessage(int type, const tcmsg& header, const Bytes& attributes) {
  return Message(type, NLM_F_MULTI, 0, Join({Raw(header), attributes}));
}
Bytes Qdisc(int index, uint32_t handle, uint32_t parent, const std::string& kind) {
  tcmsg header = {};
  header.tcm_ifindex = index;
  header.tcm_handle = handle;
  header.tcm_parent = parent;
  return TcMessage(RTM_NEWQDISC, header, Attr(TCA_KIND, Text(kind)));
}
Bytes Filter(const std::string& kind, uint32_t handle, const std::vector<Bytes>& options,
             uint16_t protocol = ETH_P_ALL) {
  tcmsg header = {};
  header.tcm_handle = handle;
  header.tcm_info = TC_H_MAKE(7U << 16, htons(protocol));
  return TcMessage(RTM_NEWTFILTER, header,
                   Join({Attr(TCA_KIND, Text(kind)), Nest(TCA_OPTIONS, options)}));
}
Bytes Action(const std::string& kind, const std::vector<Bytes>& options) {
  return Nest(1, {Attr(TCA_ACT_KIND, Text(kind)), Nest(TCA_ACT_OPTIONS, options)});
}

const Bytes kClsact = Qdisc(2, 0xffff0000, TC_H_CLSACT, "clsact");
const Bytes kEth0 = LinkMessage(2, "eth0", "veth");

DeviceMarks Read(const std::vector<Answer>& answers) {
  const ScriptedKernel kernel(Script(answers));
  DeviceMarks marks = ReadDeviceMarks();
  EXPECT_EQ(kernel.left(), 0U);
  return marks;
}
// With these filters on eth0's ingress.
DeviceMarks ReadFilters(const std::vector<Bytes>& filters) {
  return Read({Dumped({kEth0}), Dumped({kClsact}), Dumped(filters), Dumped({})});
}

uint16_t TypeSent(const Bytes& datagram) {
  nlmsghdr header = {};
  std::memcpy(&header, datagram.data(), sizeof header);
  return header.nlmsg_type;
}

TEST(DeviceMarksTest, AWireguardInterfaceOverwritesTheWholeMark) {
  const DeviceMarks marks =
      Read({Dumped({kEth0, LinkMessage(3, "wg0", "wireguard"), LinkMessage(4, "wg1", "wireguard")}),
            Dumped({FamilyMessage("nlctrl", 16), FamilyMessage("wireguard", kFamily)}),
            // The peers come in a second message without the mark.
            Dumped({FwmarkMessage(0xca6c), DeviceMessage(Attr(WGDEVICE_A_IFINDEX, HostU32(3)))}),
            Dumped({FwmarkMessage(0)}), Dumped({})});
  EXPECT_THAT(marks.problems, IsEmpty());
  EXPECT_THAT(marks.found,
              ElementsAre(DeviceMark{.place = "the WireGuard interface wg0",
                                     .text = "fwmark 0xca6c",
                                     .marks = {.set = 0xca6c, .cleared = ~uint32_t{0xca6c}}}));
}

TEST(DeviceMarksTest, WithoutSuchAnInterfaceGenericNetlinkIsNotAsked) {
  const FailingCall call = {
      .number = SYS_socket, .argument = 2, .value = NETLINK_GENERIC, .error = EPERM};
  WithFailingCall(call, [] {
    const ScriptedKernel kernel(Script({Dumped({kEth0}), Dumped({})}));
    EXPECT_EQ(ReadDeviceMarks(), DeviceMarks{});
    ASSERT_THAT(kernel.sent(), SizeIs(2));
    EXPECT_EQ(TypeSent(kernel.sent()[0]), RTM_GETLINK);
    EXPECT_EQ(TypeSent(kernel.sent()[1]), RTM_GETQDISC);
  });
}

// Asking for a family by its name makes the kernel load the module of that name.
TEST(DeviceMarksTest, TheFamilyIsTakenFromTheListOfAll) {
  const ScriptedKernel kernel(Script({Dumped({LinkMessage(3, "wg0", "wireguard")}),
                                      Dumped({FamilyMessage("wireguard", kFamily)}),
                                      Dumped({FwmarkMessage(1)}), Dumped({})}));
  EXPECT_THAT(ReadDeviceMarks().found, SizeIs(1));
  ASSERT_THAT(kernel.sent(), SizeIs(4));
  const Bytes& families = kernel.sent()[1];
  EXPECT_EQ(TypeSent(families), GENL_ID_CTRL);
  EXPECT_EQ(families.size(), 20U);  // no attribute
  nlmsghdr header = {};
  std::memcpy(&header, families.data(), sizeof header);
  EXPECT_EQ(header.nlmsg_flags, NLM_F_REQUEST | NLM_F_DUMP);
  EXPECT_EQ(TypeSent(kernel.sent()[2]), kFamily);
}

TEST(DeviceMarksTest, WhatCannotBeReadIsAProblemAndTheRestIsRead) {
  const Bytes wg0 = LinkMessage(3, "wg0", "wireguard");
  const Answer family = Dumped({FamilyMessage("wireguard", kFamily)});
  Bytes torn = FwmarkMessage(0x8000);
  torn[0] = 0xff;  // longer than the datagram
  const std::string of_wireguard = "packet marks of WireGuard interfaces: ";
  const std::pair<std::string, std::vector<Answer>> rows[] = {
      {"packet marks of interfaces: ", {Refused(EPERM)}},
      {"packet marks of interfaces: ", std::vector<Answer>(5, Dumped({wg0}, NLM_F_DUMP_INTR))},
      {of_wireguard + "wg0: the kernel refuses it: Operation not permitted",
       {Dumped({wg0}), family, Refused(EPERM), Dumped({})}},
      {of_wireguard + "the kernel does not list its netlink family",
       {Dumped({wg0}), Dumped({FamilyMessage("nlctrl", 16)}), Dumped({})}},
      {of_wireguard + "wg0: ", {Dumped({wg0}), family, {FromKernel(torn)}, Dumped({})}},
      {"packet marks of tc filters: ", {Dumped({kEth0}), Refused(EPERM)}},
      {"packet marks of tc filters: ",
       {Dumped({kEth0}), Dumped({kClsact}), {CutOff(Filter("fw", 1, {}))}}},
  };
  for (const auto& [problem, answers] : rows) {
    SCOPED_TRACE(problem);
    const DeviceMarks marks = Read(answers);
    EXPECT_THAT(marks.found, IsEmpty());
    EXPECT_THAT(marks.problems, ElementsAre(HasSubstr(problem)));
  }
}

TEST(DeviceMarksTest, WhatChangedMeanwhileIsReadAgainAndWhatVanishedIsNothing) {
  const Bytes wg0 = LinkMessage(3, "wg0", "wireguard");
  const DeviceMarks marks =
      Read({Dumped({kEth0}, NLM_F_DUMP_INTR), Dumped({wg0}),
            Dumped({FamilyMessage("wireguard", kFamily)}), Refused(ENODEV), Dumped({})});
  EXPECT_EQ(marks, DeviceMarks{});
}

TEST(DeviceMarksTest, AKernelWithoutTrafficControlHasNoFilters) {
  EXPECT_EQ(Read({Dumped({kEth0}), Refused(EOPNOTSUPP)}), DeviceMarks{});
  // Nor has one without CONFIG_NET_CLS.
  EXPECT_EQ(Read({Dumped({kEth0}), Dumped({kClsact}), Refused(EOPNOTSUPP), Refused(EOPNOTSUPP)}),
            DeviceMarks{});
}

TEST(DeviceMarksTest, FiltersAndActionsSetAndTestWhatTheySay) {
  const tc_u32_mark own = {.val = 0x4000, .mask = 0xc000, .success = 0};
  const Bytes skbedit = Action("skbedit", {Attr(TCA_SKBEDIT_MARK, HostU32(0x8001)),
                                           Attr(TCA_SKBEDIT_MASK, HostU32(0x8003))});
  const Bytes whole = Action("skbedit", {Attr(TCA_SKBEDIT_MARK, HostU32(0xca6c))});
  const Bytes ctinfo = Action("ctinfo", {Attr(TCA_CTINFO_PARMS_CPMARK_MASK, HostU32(0xff))});
  const netlink::Marks edited = {.set = 0x8001, .cleared = 0x2};
  const netlink::Marks anything = {.tested = kAll, .set = kAll};
  const auto ematch = [](uint16_t kind) {
    const tcf_ematch_hdr header = {.matchid = 0, .kind = kind, .flags = 0, .pad = 0};
    return Filter("basic", 1,
                  {Nest(TCA_BASIC_EMATCHES, {Nest(TCA_EMATCH_TREE_LIST, {Attr(1, Raw(header))})})});
  };
  const auto matchall = [](const Bytes& action) {
    return Filter("matchall", 1, {Nest(TCA_MATCHALL_ACT, {action})});
  };
  const auto flower = [](const Bytes& action) {
    return Filter("flower", 1, {Nest(TCA_FLOWER_ACT, {action})});
  };
  const struct {
    Bytes filter;
    std::string text;
    netlink::Marks marks;
    uint32_t carried = 0;
  } rows[] = {
      // fw compares the whole mark with its handle.
      {Filter("fw", 0x8000, {}), "fw 0x8000", {.tested = kAll}, 0x8000},
      {Filter("fw", 0x8000, {Attr(TCA_FW_MASK, HostU32(0xff00))}),
       "fw 0x8000/0xff00",
       {.tested = 0xff00},
       0x8000},
      {Filter("u32", 0x80000800, {Attr(TCA_U32_MARK, Raw(own))}),
       "u32 0x4000/0xc000",
       {.tested = 0xc000},
       0x4000},
      {flower(skbedit), "flower skbedit mark 0x8001/0x8003", edited},
      {matchall(whole), "matchall skbedit mark 0xca6c", {.set = 0xca6c, .cleared = ~0xca6cU}},
      {Filter("u32", 1, {Nest(TCA_U32_ACT, {skbedit})}), "u32 skbedit mark 0x8001/0x8003", edited},
      {Filter("fw", 1,
              {Attr(TCA_FW_MASK, HostU32(1)), Nest(TCA_FW_ACT, {Action("mirred", {}), skbedit})}),
       "fw 0x1/0x1 skbedit mark 0x8001/0x8003",
       {.tested = 1, .set = 0x8001, .cleared = 0x2},
       1},
      {matchall(Action("connmark", {})), "matchall connmark", anything},
      {matchall(ctinfo), "matchall ctinfo cpmark 0xff", {.set = 0xff, .cleared = ~0xffU}},
      // A BPF program may do anything, and so may what is not known.
      {Filter("bpf", 1, {Attr(TCA_BPF_NAME, Text("cil_from_netdev"))}), "bpf cil_from_netdev",
       anything},
      {Filter("next", 1, {Zeros(0)}), "next ", anything},
      {flower(Action("xt", {})), "flower xt", anything},
      {ematch(TCF_EM_META), "basic mark", {.tested = kAll}},
      {Filter("flow", 1, {Attr(TCA_FLOW_KEYS, HostU32(1U << FLOW_KEY_MARK))}),
       "flow mark",
       {.tested = kAll}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.text);
    const DeviceMarks read = ReadFilters({row.filter});
    EXPECT_THAT(read.problems, IsEmpty());
    EXPECT_THAT(read.found, ElementsAre(DeviceMark{.place = "a tc filter of eth0 ingress",
                                                   .text = "pref 7 " + row.text,
                                                   .marks = row.marks,
                                                   .carried = row.carried}));
  }
  const Bytes harmless[] = {
      // The connection's mark, which is not the packet's.
      Filter("flower", 1,
             {Attr(TCA_FLOWER_KEY_CT_MARK, HostU32(0x8000)),
              Attr(TCA_FLOWER_KEY_CT_MARK_MASK, HostU32(kAll)),
              Nest(TCA_FLOWER_ACT, {Action("ct", {})})}),
      Filter("u32", 1, {Attr(TCA_U32_CLASSID, HostU32(1))}),
      matchall(Action("skbedit", {})),
      matchall(Action("ctinfo", {})),
      ematch(TCF_EM_CMP),
      Filter("flow", 1, {Attr(TCA_FLOW_KEYS, HostU32(1))}),
      // Each priority is listed without options first.
      TcMessage(RTM_NEWTFILTER, tcmsg{}, Attr(TCA_KIND, Text("bpf"))),
      Message(RTM_NEWTFILTER, NLM_F_MULTI, 0, Zeros(8)),
  };
  for (const Bytes& filter : harmless) {
    SCOPED_TRACE(ToHex(filter));
    EXPECT_EQ(ReadFilters({filter}), DeviceMarks{});
  }
}

TEST(DeviceMarksTest, AFilterSeesTheFamilyOfItsProtocol) {
  for (const int protocol : {ETH_P_IP, ETH_P_IPV6, ETH_P_ALL}) {
    const DeviceMarks read = ReadFilters({Filter("fw", 1, {}, static_cast<uint16_t>(protocol))});
    ASSERT_THAT(read.found, SizeIs(1));
    EXPECT_EQ(read.found[0].ipv4, protocol != ETH_P_IPV6);
    EXPECT_EQ(read.found[0].ipv6, protocol != ETH_P_IP);
  }
}

TEST(DeviceMarksTest, FiltersAreReadWhereverTheyMayBe) {
  const Answer fw = Dumped({Filter("fw", 1, {})});
  const tcmsg inner = {.tcm_handle = 0x10010};
  const DeviceMarks read =
      Read({Dumped({kEth0}),
            Dumped({kClsact, Qdisc(2, 0x10000, TC_H_ROOT, "htb"), Qdisc(9, 0, TC_H_ROOT, "noqueue"),
                    Qdisc(9, 0, 0x10, "pfifo"), Qdisc(9, 0xffff0000, TC_H_INGRESS, "ingress"),
                    Qdisc(9, 0, TC_H_ROOT, "fq_codel")}),
            Dumped({TcMessage(RTM_NEWTCLASS, inner, {})}), fw, fw, fw, fw, fw, fw});
  std::vector<std::string> places;
  for (const DeviceMark& mark : read.found) {
    places.push_back(mark.place + (mark.egress ? " (out)" : ""));
  }
  EXPECT_THAT(places, ElementsAre("a tc filter of eth0 ingress", "a tc filter of eth0 egress (out)",
                                  "a tc filter of eth0 1: (out)", "a tc filter of if9 ingress",
                                  "a tc filter of if9 0: (out)", "a tc filter of eth0 1:10 (out)"));
}

// A hierarchy has a queueing discipline at each of its leaves.
TEST(DeviceMarksTest, TheClassesOfAnInterfaceAreReadOnce) {
  const tcmsg inner = {.tcm_handle = 0x10010};
  const DeviceMarks read =
      Read({Dumped({kEth0}),
            Dumped({Qdisc(2, 0x10000, TC_H_ROOT, "htb"), Qdisc(2, 0x20000, 0x10010, "sfq")}),
            Dumped({TcMessage(RTM_NEWTCLASS, inner, {})}), Dumped({}), Dumped({}),
            Dumped({Filter("fw", 1, {})})});
  EXPECT_THAT(read.found, SizeIs(1));
}

TEST(DeviceMarksTest, WhatSelectsPacketsWithABitShowsThatSomethingSetsIt) {
  const DeviceMarks devices = {
      .found = {{.place = "wg0", .text = "fwmark 0xca6c", .marks = {.set = 0xca6c}},
                {.place = "fw",
                 .text = "tests",
                 .marks = {.tested = kAll},
                 .carried = 0x8000,
                 .ipv6 = false},
                {.place = "clears", .text = "", .marks = {.cleared = 0x8000}}},
      .problems = {"tc: refused"}};
  const agent::FwmarkRule rules[] = {
      {.family = netlink::Family::kIPv6, .mark = 0x4000, .mask = 0xc000, .text = "a rule"},
      {.mark = 0, .mask = 0xc000, .text = "a rule for packets without"}};
  const std::vector<agent::Marking> markings = MarkingsOf(devices, rules);
  ASSERT_THAT(markings, SizeIs(4));
  EXPECT_EQ(markings[0],
            (agent::Marking{.from = "what cannot be read", .rule = "tc: refused", .bits = kAll}));
  EXPECT_EQ(markings[1], (agent::Marking{.from = "wg0", .rule = "fwmark 0xca6c", .bits = 0xca6c}));
  EXPECT_EQ(markings[2],
            (agent::Marking{.from = "fw", .rule = "tests", .bits = 0x8000, .ipv6 = false}));
  EXPECT_EQ(markings[3], (agent::Marking{.from = "a sender of packets that a routing rule selects",
                                         .rule = "a rule",
                                         .bits = 0x4000,
                                         .ipv4 = false}));
}

}  // namespace
}  // namespace kipt::testing
