// SPDX-License-Identifier: Apache-2.0
#include "agent/config/value_texts.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

// ---- durations ----

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }
bool IsOfUnit(char c) { return c != '.' && !IsDigit(c); }

absl::string_view TakeWhile(absl::string_view& rest, bool (*belongs)(char)) {
  const auto end = std::find_if_not(rest.begin(), rest.end(), belongs);
  const absl::string_view taken = rest.substr(0, static_cast<size_t>(end - rest.begin()));
  rest.remove_prefix(taken.size());
  return taken;
}

absl::Status Refused(absl::string_view what, absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("time: ", what, " ", GoQuote(text)));
}

// ---- addresses ----

// Digits only: SimpleAtoi alone would take a sign and spaces.
bool ParsePort(absl::string_view digits, in_port_t& port) {
  uint32_t number = 0;
  if (digits.size() > 5 || !absl::c_all_of(digits, IsDigit)) return false;
  if (!absl::SimpleAtoi(digits, &number) || number > 65535) return false;
  port = htons(static_cast<uint16_t>(number));
  return true;
}

}  // namespace

absl::StatusOr<absl::Duration> ParseGoDuration(absl::string_view text) {
  absl::string_view rest = text;
  const bool negative = absl::ConsumePrefix(&rest, "-");
  if (!negative) absl::ConsumePrefix(&rest, "+");
  if (rest == "0") return absl::ZeroDuration();
  if (rest.empty()) return Refused("invalid duration", text);
  // Counted below zero, where an int64 of nanoseconds, Go's Duration, has one more.
  constexpr absl::Duration kLeast = absl::Nanoseconds(std::numeric_limits<int64_t>::min());
  absl::Duration sum;
  while (!rest.empty()) {
    const absl::string_view whole = TakeWhile(rest, IsDigit);
    const absl::string_view fraction =
        absl::ConsumePrefix(&rest, ".") ? TakeWhile(rest, IsDigit) : "";
    if (whole.empty() && fraction.empty()) return Refused("invalid duration", text);
    const absl::string_view name = TakeWhile(rest, IsOfUnit);
    if (name.empty()) return Refused("missing unit in duration", text);
    // With a micro sign, or a Greek letter mu.
    const std::string ascii = absl::StrReplaceAll(name, {{"\u00b5", "u"}, {"\u03bc", "u"}});
    absl::Duration unit;
    if (!absl::ParseDuration(absl::StrCat("1", ascii), &unit)) {
      return Refused(absl::StrCat("unknown unit ", GoQuote(name), " in duration"), text);
    }
    int64_t count = 0;
    if (!absl::SimpleAtoi(absl::StrCat("-0", whole), &count)) {
      return Refused("invalid duration", text);
    }
    // Below a nanosecond no digit counts any more; an hour has 13 that do.
    absl::Duration part;
    absl::ParseDuration(absl::StrCat("0.", fraction.substr(0, 13), ascii), &part);
    sum += count * unit - absl::Floor(part, absl::Nanoseconds(1));
  }
  if (sum < kLeast || (sum == kLeast && !negative)) return Refused("invalid duration", text);
  return negative ? sum : -sum;
}

std::string FormatGoDuration(absl::Duration duration) {
  if (duration == absl::ZeroDuration()) return "0s";
  const absl::string_view sign = duration < absl::ZeroDuration() ? "-" : "";
  duration = absl::AbsDuration(duration);
  if (duration < absl::Seconds(1)) {
    return absl::StrCat(sign,
                        absl::StrReplaceAll(absl::FormatDuration(duration), {{"us", "\u00b5s"}}));
  }
  const int64_t hours = absl::IDivDuration(duration, absl::Hours(1), &duration);
  const int64_t minutes = absl::IDivDuration(duration, absl::Minutes(1), &duration);
  const int64_t seconds = absl::IDivDuration(duration, absl::Seconds(1), &duration);
  std::string fraction = absl::StrFormat(".%09d", absl::ToInt64Nanoseconds(duration));
  fraction.erase(fraction.find_last_not_of(".0") + 1);
  return absl::StrCat(sign, hours > 0 ? absl::StrCat(hours, "h") : "",
                      hours > 0 || minutes > 0 ? absl::StrCat(minutes, "m") : "", seconds, fraction,
                      "s");
}

absl::StatusOr<BindAddress> ParseBindAddress(absl::string_view text) {
  const size_t colon = std::min(text.rfind(':'), text.size());
  absl::string_view host = text.substr(0, colon);
  const bool brackets = absl::StartsWith(host, "[") && absl::EndsWith(host, "]");
  if (brackets) host = host.substr(1, host.size() - 2);
  const bool is_ipv6 = brackets && absl::StrContains(host, ':');
  BindAddress address;
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(address.storage);
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  address.storage.ss_family = is_ipv6 ? AF_INET6 : AF_INET;
  address.size = is_ipv6 ? sizeof(ipv6) : sizeof(ipv4);
  void* const binary = is_ipv6 ? static_cast<void*>(&ipv6.sin6_addr) : &ipv4.sin_addr;
  // A zero byte would end the host early for inet_pton.
  if (!absl::c_linear_search(host, '\0') &&
      ParsePort(absl::ClippedSubstr(text, colon + 1), is_ipv6 ? ipv6.sin6_port : ipv4.sin_port) &&
      inet_pton(address.family(), std::string(host).c_str(), binary) == 1) {
    return address;
  }
  return absl::InvalidArgumentError(
      "it must be an IPv4 address or an IPv6 address in brackets, a colon and a port, as in "
      "127.0.0.1:10270 or [::1]:10270");
}

std::string ToString(const BindAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (address.family() == AF_INET6) {
    const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
    inet_ntop(AF_INET6, &ipv6.sin6_addr, host.data(), host.size());
    return absl::StrCat("[", host.data(), "]:", ntohs(ipv6.sin6_port));
  }
  if (address.family() != AF_INET) return "";
  const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address.storage);
  inet_ntop(AF_INET, &ipv4.sin_addr, host.data(), host.size());
  return absl::StrCat(host.data(), ":", ntohs(ipv4.sin_port));
}

bool IsLoopback(const BindAddress& address) {
  constexpr uint8_t kLoopbackNet = 127;
  if (address.family() == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    return ntohl(ipv4.sin_addr.s_addr) >> 24 == kLoopbackNet;
  }
  if (address.family() != AF_INET6) return false;
  const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&ipv6) ||
         (IN6_IS_ADDR_V4MAPPED(&ipv6) && ipv6.s6_addr[12] == kLoopbackNet);
}

}  // namespace kipt::agent
