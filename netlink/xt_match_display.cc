// SPDX-License-Identifier: Apache-2.0
//
// Matches. The order of the options is libxt_*'s.
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include "netlink/comparison.h"
#include "netlink/xt_display.h"
// Then the kernel's.
#include <linux/netfilter/x_tables.h>
#include <linux/netfilter/xt_addrtype.h>
#include <linux/netfilter/xt_connmark.h>
#include <linux/netfilter/xt_conntrack.h>
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
#include <bit>
#include <cstddef>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
namespace kipt::netlink {
namespace {

// One range of ports of a match. iptables-save does not print that of all ports.
void AddPorts(OptionList& options, const char* option, const uint16_t (&ports)[2], bool negated) {
  options.AddIf(ports[0] != 0 || ports[1] != 0xffff, option, PortsText(ports[0], ports[1]),
                negated);
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
  OptionList options("-m tcp", info.invflags);
  AddPorts(options, "--sport", info.spts, options.Has(XT_TCP_INV_SRCPT));
  AddPorts(options, "--dport", info.dpts, options.Has(XT_TCP_INV_DSTPT));
  const bool not_option = options.Has(XT_TCP_INV_OPTION);
  options.AddIf(info.option != 0 || not_option, "--tcp-option",
                absl::StrCat(static_cast<unsigned>(info.option)), not_option);
  const bool not_flags = options.Has(XT_TCP_INV_FLAGS);
  options.AddIf(info.flg_mask != 0 || info.flg_cmp != 0 || not_flags, "--tcp-flags",
                TcpFlagsText(info.flg_mask, info.flg_cmp), not_flags);
  return options.text();
}

Spelling Udp(const xt_udp& info) {
  OptionList options("-m udp", info.invflags);
  AddPorts(options, "--sport", info.spts, options.Has(XT_UDP_INV_SRCPT));
  AddPorts(options, "--dport", info.dpts, options.Has(XT_UDP_INV_DSTPT));
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

Spelling Sctp(const SctpInfo& info) {
  OptionList options("-m sctp", info.flags, info.invflags);
  options.AddFlag(/*XT_SCTP_SRC_PORTS*/ 1, "--sport", PortsText(info.spts[0], info.spts[1]));
  options.AddFlag(/*XT_SCTP_DEST_PORTS*/ 2, "--dport", PortsText(info.dpts[0], info.dpts[1]));
  return options.text();
}

// For both families; `any` is the text of type 255: "8", "3/4", "any".
Spelling IcmpText(absl::string_view match, const char* option, const Spelling& any,
                  const auto& info) {
  const bool all_codes = info.code[0] == 0 && info.code[1] == 0xff;
  if (!all_codes && (info.type == 0xff || info.code[0] != info.code[1])) return std::nullopt;
  std::string type = absl::StrCat(static_cast<unsigned>(info.type));
  if (!all_codes) absl::StrAppend(&type, "/", static_cast<unsigned>(info.code[0]));
  OptionList options(match, info.invflags);
  options.Add(option, info.type == 0xff ? any : type, options.Has(IPT_ICMP_INV));
  return options.text();
}
static_assert(IPT_ICMP_INV == IP6T_ICMP_INV);

Spelling Icmp(const ipt_icmp& info) { return IcmpText("-m icmp", "--icmp-type", "any", info); }

// 255 has become "any" with some version of iptables.
Spelling Icmp6(const ip6t_icmp& info) {
  return IcmpText("-m icmp6", "--icmpv6-type", std::nullopt, info);
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
  OptionList options("-m addrtype", flags);
  options.AddIf(source != 0, "--src-type", AddressTypes(source),
                options.Has(XT_ADDRTYPE_INVERT_SOURCE));
  options.AddIf(destination != 0, "--dst-type", AddressTypes(destination),
                options.Has(XT_ADDRTYPE_INVERT_DEST));
  options.AddFlag(XT_ADDRTYPE_LIMIT_IFACE_IN, "--limit-iface-in");
  options.AddFlag(XT_ADDRTYPE_LIMIT_IFACE_OUT, "--limit-iface-out");
  return options.text();
}

Spelling AddressType0(const xt_addrtype_info& info) {
  if (info.invert_source > 1 || info.invert_dest > 1) return std::nullopt;
  return AddressTypeText(info.source, info.dest, info.invert_source | info.invert_dest << 1);
}

Spelling AddressType1(const xt_addrtype_info_v1& info) {
  return AddressTypeText(info.source, info.dest, info.flags);
}

Spelling Statistic(const xt_statistic_info& info) {
  OptionList options("-m statistic", info.flags);
  const bool negated = options.Has(XT_STATISTIC_INVERT);
  if (info.mode == XT_STATISTIC_MODE_RANDOM) {
    const double probability = info.u.random.probability / static_cast<double>(0x80000000U);
    options.Add("--mode", "random");
    options.Add("--probability", absl::StrFormat("%.11f", probability), negated);
    return options.text();
  }
  if (info.mode != XT_STATISTIC_MODE_NTH || info.u.nth.every == UINT32_MAX) return std::nullopt;
  options.Add("--mode", "nth");
  options.Add("--every", absl::StrCat(info.u.nth.every + 1), negated);
  options.Add("--packet", absl::StrCat(info.u.nth.packet));
  return options.text();
}

Spelling Recent(Family family, const xt_recent_mtinfo_v1& info) {
  const uint32_t flags = info.check_set;
  const uint32_t mode = flags & ~uint32_t{XT_RECENT_MODIFIERS};
  if (info.invert > 1 || info.side > XT_RECENT_DEST || std::popcount(mode) != 1 ||
      ((flags & XT_RECENT_REAP) != 0 && info.seconds == 0)) {
    return std::nullopt;
  }
  OptionList options("-m recent", flags, info.invert == 1 ? mode : 0);
  options.AddFlag(XT_RECENT_SET, "--set");
  options.AddFlag(XT_RECENT_CHECK, "--rcheck");
  options.AddFlag(XT_RECENT_UPDATE, "--update");
  options.AddFlag(XT_RECENT_REMOVE, "--remove");
  options.AddIf(info.seconds != 0, "--seconds", absl::StrCat(info.seconds));
  options.AddFlag(XT_RECENT_REAP, "--reap");
  options.AddIf(info.hit_count != 0, "--hitcount", absl::StrCat(info.hit_count));
  options.AddFlag(XT_RECENT_TTL, "--rttl");
  options.Add("--name", PlainName(info.name, sizeof(info.name)));
  options.Add("--mask", AddressText(family, &info.mask));
  options.Add(info.side == XT_RECENT_SOURCE ? "--rsource" : "--rdest");
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
  // iptables leaves the plus sign in the name.
  if (counted + 1 == plain->size() && plain->back() == '+') return plain;
  return counted == plain->size() ? Spelling(*plain + "+") : std::nullopt;
}

Spelling Physdev(const xt_physdev_info& info) {
  OptionList options("-m physdev", info.bitmask, info.invert);
  options.AddFlag(XT_PHYSDEV_OP_ISIN, "--physdev-is-in");
  options.AddFlag(XT_PHYSDEV_OP_IN, "--physdev-in", PhysicalDevice(info.physindev, info.in_mask));
  options.AddFlag(XT_PHYSDEV_OP_ISOUT, "--physdev-is-out");
  options.AddFlag(XT_PHYSDEV_OP_OUT, "--physdev-out",
                  PhysicalDevice(info.physoutdev, info.out_mask));
  options.AddFlag(XT_PHYSDEV_OP_BRIDGED, "--physdev-is-bridged");
  return options.text();
}

// Revision 0 differs in where 32-bit machines put a pointer of the kernel's.
Spelling Nfacct(const xt_nfacct_match_info_v1& info) {
  const Spelling name = PlainName(info.name, sizeof(info.name));
  // Two spaces, as libxt_nfacct has them.
  return name ? Spelling(absl::StrCat("-m nfacct --nfacct-name  ", QuoteForSave(*name)))
              : std::nullopt;
}

// ---- conntrack, beyond its states ----

Spelling AddressAndMask(Family family, const nf_inet_addr& address, const nf_inet_addr& mask) {
  const size_t size = family == Family::kIPv4 ? 4 : 16;
  const std::optional<uint8_t> bits = PrefixLength({reinterpret_cast<const uint8_t*>(&mask), size});
  if (!bits || *bits == 0) return std::nullopt;
  const std::string text = AddressText(family, &address);
  return *bits == size * 8 ? text : absl::StrCat(text, "/", *bits);
}

// In the words of a Rule that has this one match.
Spelling StatesText(uint16_t states) {
  if (!IsKnownCtState(states)) return std::nullopt;
  const Rule rule = {.ct_state = CtStateMatch{.states = states}, .target = NoTarget{}};
  return std::string(absl::StripPrefix(ToString(Family::kIPv4, rule), "-m conntrack --ctstate "));
}

Spelling Conntrack(Family family, const xt_conntrack_mtinfo3& info) {
  // The inverse of a direction is the other one.
  const bool reply = (info.match_flags & info.invert_flags & XT_CONNTRACK_DIRECTION) != 0;
  OptionList options("-m conntrack", info.match_flags,
                     info.invert_flags & ~(reply ? uint32_t{XT_CONNTRACK_DIRECTION} : 0));
  options.AddFlag(XT_CONNTRACK_STATE, "--ctstate", StatesText(info.state_mask));
  options.AddFlag(XT_CONNTRACK_PROTO, "--ctproto", absl::StrCat(info.l4proto));
  options.AddFlag(XT_CONNTRACK_ORIGSRC, "--ctorigsrc",
                  AddressAndMask(family, info.origsrc_addr, info.origsrc_mask));
  options.AddFlag(XT_CONNTRACK_ORIGDST, "--ctorigdst",
                  AddressAndMask(family, info.origdst_addr, info.origdst_mask));
  options.AddFlag(XT_CONNTRACK_REPLSRC, "--ctreplsrc",
                  AddressAndMask(family, info.replsrc_addr, info.replsrc_mask));
  options.AddFlag(XT_CONNTRACK_REPLDST, "--ctrepldst",
                  AddressAndMask(family, info.repldst_addr, info.repldst_mask));
  options.AddFlag(XT_CONNTRACK_ORIGSRC_PORT, "--ctorigsrcport",
                  PortsText(info.origsrc_port, info.origsrc_port_high));
  options.AddFlag(XT_CONNTRACK_ORIGDST_PORT, "--ctorigdstport",
                  PortsText(info.origdst_port, info.origdst_port_high));
  options.AddFlag(XT_CONNTRACK_REPLSRC_PORT, "--ctreplsrcport",
                  PortsText(info.replsrc_port, info.replsrc_port_high));
  options.AddFlag(XT_CONNTRACK_REPLDST_PORT, "--ctrepldstport",
                  PortsText(info.repldst_port, info.repldst_port_high));
  // The lowest of the bits IPS_*.
  options.AddFlag(
      XT_CONNTRACK_STATUS, "--ctstatus",
      info.status_mask == 0
          ? "NONE"
          : BitNames({"EXPECTED", "SEEN_REPLY", "ASSURED", "CONFIRMED"}, info.status_mask));
  const bool one = info.expires_min == info.expires_max;
  options.AddFlag(XT_CONNTRACK_EXPIRES, "--ctexpire",
                  absl::StrCat(info.expires_min, one ? "" : absl::StrCat(":", info.expires_max)));
  options.AddFlag(XT_CONNTRACK_DIRECTION, "--ctdir", reply ? "REPLY" : "ORIGINAL");
  return options.text();
}

// Revisions 1 and 2: the beginning of revision 3, with single ports in network order.
template <typename Info>
Spelling OldConntrack(Family family, const Info& old) {
  static_assert(offsetof(Info, state_mask) == offsetof(xt_conntrack_mtinfo3, state_mask));
  xt_conntrack_mtinfo3 info = {};
  std::memcpy(&info, &old, offsetof(Info, state_mask));
  info.state_mask = old.state_mask;
  info.status_mask = old.status_mask;
  info.origsrc_port = info.origsrc_port_high = ntohs(old.origsrc_port);
  info.origdst_port = info.origdst_port_high = ntohs(old.origdst_port);
  info.replsrc_port = info.replsrc_port_high = ntohs(old.replsrc_port);
  info.repldst_port = info.repldst_port_high = ntohs(old.repldst_port);
  return Conntrack(family, info);
}

constexpr XtDisplay kMatches[] = {
    {"addrtype", 0, Of<xt_addrtype_info, AddressType0>},
    {"addrtype", 1, Of<xt_addrtype_info_v1, AddressType1>},
    {"connmark", 1, Of<xt_connmark_mtinfo1, Connmark>},
    {"conntrack", 1, Of<xt_conntrack_mtinfo1, OldConntrack<xt_conntrack_mtinfo1>>},
    {"conntrack", 2, Of<xt_conntrack_mtinfo2, OldConntrack<xt_conntrack_mtinfo2>>},
    {"conntrack", 3, Of<xt_conntrack_mtinfo3, Conntrack>},
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
  return Display(kMatches, family, name, revision, info);
}

}  // namespace kipt::netlink
