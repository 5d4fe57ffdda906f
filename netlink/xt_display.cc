// SPDX-License-Identifier: Apache-2.0
#include "netlink/xt_display.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kipt::netlink {

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

std::optional<std::string> TcpFlagsText(uint8_t flags) {
  static constexpr const char* kNames[] = {"FIN", "SYN", "RST", "PSH", "ACK", "URG"};
  if (flags >= 1U << std::size(kNames)) return std::nullopt;
  if (flags == 0) return "NONE";
  std::vector<const char*> names;
  for (size_t bit = 0; bit < std::size(kNames); ++bit) {
    if ((flags >> bit & 1U) != 0) names.push_back(kNames[bit]);
  }
  return absl::StrJoin(names, ",");
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

}  // namespace kipt::netlink
