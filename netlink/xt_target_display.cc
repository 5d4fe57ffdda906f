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
  return NatRange{.flags = range.flags,
                  .first_address = {.ip = range.min_ip},
                  .last_address = {.ip = range.max_ip},
                  .first_port = ntohs(range.min.all),
                  .last_port = ntohs(range.max.all)};
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
  if (family == Family::kIPv4 && revision == 0) return FromIpv4Range(bytes);
  if (!own_revisions) return FromRange<nf_nat_range>(bytes);
  if (revision == 1) return FromRange<nf_nat_range>(bytes);
  return revision == 2 ? FromRange<nf_nat_range2>(bytes) : std::nullopt;
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
Spelling NatChoice(const NatRange& range, uint32_t printed) {
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
Spelling NatToAddress(Family family, const char* option, uint32_t how, const NatRange& range) {
  constexpr uint32_t kWhere = NF_NAT_RANGE_MAP_IPS | kPorts;
  const Spelling choice = NatChoice(range, how);
  if (!choice || (range.flags & ~(kWhere | how)) != 0 || (range.flags & kWhere) == 0 ||
      IsBaseWithoutPorts(range)) {
    return std::nullopt;
  }
  return absl::StrCat(option, NatAddresses(family, range), *choice);
}

// REDIRECT and MASQUERADE: ports, or nothing.
Spelling NatToPorts(const char* target, uint32_t how, const NatRange& range) {
  const Spelling choice = NatChoice(range, how);
  if (!choice || (range.flags & ~(NF_NAT_RANGE_PROTO_SPECIFIED | how)) != 0) return std::nullopt;
  const bool ports = (range.flags & NF_NAT_RANGE_PROTO_SPECIFIED) != 0;
  return absl::StrCat(target, ports ? absl::StrCat(" --to-ports ", NatPorts(range)) : "", *choice);
}

Spelling Nat(Family family, absl::string_view name, uint32_t revision, XtBytes bytes) {
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

// By enum ipt_reject_with and enum ip6t_reject_with.
constexpr const char* kRejects[] = {"icmp-net-unreachable",
                                    "icmp-host-unreachable",
                                    "icmp-proto-unreachable",
                                    "icmp-port-unreachable",
                                    nullptr,
                                    "icmp-net-prohibited",
                                    "icmp-host-prohibited",
                                    "tcp-reset",
                                    "icmp-admin-prohibited"};
static_assert(std::size(kRejects) == IPT_ICMP_ADMIN_PROHIBITED + 1);
constexpr const char* kRejects6[] = {"icmp6-no-route",
                                     "icmp6-adm-prohibited",
                                     nullptr,
                                     "icmp6-addr-unreachable",
                                     "icmp6-port-unreachable",
                                     nullptr,
                                     "tcp-reset",
                                     "icmp6-policy-fail",
                                     "icmp6-reject-route"};
static_assert(std::size(kRejects6) == IP6T_ICMP6_REJECT_ROUTE + 1);

// Both families' structs are one enum.
static_assert(sizeof(ipt_reject_info) == 4 && sizeof(ip6t_reject_info) == 4);
Spelling Reject(Family family, const uint32_t& code) {
  const absl::Span<const char* const> names =
      family == Family::kIPv4 ? absl::MakeConstSpan(kRejects) : absl::MakeConstSpan(kRejects6);
  if (code >= names.size() || names[code] == nullptr) return std::nullopt;
  return absl::StrCat("-j REJECT --reject-with ", names[code]);
}

// Nothing where there is no end.
template <size_t kSize>
std::optional<absl::string_view> Prefix(const char (&bytes)[kSize]) {
  const size_t length = strnlen(bytes, kSize);
  return length == kSize ? std::nullopt : std::make_optional(absl::string_view(bytes, length));
}

Spelling Log(const xt_log_info& info) {
  constexpr unsigned kWarning = 4;  // what libxt_LOG writes where no level is given
  const std::optional<absl::string_view> prefix = Prefix(info.prefix);
  if (!prefix || (info.logflags & ~XT_LOG_MASK) != 0 || info.level > 7) return std::nullopt;
  OptionList options("-j LOG");
  options.Add(!prefix->empty(), "--log-prefix", QuoteForSave(*prefix));
  options.Add(info.level != kWarning, "--log-level",
              absl::StrCat(static_cast<unsigned>(info.level)));
  options.Add((info.logflags & XT_LOG_TCPSEQ) != 0, "--log-tcp-sequence");
  options.Add((info.logflags & XT_LOG_TCPOPT) != 0, "--log-tcp-options");
  options.Add((info.logflags & XT_LOG_IPOPT) != 0, "--log-ip-options");
  options.Add((info.logflags & XT_LOG_UID) != 0, "--log-uid");
  options.Add((info.logflags & XT_LOG_MACDECODE) != 0, "--log-macdecode");
  return options.text();
}

Spelling Nflog(const xt_nflog_info& info) {
  const std::optional<absl::string_view> prefix = Prefix(info.prefix);
  const bool copies = (info.flags & XT_NFLOG_F_COPY_LEN) != 0;
  // A length without its flag is an option that the kernel ignores.
  if (!prefix || (info.flags & ~XT_NFLOG_MASK) != 0 || (info.len != 0 && !copies)) {
    return std::nullopt;
  }
  return NflogText(*prefix, info.group, info.len, info.threshold);
}

// `info` of either revision.
Spelling ConnmarkText(const auto& info) {
  const auto masks = [&](const char* option) {
    return absl::StrCat("-j CONNMARK ", option, " --nfmask 0x", absl::Hex(info.nfmask),
                        " --ctmask 0x", absl::Hex(info.ctmask));
  };
  switch (info.mode) {
    case XT_CONNMARK_SET:
      return absl::StrCat("-j CONNMARK --set-xmark 0x", absl::Hex(info.ctmark), "/0x",
                          absl::Hex(info.ctmask));
    case XT_CONNMARK_SAVE:
      return masks("--save-mark");
    case XT_CONNMARK_RESTORE:
      return masks("--restore-mark");
    default:
      return std::nullopt;
  }
}

Spelling Connmark1(const xt_connmark_tginfo1& info) { return ConnmarkText(info); }

Spelling Connmark2(const xt_connmark_tginfo2& info) {
  if (info.shift_bits != 0 || info.shift_dir != D_SHIFT_LEFT) return std::nullopt;
  return ConnmarkText(info);
}

// Only what takes packets out of connection tracking.
template <typename Info>
Spelling Ct(const Info& info) {
  if (info.zone != 0 || info.ct_events != 0 || info.exp_events != 0 || info.helper[0] != '\0') {
    return std::nullopt;
  }
  if constexpr (std::is_same_v<Info, xt_ct_target_info_v1>) {
    if (info.timeout[0] != '\0') return std::nullopt;
  }
  if (info.flags == XT_CT_NOTRACK) return "-j CT --notrack";
  const bool alias = info.flags == (XT_CT_NOTRACK | XT_CT_NOTRACK_ALIAS);
  return alias ? Spelling("-j NOTRACK") : std::nullopt;
}

Spelling Notrack(Family /*family*/, XtBytes bytes) {
  return bytes.empty() ? Spelling("-j NOTRACK") : std::nullopt;
}

Spelling TcpMss(const xt_tcpmss_info& info) {
  if (info.mss == XT_TCPMSS_CLAMP_PMTU) return "-j TCPMSS --clamp-mss-to-pmtu";
  return absl::StrCat("-j TCPMSS --set-mss ", info.mss);
}

Spelling Tproxy(Family family, const xt_tproxy_target_info_v1& info) {
  return absl::StrCat("-j TPROXY --on-port ", ntohs(info.lport), " --on-ip ",
                      AddressText(family, &info.laddr), " --tproxy-mark 0x",
                      absl::Hex(info.mark_value), "/0x", absl::Hex(info.mark_mask));
}

struct KnownTarget {
  absl::string_view name;
  uint32_t revision;
  Spelling (*display)(Family, XtBytes);
};
constexpr KnownTarget kTargets[] = {
    {"CONNMARK", 1, Of<xt_connmark_tginfo1, Connmark1>},
    {"CONNMARK", 2, Of<xt_connmark_tginfo2, Connmark2>},
    {"CT", 0, Of<xt_ct_target_info, Ct<xt_ct_target_info>>},
    {"CT", 1, Of<xt_ct_target_info_v1, Ct<xt_ct_target_info_v1>>},
    {"CT", 2, Of<xt_ct_target_info_v1, Ct<xt_ct_target_info_v1>>},
    {"LOG", 0, Of<xt_log_info, Log>},
    {"NFLOG", 0, Of<xt_nflog_info, Nflog>},
    {"NOTRACK", 0, Notrack},
    {"REJECT", 0, Of<uint32_t, Reject>},
    {"TCPMSS", 0, Of<xt_tcpmss_info, TcpMss>},
    {"TPROXY", 1, Of<xt_tproxy_target_info_v1, Tproxy>},
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
