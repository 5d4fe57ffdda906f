// SPDX-License-Identifier: Apache-2.0
#include "netlink/xt_display.h"

#include <arpa/inet.h>
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/x_tables.h>
#include <linux/netfilter/xt_CONNMARK.h>
#include <linux/netfilter/xt_CT.h>
#include <linux/netfilter/xt_LOG.h>
#include <linux/netfilter/xt_NFLOG.h>
#include <linux/netfilter/xt_TCPMSS.h>
#include <linux/netfilter/xt_TPROXY.h>
#include <linux/netfilter_ipv4/ipt_REJECT.h>
#include <linux/netfilter_ipv6/ip6t_REJECT.h>

#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kipt::netlink {
namespace {

Spelling NativeLimit(const Attributes& data) {
  if (!data.HasOnly({NFTA_LIMIT_RATE, NFTA_LIMIT_UNIT, NFTA_LIMIT_BURST, NFTA_LIMIT_TYPE,
                     NFTA_LIMIT_FLAGS, NFTA_LIMIT_PAD})) {
    return std::nullopt;
  }
  const auto rate = data.U64(NFTA_LIMIT_RATE);
  const auto unit = data.U64(NFTA_LIMIT_UNIT);  // seconds
  const auto burst = data.U32(NFTA_LIMIT_BURST);
  const bool counts_packets = data.U32(NFTA_LIMIT_TYPE).value_or(NFT_LIMIT_PKTS) == NFT_LIMIT_PKTS;
  if (!rate || !unit || !burst || !counts_packets || data.U32(NFTA_LIMIT_FLAGS).value_or(0) != 0) {
    return std::nullopt;
  }
  // Ten thousandths of a second, XT_LIMIT_SCALE.
  constexpr uint64_t kScale = 10000;
  if (*rate == 0 || *unit > UINT32_MAX) return std::nullopt;
  return LimitText(*unit * kScale / *rate, *burst);
}

// Without a group it is the kernel's log, in other words than LOG's.
Spelling NativeLog(const Attributes& data) {
  if (!data.HasOnly({NFTA_LOG_GROUP, NFTA_LOG_PREFIX, NFTA_LOG_SNAPLEN, NFTA_LOG_QTHRESHOLD})) {
    return std::nullopt;
  }
  const auto group = data.U16(NFTA_LOG_GROUP);
  const auto threshold = data.U16(NFTA_LOG_QTHRESHOLD);
  if (!group || (data.Bytes(NFTA_LOG_QTHRESHOLD) && !threshold)) return std::nullopt;
  return NflogText(data.Text(NFTA_LOG_PREFIX).value_or(""), *group,
                   data.U32(NFTA_LOG_SNAPLEN).value_or(0), threshold.value_or(0));
}

}  // namespace

std::string OptionWords(absl::string_view option, absl::string_view value, bool negated) {
  return absl::StrCat(negated ? " ! " : " ", option, value.empty() ? "" : " ", value);
}

Spelling Display(absl::Span<const XtDisplay> rows, Family family, absl::string_view name,
                 uint32_t revision, XtBytes info) {
  for (const XtDisplay& row : rows) {
    if (row.name == name && row.revision == revision) return row.display(family, info);
  }
  return std::nullopt;
}

std::string PortsText(uint16_t first, uint16_t last) {
  const std::string text = absl::StrCat(static_cast<unsigned>(first));
  return first == last ? text : absl::StrCat(text, ":", static_cast<unsigned>(last));
}

std::string MarkText(uint32_t value, uint32_t mask) {
  const std::string text = absl::StrCat("0x", absl::Hex(value));
  return mask == kAllMarks ? text : absl::StrCat(text, "/0x", absl::Hex(mask));
}

Spelling BitNames(absl::Span<const char* const> names, uint32_t bits) {
  if (bits >> names.size() != 0) return std::nullopt;
  std::vector<const char*> present;
  for (size_t bit = 0; bit < names.size(); ++bit) {
    if ((bits >> bit & 1U) != 0) present.push_back(names[bit]);
  }
  return absl::StrJoin(present, ",");
}

Spelling TcpFlagsText(uint8_t mask, uint8_t flags) {
  const auto names = [](uint8_t bits) {
    return bits == 0 ? "NONE" : BitNames({"FIN", "SYN", "RST", "PSH", "ACK", "URG"}, bits);
  };
  const Spelling masked = names(mask);
  const Spelling compared = names(flags);
  return masked && compared ? Spelling(absl::StrCat(*masked, " ", *compared)) : std::nullopt;
}

Spelling LimitText(uint64_t period, uint32_t burst) {
  // XT_LIMIT_SCALE, linux/netfilter/xt_limit.h.
  constexpr uint64_t kSecond = 10000;
  static constexpr std::pair<const char*, uint64_t> kUnits[] = {
      {"sec", kSecond}, {"min", 60 * kSecond}, {"hour", 3600 * kSecond}, {"day", 86400 * kSecond}};
  constexpr uint32_t kDefaultBurst = 5;
  if (period == 0) return std::nullopt;
  // The shortest unit that is no shorter than the period and loses little to rounding, as
  // libxt_limit prints it.
  const auto* unit = std::end(kUnits) - 1;
  while (unit != std::begin(kUnits)) {
    const uint64_t shorter = (unit - 1)->second;
    if (period > shorter || shorter / period < shorter % period) break;
    --unit;
  }
  if (unit->second / period == 0) return std::nullopt;
  std::string text = absl::StrCat("-m limit --limit ", unit->second / period, "/", unit->first);
  if (burst != kDefaultBurst) absl::StrAppend(&text, " --limit-burst ", burst);
  return text;
}

std::string NflogText(absl::string_view prefix, uint16_t group, uint32_t copy_bytes,
                      uint16_t threshold) {
  OptionList options("-j NFLOG");
  options.AddIf(!prefix.empty(), "--nflog-prefix", QuoteForSave(prefix));
  options.AddIf(group != 0, "--nflog-group", absl::StrCat(group));
  options.AddIf(copy_bytes != 0, "--nflog-size", absl::StrCat(copy_bytes));
  options.AddIf(threshold != 0, "--nflog-threshold", absl::StrCat(threshold));
  return *options.text();
}

std::string AddressText(Family family, const void* address) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(family == Family::kIPv4 ? AF_INET : AF_INET6, address, text, sizeof(text));
  return text;
}

std::string DisplayNative(absl::string_view name, const Attributes& data) {
  if (name == "limit") return NativeLimit(data).value_or("");
  if (name == "log") return NativeLog(data).value_or("");
  return "";
}

// ---- targets: network address translation ----

namespace {

// The widest of the kernel's structs.
using NatRange = nf_nat_range2;

std::optional<NatRange> FromIpv4Range(XtBytes bytes) {
  const auto info = FromXtBytes<nf_nat_ipv4_multi_range_compat>(bytes);
  if (!info || info->rangesize != 1) return std::nullopt;
  const nf_nat_ipv4_range& range = info->range[0];
  NatRange result = {};
  result.flags = range.flags;
  result.min_addr.ip = range.min_ip;
  result.max_addr.ip = range.max_ip;
  result.min_proto = range.min;
  result.max_proto = range.max;
  return result;
}

// nf_nat_range, and the wider one that begins as it does.
template <typename Info>
std::optional<NatRange> FromRange(XtBytes bytes) {
  const auto info = FromXtBytes<Info>(bytes);
  if (!info) return std::nullopt;
  NatRange result = {};
  std::memcpy(&result, &*info, sizeof(Info));
  return result;
}

constexpr uint32_t kRandom = NF_NAT_RANGE_PROTO_RANDOM;
constexpr uint32_t kRandomFully = NF_NAT_RANGE_PROTO_RANDOM_FULLY;
constexpr uint32_t kPersistent = NF_NAT_RANGE_PERSISTENT;

struct NatTarget {
  absl::string_view name;
  const char* option;
  bool to_address;   // or to ports, or to nothing else: of revision 0 alone
  uint32_t choices;  // the flags that say how the mapping is chosen and that iptables-save prints
};
constexpr NatTarget kNatTargets[] = {
    {"DNAT", "--to-destination", true, kRandom | kPersistent},
    {"SNAT", "--to-source", true, kRandom | kRandomFully | kPersistent},
    {"REDIRECT", "--to-ports", false, kRandom},
    {"MASQUERADE", "--to-ports", false, kRandom | kRandomFully},
};

std::optional<NatRange> ReadRange(const NatTarget& target, Family family, uint32_t revision,
                                  XtBytes bytes) {
  if (family == Family::kIPv4 && revision == 0) return FromIpv4Range(bytes);
  if (revision == (target.to_address ? 1 : 0)) return FromRange<nf_nat_range>(bytes);
  return target.to_address && revision == 2 ? FromRange<nf_nat_range2>(bytes) : std::nullopt;
}

// "10.0.0.1-10.0.0.9", "[fd00::1]:80", ":80-90/7"; "80" of a target that takes no address.
std::string NatPlace(const NatTarget& target, Family family, const NatRange& range) {
  std::string text;
  if ((range.flags & NF_NAT_RANGE_MAP_IPS) != 0) {
    text = AddressText(family, &range.min_addr);
    const std::string last = AddressText(family, &range.max_addr);
    if (last != text) absl::StrAppend(&text, "-", last);
  }
  if ((range.flags & NF_NAT_RANGE_PROTO_SPECIFIED) == 0) return text;
  if (family == Family::kIPv6 && !text.empty()) text = absl::StrCat("[", text, "]");
  const uint16_t first = ntohs(range.min_proto.all);
  const uint16_t last = ntohs(range.max_proto.all);
  absl::StrAppend(&text, target.to_address ? ":" : "", first);
  if (last != first) absl::StrAppend(&text, "-", last);
  if ((range.flags & NF_NAT_RANGE_PROTO_OFFSET) != 0) {
    absl::StrAppend(&text, "/", ntohs(range.base_proto.all));
  }
  return text;
}

Spelling Nat(const NatTarget& target, Family family, uint32_t revision, XtBytes bytes) {
  const std::optional<NatRange> range = ReadRange(target, family, revision, bytes);
  if (!range) return std::nullopt;
  OptionList options(absl::StrCat("-j ", target.name), range->flags);
  const bool ports = options.Has(NF_NAT_RANGE_PROTO_SPECIFIED);
  if (target.to_address) {
    const bool addresses = options.Has(NF_NAT_RANGE_MAP_IPS);
    const bool base = options.Has(NF_NAT_RANGE_PROTO_OFFSET);
    if (!ports && (base || !addresses)) return std::nullopt;
  }
  options.AddIf(target.to_address || ports, target.option, NatPlace(target, family, *range));
  options.AddFlag(target.choices & kRandom, "--random");
  options.AddFlag(target.choices & kRandomFully, "--random-fully");
  options.AddFlag(target.choices & kPersistent, "--persistent");
  return options.text();
}

// ---- other targets ----

// By enum ipt_reject_with and enum ip6t_reject_with; empty is none that iptables writes.
constexpr absl::string_view kRejects[] = {"icmp-net-unreachable",
                                          "icmp-host-unreachable",
                                          "icmp-proto-unreachable",
                                          "icmp-port-unreachable",
                                          "",
                                          "icmp-net-prohibited",
                                          "icmp-host-prohibited",
                                          "tcp-reset",
                                          "icmp-admin-prohibited"};
static_assert(std::size(kRejects) == IPT_ICMP_ADMIN_PROHIBITED + 1);
constexpr absl::string_view kRejects6[] = {"icmp6-no-route",
                                           "icmp6-adm-prohibited",
                                           "",
                                           "icmp6-addr-unreachable",
                                           "icmp6-port-unreachable",
                                           "",
                                           "tcp-reset",
                                           "icmp6-policy-fail",
                                           "icmp6-reject-route"};
static_assert(std::size(kRejects6) == IP6T_ICMP6_REJECT_ROUTE + 1);

// Both families' structs are one enum.
static_assert(sizeof(ipt_reject_info) == 4 && sizeof(ip6t_reject_info) == 4);
Spelling Reject(Family family, const uint32_t& code) {
  const absl::Span<const absl::string_view> names =
      family == Family::kIPv4 ? absl::MakeConstSpan(kRejects) : absl::MakeConstSpan(kRejects6);
  if (code >= names.size() || names[code].empty()) return std::nullopt;
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
  if (!prefix || info.level > 7) return std::nullopt;
  OptionList options("-j LOG", info.logflags);
  options.AddIf(!prefix->empty(), "--log-prefix", QuoteForSave(*prefix));
  options.AddIf(info.level != kWarning, "--log-level",
                absl::StrCat(static_cast<unsigned>(info.level)));
  options.AddFlag(XT_LOG_TCPSEQ, "--log-tcp-sequence");
  options.AddFlag(XT_LOG_TCPOPT, "--log-tcp-options");
  options.AddFlag(XT_LOG_IPOPT, "--log-ip-options");
  options.AddFlag(XT_LOG_UID, "--log-uid");
  options.AddFlag(XT_LOG_MACDECODE, "--log-macdecode");
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

constexpr XtDisplay kTargets[] = {
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
  for (const NatTarget& target : kNatTargets) {
    if (target.name == name) return Nat(target, family, revision, info);
  }
  return Display(kTargets, family, name, revision, info);
}

}  // namespace kipt::netlink
