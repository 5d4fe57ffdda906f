// SPDX-License-Identifier: Apache-2.0
#include "netlink/xt_display.h"

#include <arpa/inet.h>
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/xt_conntrack.h>

#include <bit>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace kipt::netlink {
namespace {

std::optional<std::string> NativeLimit(const Attributes& data) {
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
std::optional<std::string> NativeLog(const Attributes& data) {
  if (!data.HasOnly({NFTA_LOG_GROUP, NFTA_LOG_PREFIX, NFTA_LOG_SNAPLEN, NFTA_LOG_QTHRESHOLD})) {
    return std::nullopt;
  }
  const auto group = data.U16(NFTA_LOG_GROUP);
  const auto threshold = data.U16(NFTA_LOG_QTHRESHOLD);
  if (!group || (data.Bytes(NFTA_LOG_QTHRESHOLD) && !threshold)) return std::nullopt;
  return NflogText({.prefix = data.Text(NFTA_LOG_PREFIX).value_or(""),
                    .group = *group,
                    .copy_bytes = data.U32(NFTA_LOG_SNAPLEN).value_or(0),
                    .threshold = threshold.value_or(0)});
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

std::optional<std::string> BitNames(absl::Span<const char* const> names, uint32_t bits) {
  if (bits >> names.size() != 0) return std::nullopt;
  std::vector<const char*> present;
  for (size_t bit = 0; bit < names.size(); ++bit) {
    if ((bits >> bit & 1U) != 0) present.push_back(names[bit]);
  }
  return absl::StrJoin(present, ",");
}

std::optional<std::string> TcpFlagsText(uint8_t flags) {
  if (flags == 0) return "NONE";
  return BitNames({"FIN", "SYN", "RST", "PSH", "ACK", "URG"}, flags);
}

std::optional<std::string> LimitText(uint64_t period, uint32_t burst) {
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

std::string NflogText(const NflogOptions& options) {
  std::string text = "-j NFLOG";
  if (!options.prefix.empty()) {
    text += OptionWords("--nflog-prefix", QuoteForSave(options.prefix));
  }
  const auto number = [&](const char* option, uint32_t value) {
    if (value != 0) text += OptionWords(option, absl::StrCat(value));
  };
  number("--nflog-group", options.group);
  number("--nflog-size", options.copy_bytes);
  number("--nflog-threshold", options.threshold);
  return text;
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

using Text = std::optional<std::string>;

// How many leading bits of `mask` are one. Nothing where it has a hole.
std::optional<unsigned> PrefixBits(Family family, const nf_inet_addr& mask) {
  unsigned bits = 0;
  bool ended = false;
  for (size_t word = 0; word < (family == Family::kIPv4 ? 1U : 4U); ++word) {
    const uint32_t value = ntohl(mask.all[word]);
    const auto ones = static_cast<unsigned>(std::countl_one(value));
    if ((ended && value != 0) || std::popcount(value) != static_cast<int>(ones)) {
      return std::nullopt;
    }
    bits += ones;
    ended = ones != 32;
  }
  return bits;
}

Text AddressAndMask(Family family, const nf_inet_addr& address, const nf_inet_addr& mask) {
  const std::optional<unsigned> bits = PrefixBits(family, mask);
  if (!bits || *bits == 0) return std::nullopt;
  const std::string text = AddressText(family, &address);
  return *bits == (family == Family::kIPv4 ? 32U : 128U) ? text : absl::StrCat(text, "/", *bits);
}

// In the words of a Rule that has this one match.
Text StatesText(uint16_t states) {
  if (!IsKnownCtState(states)) return std::nullopt;
  const CtStateMatch match{.states = states};
  const std::string rule = ToString(Family::kIPv4, Rule{.ct_state = match, .target = Drop{}});
  return std::string(
      absl::StripSuffix(absl::StripPrefix(rule, "-m conntrack --ctstate "), " -j DROP"));
}

// The lowest of the bits IPS_*.
Text Status(unsigned status) {
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
Text Display(Family family, XtBytes bytes) {
  const auto read = FromXtBytes<Info>(bytes);
  constexpr unsigned kKnown = XT_CONNTRACK_STATE_ALIAS - 1;
  if (!read || (read->match_flags & ~kKnown) != 0 ||
      (read->invert_flags & ~read->match_flags) != 0) {
    return std::nullopt;
  }
  const Info& info = *read;
  std::string text = "-m conntrack";
  bool known = true;
  const auto add = [&](unsigned flag, const char* option, const auto& value) {
    if ((info.match_flags & flag) == 0) return;
    const Text spelled = value();
    known = known && spelled.has_value();
    text += OptionWords(option, spelled.value_or(""), (info.invert_flags & flag) != 0);
  };
  add(XT_CONNTRACK_STATE, "--ctstate", [&]() -> Text { return StatesText(info.state_mask); });
  add(XT_CONNTRACK_PROTO, "--ctproto", [&]() -> Text { return absl::StrCat(info.l4proto); });
  const auto address = [&](const nf_inet_addr& value, const nf_inet_addr& mask) {
    return [&, family]() -> Text { return AddressAndMask(family, value, mask); };
  };
  add(XT_CONNTRACK_ORIGSRC, "--ctorigsrc", address(info.origsrc_addr, info.origsrc_mask));
  add(XT_CONNTRACK_ORIGDST, "--ctorigdst", address(info.origdst_addr, info.origdst_mask));
  add(XT_CONNTRACK_REPLSRC, "--ctreplsrc", address(info.replsrc_addr, info.replsrc_mask));
  add(XT_CONNTRACK_REPLDST, "--ctrepldst", address(info.repldst_addr, info.repldst_mask));
  const auto port = [&](uint16_t Info::*first, size_t which) {
    return [&info, first, which]() -> Text { return Port(info, first, High(info, which)); };
  };
  add(XT_CONNTRACK_ORIGSRC_PORT, "--ctorigsrcport", port(&Info::origsrc_port, 0));
  add(XT_CONNTRACK_ORIGDST_PORT, "--ctorigdstport", port(&Info::origdst_port, 1));
  add(XT_CONNTRACK_REPLSRC_PORT, "--ctreplsrcport", port(&Info::replsrc_port, 2));
  add(XT_CONNTRACK_REPLDST_PORT, "--ctrepldstport", port(&Info::repldst_port, 3));
  add(XT_CONNTRACK_STATUS, "--ctstatus", [&] { return Status(info.status_mask); });
  add(XT_CONNTRACK_EXPIRES, "--ctexpire", [&]() -> Text {
    const std::string first = absl::StrCat(info.expires_min);
    return info.expires_min == info.expires_max ? first
                                                : absl::StrCat(first, ":", info.expires_max);
  });
  if (!known) return std::nullopt;
  if ((info.match_flags & XT_CONNTRACK_DIRECTION) != 0) {
    text += OptionWords("--ctdir",
                        (info.invert_flags & XT_CONNTRACK_DIRECTION) != 0 ? "REPLY" : "ORIGINAL");
  }
  return text;
}

}  // namespace

std::optional<std::string> DisplayConntrack(Family family, uint32_t revision, XtBytes info) {
  switch (revision) {
    case 1:
      return Display<xt_conntrack_mtinfo1>(family, info);
    case 2:
      return Display<xt_conntrack_mtinfo2>(family, info);
    case 3:
      return Display<xt_conntrack_mtinfo3>(family, info);
    default:
      return std::nullopt;
  }
}

}  // namespace kipt::netlink
