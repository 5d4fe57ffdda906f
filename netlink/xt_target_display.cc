// SPDX-License-Identifier: Apache-2.0
//
// Targets. The order of the options is libxt_*'s.
#include <arpa/inet.h>
#include <netinet/in.h>

#include "netlink/xt_display.h"
// Then the kernel's.
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/x_tables.h>
#include <linux/netfilter/xt_CONNMARK.h>
#include <linux/netfilter/xt_CT.h>
#include <linux/netfilter/xt_LOG.h>
#include <linux/netfilter/xt_NFLOG.h>
#include <linux/netfilter/xt_TCPMSS.h>
#include <linux/netfilter/xt_TPROXY.h>
#include <linux/netfilter_ipv4/ipt_REJECT.h>
#include <linux/netfilter_ipv6/ip6t_REJECT.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace kipt::netlink {
namespace {

using Text = std::optional<std::string>;

// ---- network address translation ----

// What all versions of the kernel's structs say, ports in host order.
struct NatRange {
  uint32_t flags = 0;
  nf_inet_addr first_address = {};
  nf_inet_addr last_address = {};
  uint16_t first_port = 0;
  uint16_t last_port = 0;
  uint16_t base_port = 0;
};

std::optional<NatRange> FromIpv4Range(XtBytes bytes) {
  const auto info = FromXtBytes<nf_nat_ipv4_multi_range_compat>(bytes);
  if (!info || info->rangesize != 1) return std::nullopt;
  const nf_nat_ipv4_range& range = info->range[0];
  NatRange result{.flags = range.flags};
  result.first_address.ip = range.min_ip;
  result.last_address.ip = range.max_ip;
  result.first_port = ntohs(range.min.all);
  result.last_port = ntohs(range.max.all);
  return result;
}

template <typename Info>
std::optional<NatRange> FromRange(XtBytes bytes) {
  const auto info = FromXtBytes<Info>(bytes);
  if (!info) return std::nullopt;
  NatRange result{.flags = info->flags,
                  .first_address = info->min_addr,
                  .last_address = info->max_addr,
                  .first_port = ntohs(info->min_proto.all),
                  .last_port = ntohs(info->max_proto.all)};
  if constexpr (std::is_same_v<Info, nf_nat_range2>) result.base_port = ntohs(info->base_proto.all);
  return result;
}

// The struct goes by target, family and revision.
std::optional<NatRange> ReadRange(Family family, bool own_revisions, uint32_t revision,
                                  XtBytes bytes) {
  if (!own_revisions) {
    return family == Family::kIPv4 ? FromIpv4Range(bytes) : FromRange<nf_nat_range>(bytes);
  }
  switch (revision) {
    case 0:
      return family == Family::kIPv4 ? FromIpv4Range(bytes) : std::nullopt;
    case 1:
      return FromRange<nf_nat_range>(bytes);
    case 2:
      return FromRange<nf_nat_range2>(bytes);
    default:
      return std::nullopt;
  }
}

std::string NatPorts(const NatRange& range) {
  std::string text = absl::StrCat(range.first_port);
  if (range.last_port != range.first_port) absl::StrAppend(&text, "-", range.last_port);
  if ((range.flags & NF_NAT_RANGE_PROTO_OFFSET) != 0) absl::StrAppend(&text, "/", range.base_port);
  return text;
}

// "10.0.0.1-10.0.0.9:80-90", "[fd00::1]:80", ":80".
std::string NatAddresses(Family family, const NatRange& range) {
  std::string text;
  if ((range.flags & NF_NAT_RANGE_MAP_IPS) != 0) {
    text = AddressText(family, &range.first_address);
    const std::string last = AddressText(family, &range.last_address);
    if (last != text) absl::StrAppend(&text, "-", last);
  }
  if ((range.flags & NF_NAT_RANGE_PROTO_SPECIFIED) == 0) return text;
  if (family == Family::kIPv6 && !text.empty()) text = absl::StrCat("[", text, "]");
  return absl::StrCat(text, ":", NatPorts(range));
}

// How the mapping is chosen, for the flags that iptables-save prints of a target.
Text NatChoice(const NatRange& range, uint32_t printed) {
  constexpr uint32_t kHow =
      NF_NAT_RANGE_PROTO_RANDOM | NF_NAT_RANGE_PROTO_RANDOM_FULLY | NF_NAT_RANGE_PERSISTENT;
  if ((range.flags & kHow & ~printed) != 0) return std::nullopt;
  const auto word = [&](uint32_t flag, const char* text) {
    return (range.flags & flag) != 0 ? text : "";
  };
  return absl::StrCat(word(NF_NAT_RANGE_PROTO_RANDOM, " --random"),
                      word(NF_NAT_RANGE_PROTO_RANDOM_FULLY, " --random-fully"),
                      word(NF_NAT_RANGE_PERSISTENT, " --persistent"));
}

constexpr uint32_t kPorts = NF_NAT_RANGE_PROTO_SPECIFIED | NF_NAT_RANGE_PROTO_OFFSET;
constexpr uint32_t kHowSnat =
    NF_NAT_RANGE_PROTO_RANDOM | NF_NAT_RANGE_PROTO_RANDOM_FULLY | NF_NAT_RANGE_PERSISTENT;
constexpr uint32_t kHowDnat = NF_NAT_RANGE_PROTO_RANDOM | NF_NAT_RANGE_PERSISTENT;
constexpr uint32_t kHowRedirect = NF_NAT_RANGE_PROTO_RANDOM;
constexpr uint32_t kHowMasquerade = NF_NAT_RANGE_PROTO_RANDOM | NF_NAT_RANGE_PROTO_RANDOM_FULLY;

bool IsBaseWithoutPorts(const NatRange& range) {
  return (range.flags & kPorts) == NF_NAT_RANGE_PROTO_OFFSET;
}

// DNAT and SNAT: an address, ports, or both.
Text NatToAddress(Family family, const char* option, uint32_t how, const NatRange& range) {
  constexpr uint32_t kWhere = NF_NAT_RANGE_MAP_IPS | kPorts;
  const Text choice = NatChoice(range, how);
  if (!choice || (range.flags & ~(kWhere | how)) != 0 || (range.flags & kWhere) == 0 ||
      IsBaseWithoutPorts(range)) {
    return std::nullopt;
  }
  return absl::StrCat(option, NatAddresses(family, range), *choice);
}

// REDIRECT and MASQUERADE: ports, or nothing.
Text NatToPorts(const char* target, uint32_t how, const NatRange& range) {
  const Text choice = NatChoice(range, how);
  if (!choice || (range.flags & ~(NF_NAT_RANGE_PROTO_SPECIFIED | how)) != 0) return std::nullopt;
  const bool ports = (range.flags & NF_NAT_RANGE_PROTO_SPECIFIED) != 0;
  return absl::StrCat(target, ports ? absl::StrCat(" --to-ports ", NatPorts(range)) : "", *choice);
}

Text Nat(Family family, absl::string_view name, uint32_t revision, XtBytes bytes) {
  const bool own_revisions = name == "DNAT" || name == "SNAT";
  if (!own_revisions && revision != 0) return std::nullopt;
  const std::optional<NatRange> range = ReadRange(family, own_revisions, revision, bytes);
  if (!range) return std::nullopt;
  if (name == "DNAT") return NatToAddress(family, "-j DNAT --to-destination ", kHowDnat, *range);
  if (name == "SNAT") return NatToAddress(family, "-j SNAT --to-source ", kHowSnat, *range);
  if (name == "REDIRECT") return NatToPorts("-j REDIRECT", kHowRedirect, *range);
  return NatToPorts("-j MASQUERADE", kHowMasquerade, *range);
}

// ---- others ----

struct RejectName {
  uint32_t code;
  const char* name;
};
constexpr RejectName kRejects[] = {
    {IPT_ICMP_NET_UNREACHABLE, "icmp-net-unreachable"},
    {IPT_ICMP_HOST_UNREACHABLE, "icmp-host-unreachable"},
    {IPT_ICMP_PROT_UNREACHABLE, "icmp-proto-unreachable"},
    {IPT_ICMP_PORT_UNREACHABLE, "icmp-port-unreachable"},
    {IPT_ICMP_NET_PROHIBITED, "icmp-net-prohibited"},
    {IPT_ICMP_HOST_PROHIBITED, "icmp-host-prohibited"},
    {IPT_TCP_RESET, "tcp-reset"},
    {IPT_ICMP_ADMIN_PROHIBITED, "icmp-admin-prohibited"},
};
constexpr RejectName kRejects6[] = {
    {IP6T_ICMP6_NO_ROUTE, "icmp6-no-route"},
    {IP6T_ICMP6_ADM_PROHIBITED, "icmp6-adm-prohibited"},
    {IP6T_ICMP6_ADDR_UNREACH, "icmp6-addr-unreachable"},
    {IP6T_ICMP6_PORT_UNREACH, "icmp6-port-unreachable"},
    {IP6T_TCP_RESET, "tcp-reset"},
    {IP6T_ICMP6_POLICY_FAIL, "icmp6-policy-fail"},
    {IP6T_ICMP6_REJECT_ROUTE, "icmp6-reject-route"},
};

template <size_t kSize>
Text RejectText(const RejectName (&names)[kSize], uint32_t code) {
  const auto* const known = std::find_if(std::begin(names), std::end(names),
                                         [&](const RejectName& name) { return name.code == code; });
  if (known == std::end(names)) return std::nullopt;
  return absl::StrCat("-j REJECT --reject-with ", known->name);
}

Text Reject(Family family, XtBytes bytes) {
  // Both families' structs are one enum.
  static_assert(sizeof(ipt_reject_info) == 4 && sizeof(ip6t_reject_info) == 4);
  const auto code = FromXtBytes<uint32_t>(bytes);
  if (!code) return std::nullopt;
  return family == Family::kIPv4 ? RejectText(kRejects, *code) : RejectText(kRejects6, *code);
}

Text Log(Family /*family*/, XtBytes bytes) {
  constexpr unsigned kWarning = 4;  // what libxt_LOG writes where no level is given
  const auto info = FromXtBytes<xt_log_info>(bytes);
  if (!info || (info->logflags & ~XT_LOG_MASK) != 0 || info->level > 7) return std::nullopt;
  const size_t length = strnlen(info->prefix, sizeof(info->prefix));
  if (length == sizeof(info->prefix)) return std::nullopt;
  std::string text = "-j LOG";
  if (length != 0) {
    text += OptionWords("--log-prefix", QuoteForSave(absl::string_view(info->prefix, length)));
  }
  if (info->level != kWarning) {
    text += OptionWords("--log-level", absl::StrCat(static_cast<unsigned>(info->level)));
  }
  const auto flag = [&](unsigned bit, const char* option) {
    if ((info->logflags & bit) != 0) text += option;
  };
  flag(XT_LOG_TCPSEQ, " --log-tcp-sequence");
  flag(XT_LOG_TCPOPT, " --log-tcp-options");
  flag(XT_LOG_IPOPT, " --log-ip-options");
  flag(XT_LOG_UID, " --log-uid");
  flag(XT_LOG_MACDECODE, " --log-macdecode");
  return text;
}

Text Nflog(Family /*family*/, XtBytes bytes) {
  const auto info = FromXtBytes<xt_nflog_info>(bytes);
  if (!info || (info->flags & ~XT_NFLOG_MASK) != 0) return std::nullopt;
  const size_t length = strnlen(info->prefix, sizeof(info->prefix));
  const bool copies = (info->flags & XT_NFLOG_F_COPY_LEN) != 0;
  // A length without its flag is an option that the kernel ignores.
  if (length == sizeof(info->prefix) || (info->len != 0 && !copies)) return std::nullopt;
  return NflogText({.prefix = std::string(info->prefix, length),
                    .group = info->group,
                    .copy_bytes = info->len,
                    .threshold = info->threshold});
}

Text ConnmarkText(uint8_t mode, uint32_t ctmark, uint32_t ctmask, uint32_t nfmask) {
  const auto masks = [&](const char* option) {
    return absl::StrCat("-j CONNMARK ", option, " --nfmask 0x", absl::Hex(nfmask), " --ctmask 0x",
                        absl::Hex(ctmask));
  };
  switch (mode) {
    case XT_CONNMARK_SET:
      return absl::StrCat("-j CONNMARK --set-xmark 0x", absl::Hex(ctmark), "/0x",
                          absl::Hex(ctmask));
    case XT_CONNMARK_SAVE:
      return masks("--save-mark");
    case XT_CONNMARK_RESTORE:
      return masks("--restore-mark");
    default:
      return std::nullopt;
  }
}

Text Connmark1(Family /*family*/, XtBytes bytes) {
  const auto info = FromXtBytes<xt_connmark_tginfo1>(bytes);
  if (!info) return std::nullopt;
  return ConnmarkText(info->mode, info->ctmark, info->ctmask, info->nfmask);
}

Text Connmark2(Family /*family*/, XtBytes bytes) {
  const auto info = FromXtBytes<xt_connmark_tginfo2>(bytes);
  if (!info || info->shift_bits != 0 || info->shift_dir != D_SHIFT_LEFT) return std::nullopt;
  return ConnmarkText(info->mode, info->ctmark, info->ctmask, info->nfmask);
}

// Only what takes packets out of connection tracking.
template <typename Info>
Text Ct(Family /*family*/, XtBytes bytes) {
  const auto info = FromXtBytes<Info>(bytes);
  if (!info || info->zone != 0 || info->ct_events != 0 || info->exp_events != 0 ||
      info->helper[0] != '\0') {
    return std::nullopt;
  }
  if constexpr (std::is_same_v<Info, xt_ct_target_info_v1>) {
    if (info->timeout[0] != '\0') return std::nullopt;
  }
  switch (info->flags) {
    case XT_CT_NOTRACK:
      return "-j CT --notrack";
    case XT_CT_NOTRACK | XT_CT_NOTRACK_ALIAS:
      return "-j NOTRACK";
    default:
      return std::nullopt;
  }
}

Text Notrack(Family /*family*/, XtBytes bytes) {
  return bytes.empty() ? Text("-j NOTRACK") : std::nullopt;
}

Text TcpMss(Family /*family*/, XtBytes bytes) {
  const auto info = FromXtBytes<xt_tcpmss_info>(bytes);
  if (!info) return std::nullopt;
  if (info->mss == XT_TCPMSS_CLAMP_PMTU) return "-j TCPMSS --clamp-mss-to-pmtu";
  return absl::StrCat("-j TCPMSS --set-mss ", info->mss);
}

Text Tproxy(Family family, XtBytes bytes) {
  const auto info = FromXtBytes<xt_tproxy_target_info_v1>(bytes);
  if (!info) return std::nullopt;
  return absl::StrCat("-j TPROXY --on-port ", ntohs(info->lport), " --on-ip ",
                      AddressText(family, &info->laddr), " --tproxy-mark 0x",
                      absl::Hex(info->mark_value), "/0x", absl::Hex(info->mark_mask));
}

struct KnownTarget {
  absl::string_view name;
  uint32_t revision;
  Text (*display)(Family, XtBytes);
};
constexpr KnownTarget kTargets[] = {
    {"CONNMARK", 1, Connmark1},
    {"CONNMARK", 2, Connmark2},
    {"CT", 0, Ct<xt_ct_target_info>},
    {"CT", 1, Ct<xt_ct_target_info_v1>},
    {"CT", 2, Ct<xt_ct_target_info_v1>},
    {"LOG", 0, Log},
    {"NFLOG", 0, Nflog},
    {"NOTRACK", 0, Notrack},
    {"REJECT", 0, Reject},
    {"TCPMSS", 0, TcpMss},
    {"TPROXY", 1, Tproxy},
};

}  // namespace

std::optional<std::string> DisplayXtTarget(Family family, absl::string_view name, uint32_t revision,
                                           XtBytes info) {
  if (name == "DNAT" || name == "SNAT" || name == "REDIRECT" || name == "MASQUERADE") {
    return Nat(family, name, revision, info);
  }
  const auto* const known =
      std::find_if(std::begin(kTargets), std::end(kTargets), [&](const KnownTarget& target) {
        return target.name == name && target.revision == revision;
      });
  return known == std::end(kTargets) ? std::nullopt : known->display(family, info);
}

}  // namespace kipt::netlink
