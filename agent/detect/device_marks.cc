// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/device_marks.h"

#include <libmnl/libmnl.h>
#include <linux/genetlink.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/tc_act/tc_ctinfo.h>
#include <linux/tc_act/tc_skbedit.h>
#include <linux/wireguard.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "netlink/attributes.h"
#include "netlink/socket.h"

namespace kipt::agent {
namespace {

using netlink::Attribute;
using netlink::Attributes;
using netlink::kAllMarks;
using netlink::Marks;
using netlink::WireBytes;

// Interfaces come and go while they are listed.
constexpr int kMostAttempts = 5;

std::string Hex(uint32_t value) { return absl::StrCat("0x", absl::Hex(value)); }
std::string MaskedText(uint32_t value, uint32_t mask) {
  return mask == kAllMarks ? Hex(value) : absl::StrCat(Hex(value), "/", Hex(mask));
}

// A netlink whose messages begin with a Header.
template <typename Header>
struct Message {
  Header header = {};
  Attributes attributes;
};

// Hands over every whole message of a dump; again from the first, if the kernel reports that what
// it dumped has changed. Nothing where the kernel lacks what is asked about, or it has vanished.
// `index`, unless 0, is put as that attribute.
template <typename Header>
absl::Status Dump(netlink::Socket& socket, uint16_t type, const Header& header,
                  absl::FunctionRef<void(const Message<Header>&)> take,
                  std::pair<uint16_t, uint32_t> index = {}) {
  const auto bytes = [](const auto& value) {
    return WireBytes(reinterpret_cast<const uint8_t*>(&value), sizeof value);
  };
  absl::Status status;
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    int error = 0;
    netlink::Requests request(socket.ReserveSequences(1));
    nlmsghdr* asked = request.BeginWith(bytes(header), type, NLM_F_DUMP);
    if (index.second != 0) mnl_attr_put_u32(asked, index.first, index.second);
    status = socket.Ask(request, [&](const netlink::Reply& reply) {
      error = reply.error_number;
      if (reply.message == nullptr) return;
      const WireBytes message = netlink::MessageBytes(reply.message);
      Message<Header> whole = {.attributes = Attributes::OfMessage(message, sizeof(Header))};
      if (message.size() < NLMSG_HDRLEN + sizeof(Header)) return;
      std::memcpy(&whole.header, message.data() + NLMSG_HDRLEN, sizeof(Header));
      take(whole);
    });
    if (error == EOPNOTSUPP || error == ENODEV) return absl::OkStatus();
    status.Update(absl::ErrnoToStatus(error, "the kernel refuses it"));
    if (!absl::IsAborted(status)) return status;
  }
  return status;
}

// ---- WireGuard ----

struct Link {
  std::string name;
  bool wireguard = false;
};
using Links = std::map<int, Link>;  // by index

absl::Status ReadLinks(netlink::Socket& route, Links& links) {
  return Dump<ifinfomsg>(route, RTM_GETLINK, {}, [&](const Message<ifinfomsg>& message) {
    const auto& [header, attributes] = message;
    links[header.ifi_index] = {
        .name = attributes.Text(IFLA_IFNAME).value_or(absl::StrCat("if", header.ifi_index)),
        .wireguard = attributes.Nest(IFLA_LINKINFO).Text(IFLA_INFO_KIND) == WG_GENL_NAME};
  });
}

// From the list of all families: asking for one by its name loads its module.
absl::StatusOr<uint16_t> WireguardFamily(netlink::Socket& generic) {
  std::optional<uint16_t> family;
  absl::Status status = Dump<genlmsghdr>(
      generic, GENL_ID_CTRL, {CTRL_CMD_GETFAMILY, 1, 0}, [&](const Message<genlmsghdr>& message) {
        const Attributes& attributes = message.attributes;
        if (attributes.Text(CTRL_ATTR_FAMILY_NAME) != WG_GENL_NAME) return;
        family = attributes.Host<uint16_t>(CTRL_ATTR_FAMILY_ID);
      });
  if (!status.ok()) return status;
  if (!family) return absl::UnavailableError("the kernel does not list its netlink family");
  return *family;
}

// The answers hold private keys. Only the socket's memory has them, and it is freed with it.
absl::Status ReadWireguard(const Links& links, std::vector<DeviceMark>& found) {
  if (absl::c_none_of(links, [](const auto& entry) { return entry.second.wireguard; })) {
    return absl::OkStatus();
  }
  const auto socket = netlink::Socket::Open(NETLINK_GENERIC);
  if (!socket.ok()) return socket.status();
  const absl::StatusOr<uint16_t> family = WireguardFamily(**socket);
  if (!family.ok()) return family.status();
  for (const auto& [index, link] : links) {
    if (!link.wireguard) continue;
    // One with many peers takes several messages, and the first alone may have it.
    uint32_t mark = 0;
    absl::Status status = Dump<genlmsghdr>(
        **socket, *family, {WG_CMD_GET_DEVICE, WG_GENL_VERSION, 0},
        [&](const Message<genlmsghdr>& message) {
          mark = message.attributes.Host<uint32_t>(WGDEVICE_A_FWMARK).value_or(mark);
        },
        {WGDEVICE_A_IFINDEX, static_cast<uint32_t>(index)});
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(link.name, ": ", status.message()));
    }
    if (mark == 0) continue;
    found.push_back({.place = absl::StrCat("the WireGuard interface ", link.name),
                     .text = absl::StrCat("fwmark ", Hex(mark)),
                     .marks = {.set = mark, .cleared = ~mark}});
  }
  return absl::OkStatus();
}

// ---- traffic control ----

// A filter's kind, where its actions and extended matches are, and what it does itself.
struct FilterKind {
  absl::string_view name;
  uint16_t actions;
  uint16_t ematches = 0;
};
constexpr FilterKind kFilters[] = {{"basic", TCA_BASIC_ACT, TCA_BASIC_EMATCHES},
                                   {"cgroup", TCA_CGROUP_ACT, TCA_CGROUP_EMATCHES},
                                   {"flow", TCA_FLOW_ACT, TCA_FLOW_EMATCHES},
                                   // Its ct_mark is the connection's.
                                   {"flower", TCA_FLOWER_ACT},
                                   {"fw", TCA_FW_ACT},
                                   {"matchall", TCA_MATCHALL_ACT},
                                   {"route", TCA_ROUTE4_ACT},
                                   {"u32", TCA_U32_ACT}};
// Actions that leave the mark alone. `ct` sets the connection's.
constexpr absl::string_view kActions[] = {"csum",   "ct",     "gact",       "gate",   "mirred",
                                          "mpls",   "nat",    "pedit",      "police", "sample",
                                          "simple", "skbmod", "tunnel_key", "vlan"};
// Unknown filters, such as BPF programs, may test and set any bit.
constexpr Marks kAnything = {.tested = kAllMarks, .set = kAllMarks};

// A filter or action, with its words.
void Note(DeviceMark& mark, const Marks& marks, absl::string_view words) {
  mark.marks |= marks;
  absl::StrAppend(&mark.text, " ", words);
}

void NoteAction(const Attributes& action, DeviceMark& mark) {
  const std::string kind = action.Text(TCA_ACT_KIND).value_or("");
  const Attributes options = action.Nest(TCA_ACT_OPTIONS);
  if (absl::c_linear_search(kActions, kind)) return;
  if (kind == "skbedit") {
    const auto value = options.Host<uint32_t>(TCA_SKBEDIT_MARK);
    if (!value) return;
    const uint32_t mask = options.Host<uint32_t>(TCA_SKBEDIT_MASK).value_or(kAllMarks);
    return Note(mark, {.set = *value & mask, .cleared = ~*value & mask},
                absl::StrCat("skbedit mark ", MaskedText(*value, mask)));
  }
  if (kind == "ctinfo") {
    // mark = connection's mark & mask
    const auto mask = options.Host<uint32_t>(TCA_CTINFO_PARMS_CPMARK_MASK);
    if (!mask) return;
    return Note(mark, {.set = *mask, .cleared = ~*mask},
                absl::StrCat("ctinfo cpmark ", Hex(*mask)));
  }
  Note(mark, kAnything, kind);
}

// Whether an extended match may test the mark: `meta` and what runs matches of iptables do.
bool TestsMark(const Attributes& tree) {
  const Attributes list = tree.Nest(TCA_EMATCH_TREE_LIST);
  return absl::c_any_of(list.all(), [](const Attribute& match) {
    tcf_ematch_hdr header = {0, TCF_EM_META, 0, 0};
    if (match.payload.size() >= sizeof header) {
      std::memcpy(&header, match.payload.data(), sizeof header);
    }
    return header.kind == TCF_EM_META || header.kind >= TCF_EM_IPT;
  });
}

void NoteFilter(absl::string_view kind, uint32_t handle, const Attributes& options,
                DeviceMark& mark) {
  const auto* const known =
      absl::c_find_if(kFilters, [&](const FilterKind& one) { return one.name == kind; });
  if (known == std::end(kFilters)) {
    return Note(mark, kAnything, absl::StrCat(kind, " ", options.Text(TCA_BPF_NAME).value_or("")));
  }
  absl::StrAppend(&mark.text, " ", kind);
  const auto tests = [&](uint32_t value, uint32_t mask) {
    mark.carried |= value & mask;
    Note(mark, {.tested = mask}, MaskedText(value, mask));
  };
  if (kind == "fw") tests(handle, options.Host<uint32_t>(TCA_FW_MASK).value_or(kAllMarks));
  if (kind == "u32") {
    if (const auto own = options.Host<tc_u32_mark>(TCA_U32_MARK)) tests(own->val, own->mask);
  }
  const uint32_t keys = options.Host<uint32_t>(TCA_FLOW_KEYS).value_or(0);
  if ((kind == "flow" && (keys & (1U << FLOW_KEY_MARK)) != 0) ||
      (known->ematches != 0 && TestsMark(options.Nest(known->ematches)))) {
    Note(mark, {.tested = kAllMarks}, "mark");
  }
  for (const Attribute& action : options.Nest(known->actions).all()) {
    NoteAction(Attributes::Parse(action.payload).value_or(Attributes()), mark);
  }
}

tcmsg Asked(int index, uint32_t parent) {
  tcmsg header = {};
  header.tcm_ifindex = index;
  header.tcm_parent = parent;
  return header;
}

// Where filters may be: of a queueing discipline, or of one of its classes.
struct FilterPlace {
  int index = 0;  // of the interface
  uint32_t parent = 0;
  std::string text;  // "ingress", "egress", "1:"
  bool egress = true;
};

std::string HandleText(uint32_t handle) {
  const uint32_t minor = TC_H_MIN(handle);
  return absl::StrCat(absl::Hex(TC_H_MAJ(handle) >> 16), ":",
                      minor == 0 ? "" : absl::StrCat(absl::Hex(minor)));
}

absl::Status ReadPlaces(netlink::Socket& route, std::vector<FilterPlace>& places) {
  // These have no classes with filters of their own.
  constexpr absl::string_view kClassless[] = {"bfifo", "cake",   "clsact", "fq",         "fq_codel",
                                              "mq",    "mqprio", "pfifo",  "pfifo_fast", "tbf"};
  // Each once: an answer has the classes of all queueing disciplines of the interface.
  std::set<int> classful;
  absl::Status status = Dump<tcmsg>(route, RTM_GETQDISC, {}, [&](const Message<tcmsg>& message) {
    const auto& [header, attributes] = message;
    const int index = header.tcm_ifindex;
    const uint32_t handle = header.tcm_handle;
    const std::string kind = attributes.Text(TCA_KIND).value_or("");
    if (kind == "clsact") {
      places.push_back({index, TC_H_MAKE(handle, TC_H_MIN_INGRESS), "ingress", false});
      places.push_back({index, TC_H_MAKE(handle, TC_H_MIN_EGRESS), "egress"});
    } else if (kind == "ingress") {
      places.push_back({index, handle, "ingress", false});
    } else if (kind != "noqueue" && (handle != 0 || header.tcm_parent == TC_H_ROOT)) {
      places.push_back({index, handle, HandleText(handle)});
      if (!absl::c_linear_search(kClassless, kind)) classful.insert(index);
    }
  });
  for (const int index : classful) {
    if (!status.ok()) return status;
    status = Dump<tcmsg>(route, RTM_GETTCLASS, Asked(index, 0), [&](const Message<tcmsg>& message) {
      const uint32_t handle = message.header.tcm_handle;
      places.push_back({index, handle, HandleText(handle)});
    });
  }
  return status;
}

absl::Status ReadFilters(netlink::Socket& route, const Links& links,
                         std::vector<DeviceMark>& found) {
  std::vector<FilterPlace> places;
  absl::Status status = ReadPlaces(route, places);
  for (const FilterPlace& at : places) {
    if (!status.ok()) return status;
    const auto link = links.find(at.index);
    const std::string device =
        link == links.end() ? absl::StrCat("if", at.index) : link->second.name;
    const std::string place = absl::StrCat("a tc filter of ", device, " ", at.text);
    const auto take = [&](const Message<tcmsg>& message) {
      const auto& [header, attributes] = message;
      // Each priority is listed first without options.
      if (!attributes.Bytes(TCA_OPTIONS)) return;
      const uint16_t protocol = ntohs(static_cast<uint16_t>(TC_H_MIN(header.tcm_info)));
      DeviceMark mark = {.place = place,
                         .text = absl::StrCat("pref ", TC_H_MAJ(header.tcm_info) >> 16),
                         .egress = at.egress,
                         .ipv4 = protocol != ETH_P_IPV6,
                         .ipv6 = protocol != ETH_P_IP};
      NoteFilter(attributes.Text(TCA_KIND).value_or(""), header.tcm_handle,
                 attributes.Nest(TCA_OPTIONS), mark);
      if (mark.marks != Marks()) found.push_back(std::move(mark));
    };
    status = Dump<tcmsg>(route, RTM_GETTFILTER, Asked(at.index, at.parent), take);
  }
  return status;
}

}  // namespace

DeviceMarks ReadDeviceMarks() {
  DeviceMarks marks;
  const auto note = [&](absl::string_view what, const absl::Status& status) {
    if (status.ok()) return;
    marks.problems.push_back(absl::StrCat("packet marks of ", what, ": ", status.message()));
  };
  const auto route = netlink::Socket::Open(NETLINK_ROUTE);
  Links links;
  const absl::Status listed = route.ok() ? ReadLinks(**route, links) : route.status();
  note("interfaces", listed);
  if (!listed.ok()) return marks;
  note("WireGuard interfaces", ReadWireguard(links, marks.found));
  note("tc filters", ReadFilters(**route, links, marks.found));
  return marks;
}

std::vector<Marking> MarkingsOf(const DeviceMarks& devices, absl::Span<const FwmarkRule> rules) {
  std::vector<Marking> markings;
  for (const std::string& problem : devices.problems) {
    markings.push_back({.from = "what cannot be read", .rule = problem, .bits = kAllMarks});
  }
  for (const DeviceMark& mark : devices.found) {
    markings.push_back({.from = mark.place,
                        .rule = mark.text,
                        .bits = mark.marks.set | mark.carried,
                        .ipv4 = mark.ipv4,
                        .ipv6 = mark.ipv6});
  }
  for (const FwmarkRule& rule : rules) {
    markings.push_back({.from = "a sender of packets that a routing rule selects",
                        .rule = rule.text,
                        .bits = rule.mark & rule.mask,
                        .ipv4 = rule.family == netlink::Family::kIPv4,
                        .ipv6 = rule.family == netlink::Family::kIPv6});
  }
  std::erase_if(markings, [](const Marking& marking) { return marking.bits == 0; });
  return markings;
}

std::vector<Marking> ReadMarkingsWithoutRules() {
  DeviceMarks devices = ReadDeviceMarks();
  const absl::StatusOr<std::vector<FwmarkRule>> rules = ReadFwmarkRules();
  if (rules.ok()) return MarkingsOf(devices, *rules);
  devices.problems.emplace_back(rules.status().message());
  return MarkingsOf(devices, {});
}

}  // namespace kipt::agent
