// SPDX-License-Identifier: Apache-2.0
#include "netlink/xt_display.h"

#include <arpa/inet.h>
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter/nf_tables.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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

}  // namespace kipt::netlink
