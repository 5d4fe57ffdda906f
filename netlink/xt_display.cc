// SPDX-License-Identifier: Apache-2.0
#include "netlink/xt_display.h"

#include <arpa/inet.h>
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/xt_conntrack.h>

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "netlink/statement.h"

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

std::string PortsText(uint16_t first, uint16_t last) {
  const std::string text = absl::StrCat(static_cast<unsigned>(first));
  return first == last ? text : absl::StrCat(text, ":", static_cast<unsigned>(last));
}

std::string MarkText(uint32_t value, uint32_t mask) {
  const std::string text = absl::StrCat("0x", absl::Hex(value));
  return mask == 0xffffffff ? text : absl::StrCat(text, "/0x", absl::Hex(mask));
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
  struct Unit {
    const char* name;
    uint64_t length;
  };
  // XT_LIMIT_SCALE, linux/netfilter/xt_limit.h.
  constexpr uint64_t kSecond = 10000;
  static constexpr Unit kUnits[] = {
      {"sec", kSecond}, {"min", 60 * kSecond}, {"hour", 3600 * kSecond}, {"day", 86400 * kSecond}};
  constexpr uint32_t kDefaultBurst = 5;
  if (period == 0 || period > UINT32_MAX) return std::nullopt;
  // The shortest unit that is no shorter than the period and loses little to rounding, as
  // libxt_limit prints it.
  const Unit* unit = std::end(kUnits) - 1;
  while (unit != std::begin(kUnits)) {
    const uint64_t shorter = (unit - 1)->length;
    if (period > shorter || shorter / period < shorter % period) break;
    --unit;
  }
  if (unit->length / period == 0) return std::nullopt;
  std::string text = absl::StrCat("-m limit --limit ", unit->length / period, "/", unit->name);
  if (burst != kDefaultBurst) absl::StrAppend(&text, " --limit-burst ", burst);
  return text;
}

std::string NflogText(absl::string_view prefix, uint16_t group, uint32_t copy_bytes,
                      uint16_t threshold) {
  OptionList options("-j NFLOG");
  options.Add(!prefix.empty(), "--nflog-prefix", QuoteForSave(prefix));
  options.Add(group != 0, "--nflog-group", absl::StrCat(group));
  options.Add(copy_bytes != 0, "--nflog-size", absl::StrCat(copy_bytes));
  options.Add(threshold != 0, "--nflog-threshold", absl::StrCat(threshold));
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

// ---- the match conntrack beyond its states, revisions 1 to 3 ----

namespace {

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
  const CtStateMatch match{.states = states};
  const std::string rule = ToString(Family::kIPv4, Rule{.ct_state = match, .target = Drop{}});
  return std::string(
      absl::StripSuffix(absl::StripPrefix(rule, "-m conntrack --ctstate "), " -j DROP"));
}

// The lowest of the bits IPS_*.
Spelling Status(unsigned status) {
  if (status == 0) return "NONE";
  return BitNames({"EXPECTED", "SEEN_REPLY", "ASSURED", "CONFIRMED"}, status);
}

// Revisions 1 and 2 have their ports in network order, revision 3 ranges of them in host order.
template <typename Info>
std::string Port(const Info& info, uint16_t Info::*first, uint16_t high) {
  if constexpr (std::is_same_v<Info, xt_conntrack_mtinfo3>) return PortsText(info.*first, high);
  return PortsText(ntohs(info.*first), ntohs(info.*first));
}

template <typename Info>
uint16_t High(const Info& info, size_t which) {
  if constexpr (std::is_same_v<Info, xt_conntrack_mtinfo3>) {
    const uint16_t ports[] = {info.origsrc_port_high, info.origdst_port_high,
                              info.replsrc_port_high, info.repldst_port_high};
    return ports[which];
  }
  return 0;
}

template <typename Info>
Spelling Conntrack(Family family, const Info& info) {
  constexpr unsigned kKnown = XT_CONNTRACK_STATE_ALIAS - 1;
  if ((info.match_flags & ~kKnown) != 0 || (info.invert_flags & ~info.match_flags) != 0) {
    return std::nullopt;
  }
  OptionList options("-m conntrack");
  const auto add = [&](unsigned flag, const char* option, const Spelling& value) {
    options.Add((info.match_flags & flag) != 0, option, value, (info.invert_flags & flag) != 0);
  };
  add(XT_CONNTRACK_STATE, "--ctstate", StatesText(info.state_mask));
  add(XT_CONNTRACK_PROTO, "--ctproto", absl::StrCat(info.l4proto));
  const auto address = [&](unsigned flag, const char* option, const nf_inet_addr& value,
                           const nf_inet_addr& mask) {
    add(flag, option, AddressAndMask(family, value, mask));
  };
  address(XT_CONNTRACK_ORIGSRC, "--ctorigsrc", info.origsrc_addr, info.origsrc_mask);
  address(XT_CONNTRACK_ORIGDST, "--ctorigdst", info.origdst_addr, info.origdst_mask);
  address(XT_CONNTRACK_REPLSRC, "--ctreplsrc", info.replsrc_addr, info.replsrc_mask);
  address(XT_CONNTRACK_REPLDST, "--ctrepldst", info.repldst_addr, info.repldst_mask);
  const auto port = [&](unsigned flag, const char* option, uint16_t Info::*first, size_t which) {
    add(flag, option, Port(info, first, High(info, which)));
  };
  port(XT_CONNTRACK_ORIGSRC_PORT, "--ctorigsrcport", &Info::origsrc_port, 0);
  port(XT_CONNTRACK_ORIGDST_PORT, "--ctorigdstport", &Info::origdst_port, 1);
  port(XT_CONNTRACK_REPLSRC_PORT, "--ctreplsrcport", &Info::replsrc_port, 2);
  port(XT_CONNTRACK_REPLDST_PORT, "--ctrepldstport", &Info::repldst_port, 3);
  add(XT_CONNTRACK_STATUS, "--ctstatus", Status(info.status_mask));
  const bool one = info.expires_min == info.expires_max;
  add(XT_CONNTRACK_EXPIRES, "--ctexpire",
      absl::StrCat(info.expires_min, one ? "" : absl::StrCat(":", info.expires_max)));
  const bool reply = (info.invert_flags & XT_CONNTRACK_DIRECTION) != 0;
  options.Add((info.match_flags & XT_CONNTRACK_DIRECTION) != 0, "--ctdir",
              reply ? "REPLY" : "ORIGINAL");
  return options.text();
}

}  // namespace

Spelling DisplayConntrack(Family family, uint32_t revision, XtBytes info) {
  if (revision == 1) return Of<xt_conntrack_mtinfo1, Conntrack<xt_conntrack_mtinfo1>>(family, info);
  if (revision == 2) return Of<xt_conntrack_mtinfo2, Conntrack<xt_conntrack_mtinfo2>>(family, info);
  if (revision == 3) return Of<xt_conntrack_mtinfo3, Conntrack<xt_conntrack_mtinfo3>>(family, info);
  return std::nullopt;
}

}  // namespace kipt::netlink
