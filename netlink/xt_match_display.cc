// SPDX-License-Identifier: Apache-2.0
//
// Matches. The order of the options is libxt_*'s.
#include <net/if.h>
#include <netinet/in.h>

#include "netlink/xt_display.h"
// Then the kernel's.
#include <linux/netfilter/x_tables.h>
#include <linux/netfilter/xt_addrtype.h>
#include <linux/netfilter/xt_connmark.h>
#include <linux/netfilter/xt_limit.h>
#include <linux/netfilter/xt_multiport.h>
#include <linux/netfilter/xt_nfacct.h>
#include <linux/netfilter/xt_physdev.h>
#include <linux/netfilter/xt_recent.h>
#include <linux/netfilter/xt_statistic.h>
#include <linux/netfilter/xt_tcpudp.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace kipt::netlink {
namespace {

// One range of ports of a match. Nothing where iptables-save would not print it although it says
// something: all ports, negated.
void AddPorts(OptionList& options, const char* option, const uint16_t (&ports)[2], bool negated) {
  const bool all = ports[0] == 0 && ports[1] == 0xffff;
  const Spelling text = all ? std::nullopt : Spelling(PortsText(ports[0], ports[1]));
  options.Add(!all || negated, option, text, negated);
}

// A name that iptables-save prints without quotes, as far as it needs none.
Spelling PlainName(const char* bytes, size_t size) {
  const size_t length = strnlen(bytes, size);
  const absl::string_view name(bytes, length);
  const bool plain =
      length > 0 && length < size && std::all_of(name.begin(), name.end(), [](char c) {
        return absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != '"' && c != '\'' &&
               c != '\\';
      });
  return plain ? Spelling(std::string(name)) : std::nullopt;
}

Spelling Tcp(const xt_tcp& info) {
  if ((info.invflags & ~XT_TCP_INV_MASK) != 0) return std::nullopt;
  const auto inverted = [&](uint8_t flag) { return (info.invflags & flag) != 0; };
  OptionList options("-m tcp");
  AddPorts(options, "--sport", info.spts, inverted(XT_TCP_INV_SRCPT));
  AddPorts(options, "--dport", info.dpts, inverted(XT_TCP_INV_DSTPT));
  options.Add(info.option != 0 || inverted(XT_TCP_INV_OPTION), "--tcp-option",
              absl::StrCat(static_cast<unsigned>(info.option)), inverted(XT_TCP_INV_OPTION));
  options.Add(info.flg_mask != 0 || info.flg_cmp != 0 || inverted(XT_TCP_INV_FLAGS), "--tcp-flags",
              TcpFlagsText(info.flg_mask, info.flg_cmp), inverted(XT_TCP_INV_FLAGS));
  return options.text();
}

Spelling Udp(const xt_udp& info) {
  if ((info.invflags & ~XT_UDP_INV_MASK) != 0) return std::nullopt;
  OptionList options("-m udp");
  AddPorts(options, "--sport", info.spts, (info.invflags & XT_UDP_INV_SRCPT) != 0);
  AddPorts(options, "--dport", info.dpts, (info.invflags & XT_UDP_INV_DSTPT) != 0);
  return options.text();
}

// struct xt_sctp_info of linux/netfilter/xt_sctp.h, which is no C++.
struct SctpInfo {
  uint16_t dpts[2];
  uint16_t spts[2];
  uint32_t chunk_map[64];
  uint32_t chunk_match_type;
  struct {
    uint8_t chunk_type;
    uint8_t flag;
    uint8_t flag_mask;
  } flag_info[4];
  int32_t flag_count;
  uint32_t flags;
  uint32_t invflags;
};
constexpr uint32_t kSctpSourcePorts = 1;  // XT_SCTP_SRC_PORTS
constexpr uint32_t kSctpDestinationPorts = 2;

Spelling Sctp(const SctpInfo& info) {
  constexpr uint32_t kPorts = kSctpSourcePorts | kSctpDestinationPorts;
  if ((info.flags & ~kPorts) != 0 || (info.invflags & ~info.flags) != 0) return std::nullopt;
  OptionList options("-m sctp");
  const auto add = [&](uint32_t flag, const char* option, const uint16_t(&ports)[2]) {
    options.Add((info.flags & flag) != 0, option, PortsText(ports[0], ports[1]),
                (info.invflags & flag) != 0);
  };
  add(kSctpSourcePorts, "--sport", info.spts);
  add(kSctpDestinationPorts, "--dport", info.dpts);
  return options.text();
}

// "8", "3/4", "any"; `any` is the type that stands for all.
Spelling IcmpType(uint8_t type, const uint8_t (&code)[2], std::optional<uint8_t> any) {
  const bool all_codes = code[0] == 0 && code[1] == 0xff;
  if (type == any) return all_codes ? Spelling("any") : std::nullopt;
  const std::string text = absl::StrCat(static_cast<unsigned>(type));
  if (all_codes) return text;
  if (code[0] != code[1]) return std::nullopt;
  return absl::StrCat(text, "/", static_cast<unsigned>(code[0]));
}

Spelling Icmp(const ipt_icmp& info) {
  if (info.invflags > IPT_ICMP_INV) return std::nullopt;
  OptionList options("-m icmp");
  options.Add(true, "--icmp-type", IcmpType(info.type, info.code, 0xff), info.invflags != 0);
  return options.text();
}

Spelling Icmp6(const ip6t_icmp& info) {
  // 255 has become "any" with some version of iptables.
  if (info.invflags > IP6T_ICMP_INV || info.type == 0xff) return std::nullopt;
  OptionList options("-m icmp6");
  options.Add(true, "--icmpv6-type", IcmpType(info.type, info.code, std::nullopt),
              info.invflags != 0);
  return options.text();
}

Spelling Multiport(const xt_multiport_v1& info) {
  static constexpr const char* kOptions[] = {"--sports", "--dports", "--ports"};
  if (info.flags > XT_MULTIPORT_EITHER || info.count == 0 || info.count > XT_MULTI_PORTS ||
      info.invert > 1) {
    return std::nullopt;
  }
  std::vector<std::string> ports;
  for (size_t i = 0; i < info.count; ++i) {
    const uint16_t first = info.ports[i];
    const bool is_range = info.pflags[i] != 0;
    if (is_range && ++i == info.count) return std::nullopt;
    ports.push_back(is_range ? absl::StrCat(first, ":", info.ports[i]) : absl::StrCat(first));
  }
  return absl::StrCat("-m multiport", OptionWords(kOptions[info.flags], absl::StrJoin(ports, ","),
                                                  info.invert == 1));
}

Spelling AddressTypes(uint16_t types) {
  return BitNames({"UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE",
                   "UNREACHABLE", "PROHIBIT", "THROW", "NAT", "XRESOLVE"},
                  types);
}

Spelling AddressTypeText(uint16_t source, uint16_t destination, uint32_t flags) {
  const auto has = [&](uint32_t flag) { return (flags & flag) != 0; };
  if ((source == 0 && has(XT_ADDRTYPE_INVERT_SOURCE)) ||
      (destination == 0 && has(XT_ADDRTYPE_INVERT_DEST))) {
    return std::nullopt;
  }
  OptionList options("-m addrtype");
  options.Add(source != 0, "--src-type", AddressTypes(source), has(XT_ADDRTYPE_INVERT_SOURCE));
  options.Add(destination != 0, "--dst-type", AddressTypes(destination),
              has(XT_ADDRTYPE_INVERT_DEST));
  options.Add(has(XT_ADDRTYPE_LIMIT_IFACE_IN), "--limit-iface-in");
  options.Add(has(XT_ADDRTYPE_LIMIT_IFACE_OUT), "--limit-iface-out");
  return options.text();
}

Spelling AddressType0(const xt_addrtype_info& info) {
  if (info.invert_source > 1 || info.invert_dest > 1) return std::nullopt;
  return AddressTypeText(info.source, info.dest, info.invert_source | info.invert_dest << 1);
}

Spelling AddressType1(const xt_addrtype_info_v1& info) {
  return info.flags > 0xf ? std::nullopt : AddressTypeText(info.source, info.dest, info.flags);
}

Spelling Statistic(const xt_statistic_info& info) {
  if ((info.flags & ~XT_STATISTIC_MASK) != 0) return std::nullopt;
  const bool negated = (info.flags & XT_STATISTIC_INVERT) != 0;
  if (info.mode == XT_STATISTIC_MODE_RANDOM) {
    const double probability = info.u.random.probability / static_cast<double>(0x80000000U);
    return absl::StrCat(
        "-m statistic --mode random",
        OptionWords("--probability", absl::StrFormat("%.11f", probability), negated));
  }
  if (info.mode != XT_STATISTIC_MODE_NTH || info.u.nth.every == UINT32_MAX) return std::nullopt;
  return absl::StrCat("-m statistic --mode nth",
                      OptionWords("--every", absl::StrCat(info.u.nth.every + 1), negated),
                      " --packet ", info.u.nth.packet);
}

Spelling Recent(Family family, const xt_recent_mtinfo_v1& info) {
  const auto has = [&](uint8_t flag) { return (info.check_set & flag) != 0; };
  if (info.invert > 1 || info.side > XT_RECENT_DEST ||
      (info.check_set & ~XT_RECENT_VALID_FLAGS) != 0 ||
      (has(XT_RECENT_REAP) && info.seconds == 0)) {
    return std::nullopt;
  }
  static constexpr struct {
    uint8_t flag;
    const char* option;
  } kModes[] = {{XT_RECENT_SET, "--set"},
                {XT_RECENT_CHECK, "--rcheck"},
                {XT_RECENT_UPDATE, "--update"},
                {XT_RECENT_REMOVE, "--remove"}};
  const auto* const mode = std::find_if(std::begin(kModes), std::end(kModes), [&](const auto& row) {
    return row.flag == (info.check_set & ~XT_RECENT_MODIFIERS);
  });
  if (mode == std::end(kModes)) return std::nullopt;
  OptionList options("-m recent");
  options.Add(true, mode->option, "", info.invert == 1);
  options.Add(info.seconds != 0, "--seconds", absl::StrCat(info.seconds));
  options.Add(has(XT_RECENT_REAP), "--reap");
  options.Add(info.hit_count != 0, "--hitcount", absl::StrCat(info.hit_count));
  options.Add(has(XT_RECENT_TTL), "--rttl");
  options.Add(true, "--name", PlainName(info.name, sizeof(info.name)));
  options.Add(true, "--mask", AddressText(family, &info.mask));
  options.Add(true, info.side == XT_RECENT_SOURCE ? "--rsource" : "--rdest");
  return options.text();
}

Spelling Limit(const xt_rateinfo& info) { return LimitText(info.avg, info.burst); }

Spelling Connmark(const xt_connmark_mtinfo1& info) {
  if (info.invert > 1) return std::nullopt;
  return absl::StrCat("-m connmark",
                      OptionWords("--mark", MarkText(info.mark, info.mask), info.invert == 1));
}

// `mask` has a one for each byte of `name` that counts.
Spelling PhysicalDevice(const char (&name)[IFNAMSIZ], const char (&mask)[IFNAMSIZ]) {
  Spelling plain = PlainName(name, sizeof(name));
  if (!plain) return std::nullopt;
  size_t counted = 0;
  while (counted < sizeof(mask) && mask[counted] == '\xff') ++counted;
  const bool rest_is_zero =
      std::all_of(mask + counted, std::end(mask), [](char c) { return c == 0; });
  if (!rest_is_zero) return std::nullopt;
  // With its NUL, all of the name counts.
  if (counted > plain->size()) return plain;
  return counted == plain->size() ? Spelling(*plain + "+") : std::nullopt;
}

Spelling Physdev(const xt_physdev_info& info) {
  if ((info.bitmask & ~XT_PHYSDEV_OP_MASK) != 0 || (info.invert & ~info.bitmask) != 0) {
    return std::nullopt;
  }
  OptionList options("-m physdev");
  const auto add = [&](uint8_t flag, const char* option, const Spelling& value) {
    options.Add((info.bitmask & flag) != 0, option, value, (info.invert & flag) != 0);
  };
  add(XT_PHYSDEV_OP_ISIN, "--physdev-is-in", "");
  add(XT_PHYSDEV_OP_IN, "--physdev-in", PhysicalDevice(info.physindev, info.in_mask));
  add(XT_PHYSDEV_OP_ISOUT, "--physdev-is-out", "");
  add(XT_PHYSDEV_OP_OUT, "--physdev-out", PhysicalDevice(info.physoutdev, info.out_mask));
  add(XT_PHYSDEV_OP_BRIDGED, "--physdev-is-bridged", "");
  return options.text();
}

// Revision 0 differs in where 32-bit machines put a pointer of the kernel's.
Spelling Nfacct(const xt_nfacct_match_info_v1& info) {
  const Spelling name = PlainName(info.name, sizeof(info.name));
  // Two spaces, as libxt_nfacct has them.
  return name ? Spelling(absl::StrCat("-m nfacct --nfacct-name  ", QuoteForSave(*name)))
              : std::nullopt;
}

struct Match {
  absl::string_view name;
  uint32_t revision;
  Spelling (*display)(Family, XtBytes);
};
constexpr Match kMatches[] = {
    {"addrtype", 0, Of<xt_addrtype_info, AddressType0>},
    {"addrtype", 1, Of<xt_addrtype_info_v1, AddressType1>},
    {"connmark", 1, Of<xt_connmark_mtinfo1, Connmark>},
    {"icmp", 0, Of<ipt_icmp, Icmp>},
    {"icmp6", 0, Of<ip6t_icmp, Icmp6>},
    {"limit", 0, Of<xt_rateinfo, Limit>},
    {"multiport", 1, Of<xt_multiport_v1, Multiport>},
    {"nfacct", 0, Of<xt_nfacct_match_info_v1, Nfacct>},
    {"nfacct", 1, Of<xt_nfacct_match_info_v1, Nfacct>},
    {"physdev", 0, Of<xt_physdev_info, Physdev>},
    {"recent", 1, Of<xt_recent_mtinfo_v1, Recent>},
    {"sctp", 0, Of<SctpInfo, Sctp>},
    {"statistic", 0, Of<xt_statistic_info, Statistic>},
    {"tcp", 0, Of<xt_tcp, Tcp>},
    {"udp", 0, Of<xt_udp, Udp>},
};

}  // namespace

std::optional<std::string> DisplayXtMatch(Family family, absl::string_view name, uint32_t revision,
                                          XtBytes info) {
  if (name == "conntrack") return DisplayConntrack(family, revision, info);
  const auto* const known = std::find_if(
      std::begin(kMatches), std::end(kMatches),
      [&](const Match& match) { return match.name == name && match.revision == revision; });
  return known == std::end(kMatches) ? std::nullopt : known->display(family, info);
}

}  // namespace kipt::netlink
